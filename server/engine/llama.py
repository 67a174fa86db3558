"""The gate to llama.cpp: the only module that imports `llama_cpp`.

Every precondition of a C call is checked here in Python first, because a failed assertion in C
ends the process; return codes become typed results. It knows nothing of runs, texts or policies.
A `Vocab` may be used from any thread; everything else belongs to the thread that made it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import llama_cpp._ggml as _ggml
import llama_cpp.llama_cpp as C
import numpy as np

from hobnob.server.engine import devices
from hobnob.server.engine.batch import Batch
from hobnob.server.engine.complaints import Complaints
from hobnob.server.engine.model import Chunk, Decoded, Logits, Outcome, State


class LlamaError(Exception):
    """llama.cpp refused; the message is one sentence for a person."""


class LoadError(LlamaError):
    """A file cannot be loaded as a model, or no context can be made from it."""


LOG = Complaints()
_hear = C.llama_log_callback(LOG.hear)  # C keeps a pointer to it
C.llama_log_set(_hear, ctypes.c_void_p(0))
_backend = threading.Lock()
C.llama_backend_init()


def _load_model(path: Path, params: Any) -> Any:
    if not path.is_file():
        raise LoadError(f"There is no file {path}.")
    with _backend:  # the log is shared, and who complained must be known
        LOG.clear()
        model = C.llama_model_load_from_file(os.fsencode(path), params)
        if not model:
            raise LoadError(LOG.explain("llama.cpp cannot read the file as a model"))
    return model


class Vocab:
    """The vocabulary of a model file: text to token ids and back. Any thread."""

    def __init__(self, model: Any, *, owns: bool) -> None:
        self._model = model
        self._owns = owns
        self._vocab = C.llama_model_get_vocab(model)
        self.n_vocab = int(C.llama_vocab_n_tokens(self._vocab))
        self.bos = int(C.llama_vocab_bos(self._vocab))  # -1: there is none
        self.eos = int(C.llama_vocab_eos(self._vocab))
        self.add_bos = bool(C.llama_vocab_get_add_bos(self._vocab))
        self.add_eos = bool(C.llama_vocab_get_add_eos(self._vocab))
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def open(cls, path: Path) -> Self:
        """Loads the vocabulary alone (a fraction of a second). Raises LoadError."""
        params = C.llama_model_default_params()
        params.vocab_only = True
        return cls(_load_model(path, params), owns=True)

    def close(self) -> None:
        """Frees what `open` took; safe to call twice."""
        if self._owns and self._model:
            C.llama_model_free(self._model)
        self._model = self._vocab = None

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Ids of the text, no BOS or EOS added. `special`: control tokens' text becomes them."""
        data = text.encode("utf-8")
        room = len(data) + 8  # a token is at least one byte, but for an added space prefix
        if room > 2**31 - 1:
            raise LlamaError("The text is too long to tokenise.")
        buffer = (C.llama_token * room)()
        n = C.llama_tokenize(self._vocab, data, len(data), buffer, room, False, special)
        if n < 0 and -n <= 2 * room:
            buffer = (C.llama_token * -n)()
            n = C.llama_tokenize(self._vocab, data, len(data), buffer, -n, False, special)
        if n < 0:
            raise LlamaError("The text cannot be tokenised.")
        return list(buffer[:n])

    def piece(self, token: int, special: bool = False) -> bytes:
        """The bytes of one token; those of a control token only when `special`."""
        if special:
            return self._piece(token, True)
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._piece(token, False)
        return known

    def _piece(self, token: int, special: bool) -> bytes:
        self._check(token)
        size = 64
        buffer = ctypes.create_string_buffer(size)
        n = C.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = C.llama_token_to_piece(self._vocab, token, buffer, -n, 0, special)
        return buffer.raw[: max(0, n)]

    def text(self, token: int) -> str:
        """The token as the file spells it (control tokens too; others in byte-level spelling)."""
        self._check(token)
        raw: bytes | None = C.llama_vocab_get_text(self._vocab, token)
        return (raw or b"").decode("utf-8", "replace")

    def attr(self, token: int) -> int:
        """The LLAMA_TOKEN_ATTR bits of llama.h."""
        self._check(token)
        return int(C.llama_vocab_get_attr(self._vocab, token))

    def is_control(self, token: int) -> bool:
        self._check(token)
        return bool(C.llama_vocab_is_control(self._vocab, token))

    def is_eog(self, token: int) -> bool:
        self._check(token)
        return bool(C.llama_vocab_is_eog(self._vocab, token))

    def eog_tokens(self) -> list[int]:
        """All tokens that end a generation."""
        return [id for id in range(self.n_vocab) if C.llama_vocab_is_eog(self._vocab, id)]

    def special_tokens(self) -> dict[str, int]:
        """Text to id of every token that only a template may write (control or user-defined)."""
        wanted = C.LLAMA_TOKEN_ATTR_CONTROL | C.LLAMA_TOKEN_ATTR_USER_DEFINED
        found: dict[str, int] = {}
        for id in range(self.n_vocab):
            if C.llama_vocab_get_attr(self._vocab, id) & wanted:
                found[self._piece(id, True).decode("utf-8", "replace")] = id
        found.pop("", None)
        return found

    def meta(self, key: str) -> str | None:
        """A value of the file's header as text; None when it has no such key."""
        name = key.encode("utf-8")
        n = C.llama_model_meta_val_str(self._model, name, None, 0)
        if n < 0:
            return None
        buffer = ctypes.create_string_buffer(n + 1)
        C.llama_model_meta_val_str(self._model, name, buffer, n + 1)
        return buffer.raw[:n].decode("utf-8", "replace")

    @property
    def n_ctx_train(self) -> int:
        """The window that the model was trained with, tokens; 0 when the file does not say."""
        known = int(C.llama_model_n_ctx_train(self._model))  # 0 in a vocabulary-only load
        if known:
            return known
        said = self.meta(f"{self.meta('general.architecture')}.context_length") or ""
        return int(said) if said.isdecimal() else 0

    def digest(self) -> str:
        """A hash of all pieces in order: equal when two files tokenise into the same ids."""
        hashed = hashlib.blake2b(digest_size=16)
        for id in range(self.n_vocab):
            piece = C.llama_vocab_get_text(self._vocab, id) or b""
            hashed.update(len(piece).to_bytes(4, "little") + piece)
            hashed.update(int(C.llama_vocab_get_attr(self._vocab, id)).to_bytes(4, "little"))
        return hashed.hexdigest()

    def _check(self, token: int) -> None:
        if not 0 <= token < self.n_vocab:  # llama.cpp throws std::out_of_range, ending the process
            raise LlamaError(f"There is no token {token} in a vocabulary of {self.n_vocab}.")


Progress = Callable[[float], None]
"""Told 0..1 while weights load; it must not raise."""

_TYPE_BF16 = 30  # GGML_TYPE_BF16 of ggml.h, which the bindings leave out
_KV_TYPES = {  # keys, values
    "f16": (C.GGML_TYPE_F16, C.GGML_TYPE_F16),
    "f16-bf16": (C.GGML_TYPE_F16, _TYPE_BF16),
    "q8_0": (C.GGML_TYPE_Q8_0, C.GGML_TYPE_Q8_0),
}
KV_BYTES = {"f16": 2.0, "f16-bf16": 2.0, "q8_0": 34 / 32}
_FLASH = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type
_SEQ_LIMIT = 256  # LLAMA_MAX_SEQ
_SPARE_SEQS = 2  # that callers cannot use
_ALONE_THREADS = 2  # up to so many, one thread alone costs less than a second row
PAD_CELLS = 1
"""That a single exact row may take for a moment beside its own."""
_SPLIT_CELLS = 256  # up to here a single row is computed like several, whatever the threads


@dataclass(frozen=True, slots=True)
class Shape:
    """What a context is made with."""

    n_cells: int
    n_seqs: int  # sequence ids for callers: 0 .. n_seqs - 1
    n_batch: int  # most rows of a step; also the physical batch, so a step is one pass
    n_outputs: int  # most rows with logits in a step
    n_threads: int
    kv_type: str = "f16"
    flash_attn: str = "auto"
    ordered: bool = False  # see model.Model


class Weights:
    """A loaded model file. Freed by `close`, after the contexts that use it."""

    def __init__(self, path: Path, n_gpu_layers: int, progress: Progress) -> None:
        params = C.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.use_extra_bufts = amx_is_broken() is None

        def tell(done: float, _user: object) -> bool:
            progress(done)
            return True  # go on

        told = C.llama_progress_callback(tell)  # must outlive the load
        params.progress_callback = told
        self.handle = _load_model(path, params)
        self.vocab = Vocab(self.handle, owns=False)
        self.n_layer = int(C.llama_model_n_layer(self.handle))
        self.size_bytes = int(C.llama_model_size(self.handle))
        self.is_recurrent = bool(C.llama_model_is_recurrent(self.handle))
        self.is_hybrid = bool(C.llama_model_is_hybrid(self.handle))
        self.n_swa = int(C.llama_model_n_swa(self.handle))
        self.arch = self.vocab.meta("general.architecture") or ""
        self.has_joint_values = self.vocab.meta(f"{self.arch}.attention.kv_lora_rank") is not None
        """Latent attention: values are a part of the keys, and have their type."""
        if not C.llama_model_has_decoder(self.handle) or C.llama_model_has_encoder(self.handle):
            self.close()
            raise LoadError("The model is not a decoder, so it cannot chat.")

    def close(self) -> None:
        if self.handle:
            C.llama_model_free(self.handle)
        self.handle = None

    def cell_bytes(self, kv_type: str) -> int:
        """Bytes of one KV cell over all layers, estimated from the header."""
        heads_kv = int(C.llama_model_n_head_kv(self.handle))
        head = int(C.llama_model_n_embd(self.handle)) // max(1, C.llama_model_n_head(self.handle))
        key, value = (
            int(said) if (said := self.vocab.meta(f"{self.arch}.attention.{name}_length")) else head
            for name in ("key", "value")
        )
        return int(self.n_layer * heads_kv * (key + value) * KV_BYTES[kv_type])


class Model:
    """A context over loaded weights; see model.Model for the contract. One thread owns it.

    llama.cpp takes the first free cells from where it last stopped. An ordered model frees no
    cell below that: freed ones go to a sequence that nobody reads, until all is cleared.
    """

    def __init__(self, weights: Weights, shape: Shape) -> None:
        if not 1 <= shape.n_seqs <= _SEQ_LIMIT - _SPARE_SEQS:
            raise LlamaError(f"{shape.n_seqs} sequences are more than llama.cpp can keep.")
        self._weights = weights
        self._scratch = shape.n_seqs  # one id more, through which saved tails come and go
        self._plug = shape.n_seqs + 1  # and one that holds freed cells
        outputs = max(shape.n_outputs, shape.n_seqs + _SPARE_SEQS)  # fewer is an assertion
        self._context = C.llama_init_from_model(weights.handle, _context_params(shape, outputs))
        if not self._context:
            raise LoadError(LOG.explain("llama.cpp cannot make a context for the model"))
        self._memory = C.llama_get_memory(self._context)
        if not self._memory:
            raise LoadError("The model keeps no memory of a sequence, so it cannot chat.")
        self.n_cells = int(C.llama_n_ctx(self._context))
        self.n_vocab = weights.vocab.n_vocab
        self.can_cut = not (weights.is_recurrent or weights.is_hybrid)
        self.ordered = shape.ordered and self.can_cut and not weights.n_swa
        self.top = 0
        self._n_batch = min(int(C.llama_n_batch(self._context)), shape.n_batch)
        self.n_outputs = outputs
        self._threads = 0
        window = weights.vocab.meta(f"{weights.arch}.rope.scaling.original_context_length") or ""
        stretched = window.isdecimal() and self.n_cells > int(window)  # positions turn differently
        self.traits = (shape.kv_type, shape.flash_attn, stretched, system_info())
        """What the bits of its cells depend on, beside the weights and the layers' device."""
        self._splits = shape.kv_type == "f16" or weights.has_joint_values
        self._length = [0] * shape.n_seqs
        self._batch = Batch(C.llama_batch(), self._n_batch + 1)
        self._no_logits: Logits = np.empty((0, self.n_vocab), np.float32)

    def close(self) -> None:
        if self._context:
            C.llama_free(self._context)
        self._context = self._memory = None

    def decode(self, chunks: Sequence[Chunk], threads: int, *, exact: bool = False) -> Decoded:
        n_outputs = self._check(chunks)
        if n_outputs is None:
            return Decoded(Outcome.REFUSED, self._no_logits, 0.0)
        padded = False
        if exact and threads > 1 and self._is_split(chunks):
            padded = threads > _ALONE_THREADS
            threads = threads if padded else 1
        if threads != self._threads:
            C.llama_set_n_threads(self._context, threads, threads)
            self._threads = threads
        if padded:
            chunks = [*chunks, Chunk(self._scratch, 0, [0])]
        batch = self._batch.fill(chunks)
        began = time.perf_counter()
        code = C.llama_decode(self._context, batch)
        C.llama_synchronize(self._context)
        seconds = time.perf_counter() - began
        if padded:
            C.llama_memory_seq_rm(self._memory, self._scratch, -1, -1)
            chunks = chunks[:-1]
        outcome = _outcome(code)
        if outcome is not Outcome.OK:
            for chunk in chunks:
                self._length[chunk.seq] = self.length(chunk.seq)
            if outcome is Outcome.FAILED:  # so many may have been filled, and are not again
                self.top += sum(len(chunk.tokens) for chunk in chunks)
            return Decoded(outcome, self._no_logits, seconds)
        for chunk in chunks:
            self._length[chunk.seq] += len(chunk.tokens)
            self.top += len(chunk.tokens)
        return Decoded(outcome, self._rows(n_outputs), seconds)

    def _is_split(self, chunks: Sequence[Chunk]) -> bool:
        """Whether the CPU's flash attention would divide the one row's cells among threads: then
        the bits depend on where the cells lie. It only does so where keys and values have one
        type, and not with one thread or a second row."""
        alone = len(chunks) == 1 and len(chunks[0].tokens) == 1
        return alone and self._splits and self.top >= _SPLIT_CELLS

    def length(self, seq: int) -> int:
        return int(C.llama_memory_seq_pos_max(self._memory, self._checked(seq))) + 1

    def cut(self, seq: int, length: int) -> bool:
        if length < 0:
            raise LlamaError("A sequence cannot be shorter than nothing.")
        if length >= self._length[self._checked(seq)]:
            return True
        if length and not self.can_cut:
            return False
        if self.ordered:
            C.llama_memory_seq_cp(self._memory, seq, self._plug, length, -1)
        if not C.llama_memory_seq_rm(self._memory, seq, length if length else -1, -1):
            return False
        self._length[seq] = length
        return True

    def copy(self, source: int, target: int, length: int) -> None:
        whole = self._length[self._checked(source)]
        if source == target or self._length[self._checked(target)]:
            raise LlamaError("A copy needs an empty target sequence.")
        if not 0 < length <= whole or (length < whole and not self.can_cut):
            raise LlamaError(f"{length} of {whole} tokens cannot be copied.")
        C.llama_memory_seq_cp(self._memory, source, target, -1, -1 if length == whole else length)
        self._length[target] = length

    def reaches(self, seq: int, length: int) -> bool:
        window = self._weights.n_swa
        if not window:
            return True
        first = int(C.llama_memory_seq_pos_min(self._memory, self._checked(seq)))
        return first <= max(0, length - window)

    def clear(self) -> None:
        C.llama_memory_clear(self._memory, False)
        self._length = [0] * len(self._length)
        self.top = 0

    def save(self, seq: int, start: int, end: int | None = None) -> State | None:
        length = self._length[self._checked(seq)]
        end = length if end is None else end
        part = start > 0 or end < length
        if not 0 <= start < end <= length or (part and not self.can_cut):
            return None
        taken = seq
        if part:  # metadata only: the scratch id names the stretch's cells for a moment
            C.llama_memory_seq_cp(self._memory, seq, self._scratch, start, end)
            taken = self._scratch
        size = C.llama_state_seq_get_size_ext(self._context, taken, 0)
        state: State = np.empty(size, np.uint8)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        written = C.llama_state_seq_get_data_ext(self._context, pointer, size, taken, 0)
        if part:
            C.llama_memory_seq_rm(self._memory, self._scratch, -1, -1)
        return state if written == size else None

    def restore(self, seq: int, state: State) -> bool:
        self._checked(seq)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        read = C.llama_state_seq_set_data_ext(self._context, pointer, state.size, self._scratch, 0)
        first = int(C.llama_memory_seq_pos_min(self._memory, self._scratch))
        fits = read == state.size and first == self._length[seq]
        if fits:
            C.llama_memory_seq_cp(self._memory, self._scratch, seq, -1, -1)
            before, self._length[seq] = self._length[seq], self.length(seq)
            self.top += self._length[seq] - before
        C.llama_memory_seq_rm(self._memory, self._scratch, -1, -1)
        return fits

    def _checked(self, seq: int) -> int:
        if not 0 <= seq < self._scratch:
            raise LlamaError(f"There is no sequence {seq}.")
        return seq

    def _check(self, chunks: Sequence[Chunk]) -> int | None:
        """The number of outputs; None when llama.cpp would refuse the batch or end the process."""
        rows = outputs = 0
        seen: set[int] = set()
        for chunk in chunks:
            n = len(chunk.tokens)
            if not n or chunk.seq in seen or not 0 <= chunk.seq < self._scratch:
                return None
            if chunk.start != self._length[chunk.seq] or not 0 <= chunk.outputs <= n:
                return None
            if min(chunk.tokens) < 0 or max(chunk.tokens) >= self.n_vocab:
                return None
            seen.add(chunk.seq)
            rows += n
            outputs += chunk.outputs
        return outputs if 0 < rows <= self._n_batch and outputs <= self.n_outputs else None

    def _rows(self, n: int) -> Logits:
        if not n:
            return self._no_logits
        pointer = C.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, shape=(n, self.n_vocab))


def _context_params(shape: Shape, n_outputs: int) -> Any:
    params = C.llama_context_default_params()
    params.n_ctx = shape.n_cells
    params.n_batch = params.n_ubatch = shape.n_batch
    params.n_seq_max = shape.n_seqs + _SPARE_SEQS
    params.n_outputs_max = min(n_outputs, shape.n_batch)
    params.n_threads = params.n_threads_batch = shape.n_threads
    params.kv_unified = True
    params.swa_full = True  # prefixes of sliding-window models can then be shared like others
    params.no_perf = True
    params.flash_attn_type = _FLASH[shape.flash_attn]
    params.type_k, params.type_v = _KV_TYPES[shape.kv_type]
    return params


def _outcome(code: int) -> Outcome:
    if code == 0:
        return Outcome.OK
    if code == 1:
        return Outcome.NO_ROOM
    return Outcome.REFUSED if code == -1 else Outcome.FAILED


def supports_gpu() -> bool:
    """Whether this build of llama.cpp can put layers on a device."""
    return bool(C.llama_supports_gpu_offload())


def gpus() -> list[devices.Device]:
    """The GPUs, with their memory as it is now."""
    return devices.gpus(_ggml.libggml)


def system_info() -> bytes:
    """What llama.cpp found of the machine: its kernels, and so the last bits, depend on it."""
    return C.llama_print_system_info() or b""


def amx_is_broken() -> str | None:
    """See devices.broken_amx. Without the extra buffer types ggml takes its other kernels."""
    return devices.broken_amx(system_info(), Path(C.__file__).parent / "lib")
