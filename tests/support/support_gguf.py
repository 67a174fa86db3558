"""Writes small GGUF files: metadata of any kind, tiny vocabularies, tensors.

The vocabularies are real enough for llama.cpp to load them; `tiny_model` is a whole model.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = int | NDArray[np.float32]
TENSOR_F32, TENSOR_Q8_0 = 0, 8
ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(item: Any) -> tuple[int, bytes]:
    """The GGUF type and the bytes of a Python value; ints are u32, or u64 when too large."""
    if isinstance(item, bool):
        return BOOL, struct.pack("<?", item)
    if isinstance(item, int):
        return (U32, struct.pack("<I", item)) if item < 2**32 else (U64, struct.pack("<Q", item))
    if isinstance(item, float):
        return F32, struct.pack("<f", item)
    if isinstance(item, str | bytes):
        return STRING, string(item)
    return ARRAY, array(item)


def array(items: Sequence[Any]) -> bytes:
    if items and isinstance(items[0], str | bytes):
        kind, body = STRING, b"".join(string(i) for i in items)
    elif items and isinstance(items[0], float):
        kind, body = F32, struct.pack(f"<{len(items)}f", *items)
    else:
        kind, body = I32, struct.pack(f"<{len(items)}i", *items)
    return struct.pack("<IQ", kind, len(items)) + body


def gguf(
    kv: Mapping[str, Any],
    tensors: Mapping[str, Tensor] | None = None,
    *,
    n_tensors: int | None = None,
    n_kv: int | None = None,
    version: int = 3,
) -> bytes:
    """A whole file. `tensors` maps names to values, or to a number of zeros: vectors as f32,
    matrices as q8_0. The counts can be forged."""
    tensors = tensors or {}
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(kv) if n_kv is None else n_kv,
    )
    for key, item in kv.items():
        kind, body = value(item)
        head += string(key) + struct.pack("<I", kind) + body
    data = b""
    for name, given in tensors.items():
        values = np.zeros(given, np.float32) if isinstance(given, int) else given
        sides = values.shape[::-1]  # GGUF names the fastest one first
        data += bytes(-len(data) % ALIGNMENT)
        head += string(name) + struct.pack(f"<I{len(sides)}Q", len(sides), *sides)
        head += struct.pack("<IQ", TENSOR_F32 if values.ndim == 1 else TENSOR_Q8_0, len(data))
        data += values.astype("<f4").tobytes() if values.ndim == 1 else q8_0(values)
    if not tensors:
        return head
    return head + bytes(-len(head) % ALIGNMENT) + data


def q8_0(values: NDArray[np.float32]) -> bytes:
    """Blocks of 32 values of a row: a scale as f16, then each value by it as a signed byte."""
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
    bytes_ = np.rint(blocks / scales.astype(np.float32)).astype(np.int8)
    return np.hstack([scales.view(np.int8).reshape(-1, 2), bytes_]).tobytes()


def byte_letters() -> list[str]:
    """The 256 letters by which byte-level vocabularies write bytes, in order of the bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b if b in plain else next(others)) for b in range(256)]


def bpe_vocab(
    special: Mapping[str, int],
    *,
    bos: str | None = None,
    eos: str | None = None,
    add_bos: bool = False,
    pre: str = "gpt-2",
    template: str | None = None,
    words: Sequence[str] = (),
    **extra: Any,
) -> dict[str, Any]:
    """Metadata of a byte-level vocabulary: 256 bytes, then `words`, then the special tokens."""
    words = ["ĊĊ", *words]  # one merge, since llama.cpp wants some
    tokens = [*byte_letters(), *words, *special]
    merges = ["Ċ Ċ"]
    return _vocab(
        "gpt2",
        tokens,
        [NORMAL] * (256 + len(words)) + list(special.values()),
        bos=bos,
        eos=eos,
        add_bos=add_bos,
        template=template,
        **{"tokenizer.ggml.pre": pre, "tokenizer.ggml.merges": merges, **extra},
    )


def spm_vocab(
    special: Mapping[str, int],
    words: Sequence[str],
    *,
    bos: str | None = "<s>",
    eos: str | None = "</s>",
    add_bos: bool = True,
    space_prefix: bool = True,
    template: str | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary: <unk>, specials, 256 byte tokens, then words."""
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    letters = ["▁", *(chr(c) for c in range(0x21, 0x7F))]
    tokens = ["<unk>", *special, *bytes_, *words, *letters]
    n_words = len(words) + len(letters)
    types = [UNKNOWN, *special.values(), *[BYTE] * 256, *[NORMAL] * n_words]
    scores = [0.0] * (len(tokens) - n_words) + [-float(i) for i in range(n_words)]
    return _vocab(
        "llama",
        tokens,
        types,
        bos=bos,
        eos=eos,
        add_bos=add_bos,
        template=template,
        **{
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_space_prefix": space_prefix,
            **extra,
        },
    )


def _vocab(
    model: str,
    tokens: list[str],
    types: list[int],
    *,
    bos: str | None,
    eos: str | None,
    add_bos: bool,
    template: str | None,
    **extra: Any,
) -> dict[str, Any]:
    kv: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.context_length": 4096,
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.add_bos_token": add_bos,
    }
    if bos is not None:
        kv["tokenizer.ggml.bos_token_id"] = tokens.index(bos)
    if eos is not None:
        kv["tokenizer.ggml.eos_token_id"] = tokens.index(eos)
    if template is not None:
        kv["tokenizer.chat_template"] = template
    return kv | extra


def write(path: Path, kv: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf(kv, tensors))
    return path
