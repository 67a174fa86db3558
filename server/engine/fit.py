"""How many layers fit into the free video memory, from the file's header. Pure.

An estimate that leans to fewer: a load that fails costs seconds, and a step that finds no memory
the whole engine. llama.cpp counts the output as a layer of its own, and takes it first, then the
layers from the last one down.
"""

from __future__ import annotations

from dataclasses import dataclass

from hobnob.server.engine.gguf import Header
from hobnob.server.engine.sizing import GPU_RESERVE_BYTES

LEAST_CELLS = 4096  # with fewer on the GPU, a window more is worth more than a layer more
FALLBACK_HEAD_DIM = 128
ACTIVATIONS = 16  # of a row in a step: so many embeddings of floats, at the widest place
FLOAT_BYTES = 4
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Need:
    """What a model takes, in bytes."""

    layers: tuple[int, ...]  # weights, in the model's order
    output: int
    cell: int  # keys and values of one cell in one layer
    row: int  # buffers of one row of a step

    @classmethod
    def of(cls, header: Header, value_bytes: float) -> Need | None:
        """`value_bytes` of a key or a value. None where the header does not tell: a part of a
        model in several files has only its own tensors."""
        n_layer = header.number(f"{header.architecture}.block_count") or 0
        embedding = header.number(f"{header.architecture}.embedding_length") or 0
        weights = header.weights
        if header.split is not None or not n_layer or weights is None or not weights.layers:
            return None
        return cls(
            layers=tuple(weights.layers.get(n, 0) for n in range(n_layer)),
            output=weights.output + weights.embedding * weights.tied,  # a tied one is there twice
            cell=int(_cell_values(header, embedding) * value_bytes),
            row=FLOAT_BYTES * (weights.n_vocab + ACTIVATIONS * embedding),
        )


@dataclass(frozen=True, slots=True)
class Fit:
    n_layers: int  # the output among them
    explain: str


def choose(need: Need, free: list[int], *, cells: int, n_ubatch: int) -> Fit:
    """The most layers for which there is room beside their part of `cells` (0: some thousand) and
    a step's buffers, on GPUs with so much free memory each."""
    cells = cells or LEAST_CELLS
    reserve = len(free) * max(GPU_RESERVE_BYTES, n_ubatch * need.row)
    room = sum(free) - reserve
    in_order = [need.output, *(layer + cells * need.cell for layer in reversed(need.layers))]
    taken = n_layers = 0
    for size in in_order:
        if taken + size > room:
            break
        taken, n_layers = taken + size, n_layers + 1
    if n_layers < 2:  # the output alone would only send its rows to and fro
        return Fit(
            0,
            f"no layers on the GPU: {_mib(free)} MiB are free, a step's buffers take "
            f"{reserve // MIB}, and what is left holds not one",
        )
    return Fit(
        n_layers,
        f"{n_layers} of {len(in_order)} layers on the GPU: with {cells} cells they take "
        f"{taken // MIB} of {_mib(free)} MiB free, and {reserve // MIB} are for a step's buffers",
    )


def _mib(free: list[int]) -> int:
    return sum(free) // MIB


def _cell_values(header: Header, embedding: int) -> int:
    """Keys and values of one cell in one layer: the largest, where layers differ."""
    arch = header.architecture
    heads = _largest(header, f"{arch}.attention.head_count") or 1
    heads_kv = _largest(header, f"{arch}.attention.head_count_kv")
    head = embedding // heads or FALLBACK_HEAD_DIM
    key = header.number(f"{arch}.attention.key_length") or head
    value = header.number(f"{arch}.attention.value_length") or head
    return (heads if heads_kv is None else heads_kv) * (key + value)


def _largest(header: Header, key: str) -> int | None:
    value = header.values.get(key)
    values = value if isinstance(value, list) else [value]
    return max((item for item in values if isinstance(item, int)), default=None)
