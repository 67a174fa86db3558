"""From what the user asked for and what model and machine are, to the engine's numbers. Pure.

Zero in a request means: choose. Each choice comes with one line that explains it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hobnob.server.engine.protocol import Configure

FALLBACK_CTX_TOKENS = 4096  # where the file names no window
CHOSEN_CTX_MAX_TOKENS = 32_768  # chosen windows stay below this; ask for more to get it
CELLS_MIN = 512
KV_BYTES_MAX = 512 * 1024**2  # of chosen cells: they are touched at the start
KV_SHARE = 8  # chosen cells take at most this part of the memory that is free
CACHED_SHARE = 2  # cached prefixes keep at most this part of the cells
CACHED_SEQS = 48  # sequence ids for cached prefixes
SEQS_MAX = 200
SAVED_BYTES_MAX = 8 * 1024**3  # states in RAM of runs that were put aside
SAVED_SHARE = 4


@dataclass(frozen=True, slots=True)
class Facts:
    n_ctx_train: int
    cell_bytes: int
    memory_bytes: int  # free now
    cores: int


@dataclass(frozen=True, slots=True)
class Sizes:
    n_ctx: int
    n_cells: int
    n_running: int
    n_seqs: int
    n_ubatch: int
    n_threads: int
    cached_max: int
    saved_bytes_max: int
    explain: list[str]


def choose(asked: Configure, facts: Facts) -> Sizes:
    """The sizes to start with."""
    explain: list[str] = []
    n_running = max(1, min(asked.n_seq_max, SEQS_MAX - CACHED_SEQS))
    window = asked.n_ctx or min(
        facts.n_ctx_train or FALLBACK_CTX_TOKENS, asked.n_cells or CHOSEN_CTX_MAX_TOKENS
    )
    cells = asked.n_cells or _cells(asked, facts, n_running, window, explain)
    if window > cells:
        window = cells
        explain.append(f"window of {window} tokens: no more cells than that")
    elif not asked.n_ctx:
        explain.append(f"window of {window} tokens: {_why_window(facts, window)}")
    threads = asked.n_threads or facts.cores
    if not asked.n_threads:
        explain.append(f"{threads} threads: the physical cores that this process may use")
    return Sizes(
        n_ctx=window,
        n_cells=cells,
        n_running=n_running,
        n_seqs=n_running + CACHED_SEQS,
        n_ubatch=max(n_running, min(asked.n_ubatch, cells)),
        n_threads=threads,
        cached_max=cells // CACHED_SHARE,
        saved_bytes_max=min(facts.memory_bytes // SAVED_SHARE, SAVED_BYTES_MAX),
        explain=explain,
    )


def _cells(asked: Configure, facts: Facts, n_running: int, window: int, explain: list[str]) -> int:
    """Cells for all sequences at once, within the memory; at least for one whole window where
    half of the free memory allows."""
    wanted = n_running * window
    budget = min(KV_BYTES_MAX, facts.memory_bytes // KV_SHARE)
    affordable = budget // max(1, facts.cell_bytes)
    one = min(window, facts.memory_bytes // 2 // max(1, facts.cell_bytes))
    cells = max(CELLS_MIN, one, min(wanted, affordable))
    mib = cells * facts.cell_bytes // 2**20
    why = "every sequence can fill its window" if cells >= wanted else "the memory set aside"
    explain.append(f"{cells} cells ({mib} MiB) for {n_running} sequences: {why}")
    return cells // 256 * 256 if cells > CELLS_MIN else CELLS_MIN


def _why_window(facts: Facts, window: int) -> str:
    if not facts.n_ctx_train:
        return "the file names none"
    if window == facts.n_ctx_train:
        return "what the model was trained with"
    return f"less than the {facts.n_ctx_train} of its training, to save memory"
