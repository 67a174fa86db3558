"""From what the user asked for and what model and machine are, to the engine's numbers. Pure.

Zero in a request means: choose. Each choice comes with one line that explains it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hobnob.server.engine.protocol import Configure

FALLBACK_CTX_TOKENS = 4096  # where the file names no window
CHOSEN_CTX_MAX_TOKENS = 16_384  # chosen windows stay below this; ask for more to get it
CELLS_MIN = 512
CELLS_STEP = 256  # llama.cpp pads to this
CPU_KV_BYTES_MAX = 512 * 1024**2  # of chosen cells: they are touched at the start
CPU_KV_SHARE = 8  # chosen cells take at most this part of the free memory,
CPU_WINDOW_SHARE = 4  # or this part where that holds no whole window
GPU_RESERVE_BYTES = 1024**3  # of video memory, for compute buffers and others
CACHED_SHARE = 2  # cached prefixes keep at most this part of the cells
CACHED_SEQS = 48  # sequence ids for cached prefixes,
CACHED_SEQS_UNCUTTABLE = 4  # or this where each costs a whole recurrent state
RUNNING_MAX = 200
SAVED_BYTES_MAX = 8 * 1024**3  # states in RAM, of runs that were put aside or are over
SAVED_SHARE = 4
DRAFT_KV_BYTES_MAX = 256 * 1024**2  # of a draft model's cells


@dataclass(frozen=True, slots=True)
class Facts:
    n_ctx_train: int
    cell_bytes: int
    memory_bytes: int  # RAM that is free now
    video_bytes: int  # video memory that is free once the weights are there; 0: no GPU
    cores: int
    can_cut: bool = True
    video_share: float = 1.0  # of each cell: the layers on the GPU have theirs there


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
    n_running = max(1, min(asked.n_seq_max, RUNNING_MAX))
    window = asked.n_ctx or min(facts.n_ctx_train or FALLBACK_CTX_TOKENS, CHOSEN_CTX_MAX_TOKENS)
    cells = asked.n_cells or _cells(facts, n_running, window, explain)
    cells = max(CELLS_MIN, -(-cells // CELLS_STEP) * CELLS_STEP)
    if window > cells:
        window = cells
        explain.append(f"window of {window} tokens: there are no more cells")
    elif not asked.n_ctx:
        explain.append(f"window of {window} tokens: {_why_window(facts, window)}")
    if not asked.n_threads:
        explain.append(f"{facts.cores} threads: the physical cores that this process may use")
    return Sizes(
        n_ctx=window,
        n_cells=cells,
        n_running=n_running,
        n_seqs=n_running + (CACHED_SEQS if facts.can_cut else CACHED_SEQS_UNCUTTABLE),
        n_ubatch=max(n_running, min(asked.n_ubatch, cells)),
        n_threads=asked.n_threads or facts.cores,
        cached_max=cells // CACHED_SHARE,
        saved_bytes_max=_saved_bytes_max(asked, facts),
        explain=explain,
    )


def draft_cells(asked: Configure, n_ctx_train: int, cell_bytes: int) -> tuple[int, int]:
    """Cells of a draft model, and the window of one sequence in them."""
    window = asked.n_ctx or min(n_ctx_train or FALLBACK_CTX_TOKENS, CHOSEN_CTX_MAX_TOKENS)
    affordable = DRAFT_KV_BYTES_MAX // max(1, cell_bytes)
    wanted = max(1, min(asked.n_seq_max, RUNNING_MAX)) * window
    cells = max(CELLS_MIN, min(wanted, affordable) // CELLS_STEP * CELLS_STEP)
    return cells, min(window, cells, n_ctx_train or window)


def _saved_bytes_max(asked: Configure, facts: Facts) -> int:
    if asked.snapshot_ram_bytes >= 0:
        return asked.snapshot_ram_bytes
    return min(facts.memory_bytes // SAVED_SHARE, SAVED_BYTES_MAX)


def _cells(facts: Facts, n_running: int, window: int, explain: list[str]) -> int:
    """Cells for all sequences at once, as far as the memory allows."""
    per_cell = max(1, facts.cell_bytes)
    wanted = n_running * window
    if facts.video_bytes:
        room = max(0, facts.video_bytes - GPU_RESERVE_BYTES)
        affordable = int(room / max(1, per_cell * facts.video_share))
        if facts.video_share < 1:
            elsewhere = per_cell * (1 - facts.video_share)
            affordable = min(affordable, int(facts.memory_bytes / CPU_WINDOW_SHARE / elsewhere))
        where = "video memory"
    else:
        budget = min(CPU_KV_BYTES_MAX, facts.memory_bytes // CPU_KV_SHARE)
        whole = min(window, facts.memory_bytes // CPU_WINDOW_SHARE // per_cell)
        affordable = max(budget // per_cell, whole)
        where = "memory"
    cells = max(CELLS_MIN, min(wanted, affordable) // CELLS_STEP * CELLS_STEP)
    why = "each can fill its window" if cells >= wanted else f"the {where} set aside for them"
    mib = cells * per_cell // 2**20
    explain.append(f"{cells} cells ({mib} MiB) for {n_running} sequences: {why}")
    return cells


def _why_window(facts: Facts, window: int) -> str:
    if not facts.n_ctx_train:
        return "the file names none"
    if window == facts.n_ctx_train:
        return "what the model was trained with"
    return f"less than the {facts.n_ctx_train} of its training, to save memory"
