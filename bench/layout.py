"""`python -m bench.layout`: a decode step with one pool of cells for all sequences, and with a
stream of cells for each. Both contexts live in this process and take turns at every step, so that
whatever else the machine does meets both. See docs/decisions/0013."""

from __future__ import annotations

import argparse
import time
from typing import Any

import llama_cpp as C
import numpy as np

from bench import machine
from bench.statistics import median
from bench.texts import starter_model

CASES = ((1, 512, 0), (4, 512, 0), (8, 128, 0), (8, 512, 0), (16, 128, 0), (8, 512, 448))
"""Sequences, tokens in each before the steps, how many of these all of them share."""


F16, BF16 = 1, 30
"""ggml's numbers; llama_cpp does not name the second."""


def context(model: Any, unified: bool, sequences: int, tokens: int, threads: int) -> Any:
    params = C.llama_context_default_params()
    each = -(-(tokens + 64) // 256) * 256
    params.n_ctx = each * sequences
    params.n_batch = params.n_ubatch = 512
    params.n_seq_max = sequences
    params.n_threads = params.n_threads_batch = threads
    params.kv_unified = unified
    params.flash_attn_type = C.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.type_k, params.type_v = F16, BF16
    params.no_perf = True
    made = C.llama_init_from_model(model, params)
    assert made, "llama.cpp made no context"
    return made


class Contestant:
    """Some sequences that decode together."""

    def __init__(self, model: Any, unified: bool, case: tuple[int, int, int], threads: int):
        self.sequences, tokens, shared = case
        self._context = context(model, unified, self.sequences, tokens, threads)
        self._batch = C.llama_batch_init(512, 0, 1)
        self._length = tokens
        self.seconds: list[float] = []
        random = np.random.default_rng(1)
        began = time.perf_counter()
        common = random.integers(100, 40_000, shared)
        for seq in range(self.sequences):
            known = shared if unified and seq else 0
            if known:
                memory = C.llama_get_memory(self._context)
                C.llama_memory_seq_cp(memory, 0, seq, 0, shared)
            own = random.integers(100, 40_000, tokens - shared)
            self._read(seq, [*common, *own][known:], known)
        self.read_s = time.perf_counter() - began

    def _read(self, seq: int, tokens: list[int], start: int) -> None:
        for at in range(0, len(tokens), 128):
            part = tokens[at : at + 128]
            self._decode([(int(token), start + at + n, seq) for n, token in enumerate(part)])

    def step(self) -> None:
        rows = [(1000 + seq, self._length, seq) for seq in range(self.sequences)]
        began = time.perf_counter()
        self._decode(rows)
        self.seconds.append(time.perf_counter() - began)
        self._length += 1

    def _decode(self, rows: list[tuple[int, int, int]]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for n, (token, position, seq) in enumerate(rows):
            batch.token[n], batch.pos[n] = token, position
            batch.n_seq_id[n], batch.seq_id[n][0] = 1, seq
            batch.logits[n] = n == len(rows) - 1
        assert C.llama_decode(self._context, batch) == 0
        C.llama_synchronize(self._context)

    def close(self) -> None:
        C.llama_batch_free(self._batch)
        C.llama_free(self._context)


def compare(model: Any, case: tuple[int, int, int], steps: int, threads: int) -> str:
    unified, separate = (Contestant(model, kind, case, threads) for kind in (True, False))
    for n in range(steps):
        for one in (unified, separate) if n % 2 else (separate, unified):
            one.step()
    ratios = [a / b for a, b in zip(unified.seconds, separate.seconds, strict=True)]
    sequences, tokens, shared = case
    line = (
        f"{sequences:9} {tokens:7} {shared:7} "
        f"{median(unified.seconds) * 1000:10.1f} {median(separate.seconds) * 1000:10.1f} "
        f"{median(ratios):7.2f} {unified.read_s / separate.read_s:13.2f}"
    )
    unified.close()
    separate.close()
    return line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.layout")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=machine.cores())
    given = parser.parse_args()
    quiet = C.llama_log_callback(lambda *_: None)  # kept: llama.cpp calls it to the end
    C.llama_log_set(quiet, None)
    C.llama_backend_init()
    params = C.llama_model_default_params()
    model = C.llama_model_load_from_file(str(starter_model()).encode(), params)
    print("sequences  tokens  shared    one pool   separate   ratio  ratio reading")
    for case in CASES:
        print(compare(model, case, given.steps, given.threads), flush=True)


if __name__ == "__main__":
    main()
