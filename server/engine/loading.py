"""From a Configure to a step loop with a loaded model, every zero resolved and explained."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

from hobnob.server.engine import exactness, llama, machine, sizing
from hobnob.server.engine.cells import Cells
from hobnob.server.engine.memory import Memory
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import Configure, Ready, Stepped
from hobnob.server.engine.steps import Limits, Steps, Words
from hobnob.server.engine.threads import Threads

ALL_LAYERS = 999


def load(
    asked: Configure, emit: Callable[[Stepped], None], progress: Callable[[float], None]
) -> tuple[Steps, Ready]:
    """Loads weights and context. Raises llama.LoadError."""
    llama.LOG.to_stderr = True
    weights, layers, explain = _weights(asked, progress)
    sizes = sizing.choose(asked, _facts(asked, weights))
    shape = llama.Shape(
        n_cells=sizes.n_cells,
        n_seqs=sizes.n_seqs,
        n_batch=sizes.n_ubatch,
        n_outputs=sizes.n_ubatch,
        n_threads=sizes.n_threads,
        kv_type=asked.kv_type,
        flash_attn=asked.flash_attn,
        ordered=True,
    )
    model = llama.Model(weights, shape)
    exact_rows = exactness.probe(model, model.n_vocab, sizes.n_ubatch, sizes.n_threads)
    model.ordered = model.ordered and exact_rows > 0
    model.clear()
    cells = Cells(model.n_cells, sizes.n_seqs, can_cut=model.can_cut)
    memory = Memory(
        model, cells, cached_max=sizes.cached_max, saved_bytes_max=sizes.saved_bytes_max
    )
    limits = Limits(sizes.n_ctx, sizes.n_running, sizes.n_ubatch, exact_rows)
    steps = Steps(
        model,
        memory,
        _words(weights.vocab),
        limits,
        pace=Pace(sizes.n_ubatch, asked.target_gap_ms / 1000),
        threads=Threads(sizes.n_threads, adapt=layers == 0),
        clock=time.perf_counter,
        emit=emit,
    )
    ready = Ready(
        n_ctx=sizes.n_ctx,
        n_cells=model.n_cells,
        n_seq_max=sizes.n_running,
        n_ubatch=sizes.n_ubatch,
        n_threads=sizes.n_threads,
        gpu_layers=layers,
        device="gpu" if layers else "cpu",
        exact_rows=exact_rows,
        explain=[*explain, *sizes.explain],
    )
    return steps, ready


def code(asked: Configure) -> str:
    """The error code for a model that cannot be loaded."""
    return "model_unavailable" if Path(asked.model).is_file() else "model_not_found"


def _weights(
    asked: Configure, progress: Callable[[float], None]
) -> tuple[llama.Weights, int, list[str]]:
    """Weights, layers on a device, explanation."""
    broken = llama.amx_is_broken()
    explain = [f"no AMX kernels: {broken} compiled them wrongly"] if broken else []
    layers = asked.n_gpu_layers
    if not llama.supports_gpu():
        if layers > 0:
            explain.append("no layers on a GPU: this build of llama.cpp cannot use one")
        return llama.Weights(Path(asked.model), 0, progress), 0, explain
    wanted = ALL_LAYERS if layers < 0 else layers
    weights = llama.Weights(Path(asked.model), wanted, progress)
    return weights, min(wanted, weights.n_layer + 1), explain


def _facts(asked: Configure, weights: llama.Weights) -> sizing.Facts:
    return sizing.Facts(
        n_ctx_train=weights.vocab.n_ctx_train,
        cell_bytes=weights.cell_bytes(asked.kv_type),
        memory_bytes=machine.memory_available(),
        cores=machine.physical_cores(),
    )


def _words(vocab: llama.Vocab) -> Words:
    return Words(
        n_vocab=vocab.n_vocab,
        eog=vocab.eog_tokens(),
        piece=vocab.piece,
        spelled=functools.partial(vocab.piece, special=True),
    )
