"""A whole model of 300 kB: two layers of random weights over a byte-level vocabulary.

llama.cpp computes a row of it in microseconds. For tests of what the engine does with a real
context (cells, snapshots, limits, processes); what it says is noise, the same noise each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from support_gguf import CONTROL, bpe_vocab, write

LAYERS, WIDTH, HEADS, KV_HEADS, FEED_FORWARD = 2, 128, 2, 1, 256
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tiny(path: Path, seed: int = 1) -> Path:
    """Another seed is another model with the same vocabulary."""
    kv = bpe_vocab(
        {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL}, eos="<|im_end|>", template=TEMPLATE
    )
    shape = {
        "llama.embedding_length": WIDTH,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.dimension_count": WIDTH // HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    vocab = len(kv["tokenizer.ggml.tokens"])
    return write(path, kv | shape, dict(_tensors(vocab, np.random.default_rng(seed))))


def _tensors(vocab: int, random: np.random.Generator) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Wide enough that the next token depends on all before it, and no logit is like another."""
    kv_width = WIDTH // HEADS * KV_HEADS

    def weights(rows: int, columns: int) -> NDArray[np.float32]:
        return random.normal(0, 2 / columns**0.5, (rows, columns)).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    yield "token_embd.weight", weights(vocab, WIDTH)
    yield "output_norm.weight", ones
    yield "output.weight", weights(vocab, WIDTH)
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", kv_width, WIDTH),
            ("attn_v", kv_width, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", FEED_FORWARD, WIDTH),
            ("ffn_up", FEED_FORWARD, WIDTH),
            ("ffn_down", WIDTH, FEED_FORWARD),
        ):
            yield f"blk.{layer}.{name}.weight", weights(rows, columns)
        yield f"blk.{layer}.attn_norm.weight", ones
        yield f"blk.{layer}.ffn_norm.weight", ones
