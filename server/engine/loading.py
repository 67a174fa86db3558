"""From a Configure to a step loop with a loaded model, every zero resolved and explained."""

from __future__ import annotations

import functools
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hobnob.server.engine import (
    exactness,
    fingerprint,
    fit,
    gguf,
    llama,
    machine,
    restoring,
    sizing,
    snapshot_files,
)
from hobnob.server.engine.breakers import BreakerFinder
from hobnob.server.engine.cells import Cells
from hobnob.server.engine.draft_model import DraftModel
from hobnob.server.engine.memory import Memory
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.protocol import Configure, Measured, Ready, Stepped
from hobnob.server.engine.restoring import Restoring
from hobnob.server.engine.snapshot_files import Disk
from hobnob.server.engine.snapshots import Snapshots
from hobnob.server.engine.speculation import Speculation
from hobnob.server.engine.steps import Limits, Steps, Words
from hobnob.server.engine.text import Tokenizer
from hobnob.server.engine.threads import Threads
from hobnob.server.engine.video import VideoMemory

if TYPE_CHECKING:
    from hobnob.server.engine.constraint import Constraint, Constraints

ALL_LAYERS = 999
SMALLEST_SHARE_LAYERS = 4  # fewer layers on a GPU are not worth its trouble
GPU_TARGET_GAP_SECONDS = 0.060
OUTPUTS_MIN = 64  # rows with logits in one step; each takes a vocabulary of floats
DRAFT_ROWS = 512  # of one decode of the draft model
SPARE_SHARE = 2  # of the memory that is available, taken while all cells are moved
FREE_DISK_SHARE = 10  # snapshots take at most one part in so many of what is free

log = logging.getLogger("hobnob.engine")


def load(
    asked: Configure,
    emit: Callable[[Stepped], None],
    progress: Callable[[float], None],
    wake: Callable[[], None],
) -> tuple[Steps, Ready]:
    """Loads weights and context. Raises llama.LoadError. `wake` is called, in another thread,
    when the disk has news for the steps."""
    llama.LOG.to_stderr = True
    disk = _disk(asked, wake)  # looks through its folder meanwhile
    draft = _draft(asked)  # first: the large model takes what memory is left
    try:
        weights, model, sizes, layers, explain = _fitting(asked, progress)
    except (llama.LlamaError, MemoryError):
        draft.close()
        raise
    device = llama.gpus()[0].name if layers else "cpu"
    threads = _threads(asked, sizes.n_threads, on_gpu=layers > 0)
    measured = _measured(asked, model, (device, layers), sizes, threads)
    target_s = asked.target_gap_ms / 1000 or (GPU_TARGET_GAP_SECONDS if layers else 0.0)
    pace = Pace(sizes.n_ubatch, target_s)
    pace.observe(0, measured.rows, measured.seconds)
    model.ordered = model.ordered and measured.exact_rows > 0
    model.clear()
    padding = llama.PAD_CELLS if measured.exact_rows else 0
    cells = Cells(model.n_cells - padding, sizes.n_seqs, can_cut=model.can_cut)
    of = fingerprint.of(Path(asked.model), (*model.traits, device, layers, measured.exact_rows))
    memory = Memory(
        model,
        cells,
        cached_max=sizes.cached_max,
        saved_bytes_max=sizes.saved_bytes_max,
        snapshots=_snapshots(asked, weights, sizes, disk, of),
        restoring=Restoring(pace, measured.stretch_s, measured.token_s),
        spare_memory=lambda: machine.memory_available() // SPARE_SHARE,
    )
    steps = Steps(
        model,
        memory,
        _words(weights.vocab),
        Limits(sizes.n_ctx, sizes.n_running, sizes.n_ubatch, measured.exact_rows, model.n_outputs),
        pace=pace,
        threads=threads,
        clock=time.perf_counter,
        emit=emit,
        speculation=_speculation(asked, weights, pace, draft, threads),
        video=VideoMemory(llama.gpus if layers else list, time.perf_counter),
    )
    ready = Ready(
        n_ctx=sizes.n_ctx,
        n_cells=model.n_cells,
        n_seq_max=sizes.n_running,
        n_ubatch=sizes.n_ubatch,
        n_threads=sizes.n_threads,
        gpu_layers=layers,
        device=device,
        exact_rows=measured.exact_rows,
        explain=[*explain, *sizes.explain, *draft.explain],
        measured=measured,
    )
    return steps, ready


def _measured(
    asked: Configure,
    model: llama.Model,
    place: tuple[str, int],
    sizes: sizing.Sizes,
    threads: Threads,
) -> Measured:
    """By the engine before, if it ran on the same: measuring takes longer than loading."""
    parts = (*model.traits, *place, sizes.n_ubatch, sizes.n_threads)
    of = fingerprint.of(Path(asked.model), parts)
    if asked.measured is not None and asked.measured.of == of:
        return asked.measured
    chosen = threads.choose(time.perf_counter())
    probed = exactness.probe(model, model.n_vocab, sizes.n_ubatch, chosen)
    computed = max((0, 1), key=model.length)  # by the probe
    restored = restoring.measure(model, computed, time.perf_counter)
    return Measured(of, probed.exact_rows, *probed.step, *restored)


def code(asked: Configure) -> str:
    """The error code for a model that cannot be loaded."""
    return "model_unavailable" if Path(asked.model).is_file() else "model_not_found"


_Loaded = tuple[llama.Weights, llama.Model, sizing.Sizes, int, list[str]]


def _fitting(asked: Configure, progress: Callable[[float], None]) -> _Loaded:
    """Weights and context with as many layers on the GPU as fit, and what was chosen."""
    broken = llama.amx_is_broken()
    explain = [f"no AMX kernels: {broken} compiled them wrongly"] if broken else []
    if not llama.supports_gpu() or not llama.gpus():
        if asked.n_gpu_layers > 0:
            explain.append("no layers on a GPU: llama.cpp was built without one, or finds none")
        return *_attempt(asked, 0, progress), 0, explain
    if asked.n_gpu_layers >= 0:
        return *_attempt(asked, asked.n_gpu_layers, progress), asked.n_gpu_layers, explain
    layers, why = _estimate(asked)
    explain.append(why)
    tried = False
    while True:
        try:
            weights, model, sizes = _attempt(asked, layers, progress)
        except llama.LoadError:
            if not layers:
                raise
            layers = layers * 3 // 4 if layers > SMALLEST_SHARE_LAYERS else 0
            tried = True
            continue
        on_gpu = min(layers, weights.n_layer + 1)
        if tried:
            explain.append(
                f"{on_gpu} of {weights.n_layer + 1} layers on the GPU: more did not load"
            )
        return weights, model, sizes, on_gpu, explain


def _estimate(asked: Configure) -> tuple[int, str]:
    """The layers to try first, and why."""
    untold = "as many layers on the GPU as load: the file's header does not tell their sizes"
    try:
        header = gguf.read(Path(asked.model))
    except gguf.GGUFError:  # llama.cpp has the last word about the file
        return ALL_LAYERS, untold
    need = fit.Need.of(header, llama.KV_BYTES[_kv_type(asked, on_gpu=True)])
    if need is None:
        n_layer = header.number(f"{header.architecture}.block_count")
        return ALL_LAYERS if n_layer is None else n_layer + 1, untold
    free = [gpu.free_bytes for gpu in llama.gpus()]
    chosen = fit.choose(need, free, cells=asked.n_cells or asked.n_ctx, n_ubatch=asked.n_ubatch)
    return chosen.n_layers, chosen.explain


def _attempt(
    asked: Configure, layers: int, progress: Callable[[float], None]
) -> tuple[llama.Weights, llama.Model, sizing.Sizes]:
    weights = llama.Weights(Path(asked.model), layers, progress)
    kv_type = _kv_type(asked, on_gpu=layers > 0)
    try:
        sizes = sizing.choose(asked, _facts(asked, weights, kv_type, layers))
        return weights, llama.Model(weights, _shape(asked, sizes, kv_type)), sizes
    except llama.LlamaError:
        weights.close()
        raise


def _kv_type(asked: Configure, *, on_gpu: bool) -> str:
    """On CPUs values of another type than the keys: faster, and with the same bits in steps of
    any size (docs/decisions/0007)."""
    if asked.kv_type != "auto":
        return asked.kv_type
    return "f16" if on_gpu or asked.flash_attn == "off" else "f16-bf16"


def _shape(asked: Configure, sizes: sizing.Sizes, kv_type: str) -> llama.Shape:
    return llama.Shape(
        n_cells=sizes.n_cells,
        n_seqs=sizes.n_seqs,
        n_batch=sizes.n_ubatch,
        n_outputs=min(sizes.n_ubatch, max(OUTPUTS_MIN, sizes.n_running)),
        n_threads=sizes.n_threads,
        kv_type=kv_type,
        flash_attn=asked.flash_attn,
        ordered=True,
    )


def _facts(asked: Configure, weights: llama.Weights, kv_type: str, layers: int) -> sizing.Facts:
    return sizing.Facts(
        n_ctx_train=weights.vocab.n_ctx_train,
        cell_bytes=weights.cell_bytes(kv_type),
        memory_bytes=machine.memory_available(),
        video_bytes=sum(gpu.free_bytes for gpu in llama.gpus()) if layers else 0,
        cores=machine.physical_cores(),
        can_cut=not (weights.is_recurrent or weights.is_hybrid),
        # the output counts as a layer and has no cells
        video_share=min(1.0, max(0, layers - 1) / max(1, weights.n_layer)),
    )


def _threads(asked: Configure, most: int, *, on_gpu: bool) -> Threads:
    """A number that the user asked for is kept; on a GPU the CPU's threads hardly matter."""
    if asked.n_threads or on_gpu:
        return Threads(most)
    return Threads(most, machine.OtherPrograms())


def _speculation(
    asked: Configure, weights: llama.Weights, pace: Pace, draft: _Draft, threads: Threads
) -> Speculation | None:
    """Drafts that prove wrong are cut off: not where that is impossible, or a window slides."""
    eog = weights.vocab.eog_tokens()
    if asked.speculation == "off":
        return None
    if weights.is_recurrent or weights.is_hybrid or weights.n_swa:
        draft.close("this model's cells cannot be cut")
        return None
    return Speculation(pace, eog, _draft_source(draft, eog, threads))


@dataclass(slots=True)
class _Draft:
    """A draft model's weights and context, or why there are none."""

    weights: llama.Weights | None = None
    model: llama.Model | None = None
    n_seqs: int = 0
    window: int = 0
    explain: list[str] = field(default_factory=list)

    def close(self, why: str = "") -> None:
        if self.model is not None:
            self.model.close()
        if self.weights is not None:
            self.weights.close()
        if self.weights is not None and why:
            self.explain = [_no_draft(why)]
        self.weights = self.model = None


def _no_draft(why: str) -> str:
    return f"no draft model: {why.rstrip('.')}"


def _draft(asked: Configure) -> _Draft:
    """Costs no more than drafts where it cannot be used: the engine starts without it."""
    if not asked.draft_model:
        return _Draft()
    if asked.speculation == "off":
        return _Draft(explain=[_no_draft("speculation is off")])
    path, made = Path(asked.draft_model), _Draft()
    on_gpu = llama.supports_gpu() and bool(llama.gpus()) and asked.n_gpu_layers != 0
    try:
        if _digest(path) != _digest(Path(asked.model)):
            return _Draft(explain=[_no_draft(f"{path.name} has another vocabulary")])
        made.weights = llama.Weights(path, ALL_LAYERS if on_gpu else 0, lambda _: None)
        if made.weights.is_recurrent or made.weights.is_hybrid:
            made.close(f"the cells of {path.name} cannot be cut")
            return made
        kv_type = _kv_type(asked, on_gpu=on_gpu)
        vocab, cell_bytes = made.weights.vocab, made.weights.cell_bytes(kv_type)
        cells, made.window = sizing.draft_cells(asked, vocab.n_ctx_train, cell_bytes)
        made.n_seqs = max(1, min(asked.n_seq_max, sizing.RUNNING_MAX))
        shape = llama.Shape(
            n_cells=cells,
            n_seqs=made.n_seqs,
            n_batch=DRAFT_ROWS,
            n_outputs=made.n_seqs,
            n_threads=asked.n_threads or machine.physical_cores(),
            kv_type=kv_type,
            flash_attn=asked.flash_attn,
        )
        made.model = llama.Model(made.weights, shape)
    except llama.LlamaError as error:
        made.close()
        made.explain = [_no_draft(str(error))]
        return made
    made.explain = [f"drafts by {path.name} too, in {made.model.n_cells} cells of its own"]
    return made


def _digest(path: Path) -> str:
    vocab = llama.Vocab.open(path)
    try:
        return vocab.digest()
    finally:
        vocab.close()


def _draft_source(draft: _Draft, eog: Sequence[int], threads: Threads) -> DraftModel | None:
    if draft.model is None:
        return None
    source = DraftModel(
        draft.model,
        n_seqs=draft.n_seqs,
        n_cells=draft.model.n_cells,
        window=draft.window,
        rows=DRAFT_ROWS,
        eog=eog,
        threads=threads,
        clock=time.perf_counter,
    )
    source.measure()
    return source


def _disk(asked: Configure, wake: Callable[[], None]) -> Disk | None:
    """None where nothing is to be kept, or the folder cannot be used: that costs no more than
    reading prompts again. What is there is looked through even if nothing is to be kept on."""
    folder = Path(asked.snapshot_folder)
    if not asked.snapshot_folder or (not asked.snapshot_disk_bytes and not folder.is_dir()):
        return None
    try:
        snapshot_files.make_folder(folder)
    except OSError as error:
        log.warning("conversations are not kept on disk: %s", error)
        return None
    return Disk(folder, wake)


def _snapshots(
    asked: Configure, weights: llama.Weights, sizes: sizing.Sizes, disk: Disk | None, of: bytes
) -> Snapshots:
    """None of a model whose cells cannot be cut, or whose window slides: it reads its prompts."""
    if weights.is_recurrent or weights.is_hybrid or weights.n_swa:
        return Snapshots(of, ram_max=0)
    disk_max = 0
    if disk is not None:
        free = shutil.disk_usage(asked.snapshot_folder).free
        ours = sum(entry.file_size for entry in disk.found())
        disk_max = min(asked.snapshot_disk_bytes, (free + ours) // FREE_DISK_SHARE)
    return Snapshots(of, ram_max=sizes.saved_bytes_max, disk_max=disk_max, files=disk)


def _words(vocab: llama.Vocab) -> Words:
    spelled = functools.partial(vocab.piece, special=True)
    return Words(
        n_vocab=vocab.n_vocab,
        eog=vocab.eog_tokens(),
        piece=vocab.piece,
        spelled=spelled,
        breakers=BreakerFinder(spelled, vocab.tokenize).find,
        constraint=_constraints(vocab, spelled),
    )


def _constraints(
    vocab: llama.Vocab, spelled: Callable[[int], bytes]
) -> Callable[[Mapping[str, Any], Sequence[int]], Constraint]:
    """Its library is imported, and the vocabulary read, when the first reply is held to a form."""

    @functools.cache
    def made() -> Constraints:
        from hobnob.server.engine.constraint import Constraints

        inside = functools.partial(Tokenizer(vocab).ids, inside=True)
        eog = vocab.eog_tokens()
        return Constraints(vocab.n_vocab, eog, spelled, vocab.is_control, inside)

    return lambda form, emitted: made().of(form, emitted)
