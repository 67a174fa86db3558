"""What finished runs leave behind is given to those that begin alike, and never anything wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from fake_files import FakeFiles
from fake_model import FakeModel

from hobnob.server.engine import fingerprint
from hobnob.server.engine import snapshot_files as files
from hobnob.server.engine.cells import Cells
from hobnob.server.engine.keeping import PATIENCE_SECONDS, STRETCHES_AT_ONCE
from hobnob.server.engine.llama import Model, Shape, Weights
from hobnob.server.engine.memory import Memory
from hobnob.server.engine.model import Chunk, Logits
from hobnob.server.engine.model import Model as AnyModel
from hobnob.server.engine.pacing import Pace
from hobnob.server.engine.restoring import Restoring
from hobnob.server.engine.run import Run
from hobnob.server.engine.snapshots import SEGMENT_TOKENS, Files, Snapshots

PRINT = b"model"


def memory(
    model: AnyModel,
    cells: int,
    *,
    ram: int = 10**7,
    disk: int = 10**7,
    to: Files | None = None,
    restoring: Restoring | None = None,
) -> Memory:
    snapshots = Snapshots(PRINT, ram_max=ram, disk_max=disk, files=to)
    accounting = Cells(cells, 6)
    return Memory(
        model,
        accounting,
        cached_max=cells,
        saved_bytes_max=ram,
        snapshots=snapshots,
        restoring=restoring,
    )


def costing(row: float, stretch: float = 0.0, token: float = 0.0) -> Restoring:
    """Seconds of a computed token, of a stretch put back, and of each of its tokens."""
    pace = Pace(512)
    pace.observe(0, 1, row)
    return Restoring(pace, stretch, token)


def tokens(seed: int, n: int) -> list[int]:
    return np.random.default_rng(seed).integers(1, 60, n).tolist()


def compute(held: Memory, model: AnyModel, run: Run, rows: int = 30) -> int:
    """All of the run's tokens but the last; how many were computed."""
    assert held.fetched(run, 0.0), "its files are still being read"
    held.attach(run)
    assert run.seq is not None
    computed = 0
    while (length := held.length(run)) < len(run.tokens) - 1:
        held.continue_saved(run, 0)
        length = held.length(run)
        n = min(rows, len(run.tokens) - 1 - length)
        if run.saved:
            n = min(n, run.saved[-1].start - length)
        if n > 0:
            assert held.make_room(n)
            model.decode([Chunk(run.seq, length, run.tokens[length : length + n])], 1)
            held.computed(run, n, exact=True)
            computed += n
    assert model.length(run.seq) == held.length(run)
    held.snapshots.check_integrity()
    return computed


def finish(held: Memory, run: Run) -> None:
    held.keep(run)
    while held.save_due():
        pass


def again(run: Run, *more: int, **options: object) -> Run:
    ids = [*run.tokens, *more]
    return Run("again", ids, len(ids), **{"owner": run.owner, **options})  # type: ignore[arg-type]


def test_a_conversation_is_gone_on_with_from_disk_by_the_next_process() -> None:
    model, disk = FakeModel(2000, 6), FakeFiles()
    held = memory(model, 2000, to=disk)
    run = Run("a", tokens(1, 900), 900, group="g")
    compute(held, model, run)
    finish(held, run)
    disk.close(1.0)

    model = FakeModel(2000, 6)
    held = memory(model, 2000, to=FakeFiles(disk.folder))
    following = again(run, 5, 6, 7)
    assert not held.fetched(following, 0.0)
    held.save_due()  # hears of the disk
    assert compute(held, model, following) == 3
    assert following.seq is not None and model.tokens(following.seq) == following.tokens[:-1]
    assert held.counts.restored_tokens == 899
    assert following.cached == 899 and held.snapshots._bound_bytes == 0


def test_what_a_run_would_be_brought_from_the_snapshots_is_told_before_anything_is_read() -> None:
    model, disk = FakeModel(2000, 6), FakeFiles()
    held = memory(model, 2000, to=disk)
    run = Run("a", tokens(1, 900), 900, group="g")
    compute(held, model, run)
    finish(held, run)
    disk.close(1.0)
    held = memory(FakeModel(2000, 6), 2000, to=FakeFiles(disk.folder))

    def resident(ids: list[int], owner: str = "local") -> int:
        return held.resident(owner, ids, exact=True)

    assert resident([*run.tokens, 5]) == 899
    assert resident([*run.tokens[:600], 999, 5]) == 600
    assert resident([*run.tokens[:20], 999]) == 20
    assert resident(run.tokens, owner="another") == 0
    assert held.snapshots._bound_bytes == 0


def test_an_edited_conversation_gets_what_it_shares_and_not_a_token_more() -> None:
    model = FakeModel(3000, 6)
    held = memory(model, 3000)
    run = Run("a", tokens(1, 900), 900)
    compute(held, model, run)
    held.keep(run)
    held.evict_all()
    edited = Run("b", [*run.tokens[:600], *tokens(2, 50)], 650)
    assert run.tokens[600] != edited.tokens[600]
    assert compute(held, model, edited) == 49
    assert edited.seq is not None and model.tokens(edited.seq) == edited.tokens[:-1]
    assert held.counts.restored_tokens == 600


def test_what_is_evicted_is_saved_first_and_only_what_has_a_conversation_goes_to_disk() -> None:
    model, disk = FakeModel(2000, 6), FakeFiles()
    held = memory(model, 2000, to=disk)
    run = Run("a", tokens(1, 500), 500)
    compute(held, model, run)
    finish(held, run)
    assert held.snapshots.ram_bytes == 0, "it is in the cells"
    held.evict_all()
    assert held.snapshots.ram_bytes > 0 and held.snapshots.disk_bytes == 0
    assert compute(held, model, again(run, 7)) <= 1
    assert disk.folder == {} and disk.written == 0


def test_a_growing_conversation_is_written_once() -> None:
    model, disk = FakeModel(3000, 6), FakeFiles()
    held = memory(model, 3000, to=disk)
    said = tokens(3, 2000)
    for n in range(100, 2001, 100):
        run = Run(str(n), said[:n], n, group="g")
        compute(held, model, run)
        finish(held, run)
    ideal = 2000 * 4
    assert held.snapshots.written_bytes > 0.9 * ideal
    assert disk.written <= 1.2 * ideal


def test_a_run_waits_for_the_disk_and_not_for_ever() -> None:
    model, disk = FakeModel(2000, 6), FakeFiles()
    held = memory(model, 2000, ram=0, to=disk)
    run = Run("a", tokens(1, 600), 600, group="g")
    compute(held, model, run)
    finish(held, run)
    held.save_due()
    held.evict_all()
    disk.held = True
    following = again(run, 9)
    assert not held.fetched(following, 0.0)
    assert not held.fetched(following, PATIENCE_SECONDS - 1)
    assert held.fetched(following, PATIENCE_SECONDS)
    held.attach(following)
    assert following.saved == [] and held.snapshots._bound_bytes == 0
    disk.held = False
    held.save_due()
    held.snapshots.check_integrity()


@pytest.mark.parametrize(
    ("restoring", "restored"),
    [
        (costing(0.005, 0.001, 0.0001), 19),  # a few tokens are worth it where each takes long
        (costing(0.0001, 0.0011, 0.00005), 0),  # and not where the machine is fast
        (costing(0.0001, 0.0009, 0.00005), 19),
    ],
)
def test_a_run_gets_what_is_sooner_put_back_than_computed(
    restoring: Restoring, restored: int
) -> None:
    model = FakeModel(2000, 6)
    held = memory(model, 2000, restoring=restoring)
    run = Run("a", tokens(1, 20), 20)
    compute(held, model, run)
    held.keep(run)
    held.evict_all()
    assert compute(held, model, again(run, 7)) == 20 - restored
    assert held.counts.restored_tokens == restored


def test_what_a_slow_disk_holds_is_computed_and_tried_again_later() -> None:
    model, disk = FakeModel(2000, 6), FakeFiles()
    held = memory(model, 2000, ram=0, to=disk, restoring=costing(0.001))
    run = Run("a", tokens(1, 250), 250, group="g")
    compute(held, model, run)
    finish(held, run)
    held.save_due()  # all is written

    def restored() -> bool:
        held.evict_all()
        before, following = held.counts.restored_tokens, again(run, 7)
        if not held.fetched(following, 0.0):
            held.save_due()
        compute(held, model, following)
        held.keep(following)
        return held.counts.restored_tokens > before

    assert restored(), "a disk is thought to be fast"
    disk.byte_seconds = 1.0
    assert restored()
    tried = [restored() for _ in range(100)]
    assert not tried[0]
    assert any(tried)


def test_the_head_of_a_chain_is_put_back_where_its_tail_would_take_too_long() -> None:
    model, disk = FakeModel(3000, 6), FakeFiles()
    held = memory(model, 3000, to=disk, restoring=costing(0.001))
    run = Run("a", tokens(1, 900), 900, group="g")
    compute(held, model, run)
    finish(held, run)
    held.save_due()
    held.evict_all()
    tail = held.snapshots.match("local", run.ids(), exact=True)[2:]
    for link in tail:
        held.snapshots._set_state(link.segment, None)
    held.snapshots._observe(1.0)
    assert compute(held, model, again(run, 7)) == 900 - 2 * SEGMENT_TOKENS
    assert held.counts.restored_tokens == 2 * SEGMENT_TOKENS


@pytest.mark.parametrize(("more", "restored"), [(6, 0), (49, 49)])
def test_cells_that_are_resident_are_not_put_back_a_second_time_for_a_few_more(
    more: int, restored: int
) -> None:
    model = FakeModel(3000, 6)
    held = memory(model, 3000)
    run = Run("a", tokens(1, 300), 300)
    compute(held, model, run)
    held.keep(run)
    held.evict_all()
    shorter = Run("b", run.tokens[:251], 251)
    compute(held, model, shorter)
    held.keep(shorter)
    before = held.counts.restored_tokens
    following = Run("c", run.tokens[: 251 + more], 251 + more)
    assert compute(held, model, following) == more - restored
    assert held.counts.restored_tokens - before == restored


def test_a_damaged_file_costs_its_stretch_alone() -> None:
    model, disk = FakeModel(3000, 6), FakeFiles()
    held = memory(model, 3000, to=disk)
    run = Run("a", tokens(1, 1000), 1000, group="g")
    compute(held, model, run)
    finish(held, run)
    disk.close(1.0)
    model = FakeModel(3000, 6)
    folder = dict(disk.folder)
    held = memory(model, 3000, to=FakeFiles(folder))
    del folder[list(folder)[1]]
    following = again(run, 9)
    assert not held.fetched(following, 0.0)
    held.save_due()
    assert compute(held, model, following) == SEGMENT_TOKENS + 1
    assert following.seq is not None and model.tokens(following.seq) == following.tokens[:-1]


def test_a_deleted_conversation_is_gone_from_cells_ram_and_disk_even_if_it_still_ran() -> None:
    model, disk = FakeModel(3000, 6), FakeFiles()
    held = memory(model, 3000, to=disk)
    run = Run("a", tokens(1, 500), 500, group="g")
    other = Run("b", tokens(2, 500), 500, group="h")
    for one in (run, other):
        compute(held, model, one)
        finish(held, one)
    late = again(run, 3, group="g")
    compute(held, model, late)
    held.forget("g")
    finish(held, late)
    disk.close(1.0)
    assert {entry.tag for entry in disk.folder} == {files.tag_of("h")}
    assert held.cells.used == 499 == model.used
    assert compute(held, model, again(run, 7)) == 500
    held.cells.check_integrity()


def test_nobody_gets_what_another_owner_saved_or_what_is_less_exact() -> None:
    model = FakeModel(3000, 6)
    held = memory(model, 3000)
    run = Run("a", tokens(1, 500), 500, owner="ann")
    compute(held, model, run)
    held.keep(run)
    held.evict_all()
    assert compute(held, model, again(run, 7, owner="bob")) == 500


def test_runs_that_were_put_aside_take_their_room_from_the_snapshots() -> None:
    model = FakeModel(1000, 6)
    held = memory(model, 1000, ram=4000)
    over = Run("over", tokens(1, 700), 700)
    compute(held, model, over)
    held.keep(over)
    held.evict_all()
    before = held.snapshots.ram_bytes
    aside, other = Run("a", tokens(2, 800), 800), Run("b", tokens(3, 700), 700)
    compute(held, model, aside)
    held.park(aside)
    compute(held, model, other)
    assert held.saved_bytes > 0 and held.snapshots.ram_bytes < before
    assert held.saved_bytes + held.snapshots.ram_bytes <= 4000


def test_another_file_or_another_choice_has_another_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(300_000))
    first = fingerprint.of(path, ("f16", 1))
    assert fingerprint.of(path, ("f16", 1)) == first != fingerprint.of(path, ("f16", 2))
    stat = path.stat()
    path.write_bytes(bytes(150_000) + b"x" + bytes(149_999))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fingerprint.of(path, ("f16", 1)) != first


@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_part_of_a_split_model_counts(tmp_path: Path, number: int) -> None:
    parts = [tmp_path / f"model-{n:05}-of-00003.gguf" for n in (1, 2, 3)]
    for part in parts:
        part.write_bytes(bytes(200_000))
    before = fingerprint.of(parts[0], ())
    assert fingerprint.of(parts[0], ()) == before
    changed = parts[number - 1]
    stat = changed.stat()
    changed.write_bytes(bytes(199_990) + b"x" * 10)
    os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    sampled = fingerprint.of(parts[0], ())
    assert sampled != before
    os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert fingerprint.of(parts[0], ()) not in (sampled, before)


# ---- a real context -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights(tiny: Path) -> Weights:
    return Weights(tiny, 0, lambda done: None)


def last_logits(model: Model, held: Memory, run: Run) -> Logits:
    assert run.seq is not None
    last = Chunk(run.seq, held.length(run), run.tokens[-1:], 1)
    logits = model.decode([last], 1, exact=True).logits[0].copy()
    model.cut(run.seq, held.length(run))
    return logits


@pytest.mark.parametrize("kv_type", ["f16", "f16-bf16", "q8_0"])
def test_logits_after_a_restore_from_disk_are_bit_equal(
    weights: Weights, tmp_path: Path, kv_type: str
) -> None:
    shape = Shape(1536, 6, 64, 8, 1, kv_type=kv_type, ordered=True)
    model, disk = Model(weights, shape), files.Disk(tmp_path, lambda: None)
    held = memory(model, 1536, disk=10**9, to=disk)
    said = [(7 * i * i + 11 * i + 3) % 259 for i in range(300)]
    run = Run("a", said, len(said), group="g", exact=True)
    compute(held, model, run)
    expected = last_logits(model, held, run)
    finish(held, run)
    held.snapshots.close(30.0)
    model.close()

    model, disk = Model(weights, shape), files.Disk(tmp_path, lambda: None)
    held = memory(model, 1536, disk=10**9, to=disk)
    beside = Run("beside", said[::-1][:40], 40)
    compute(held, model, beside)
    later = Run("b", said, len(said), group="g", exact=True)
    while not held.fetched(later, 0.0):
        held.save_due()
    assert compute(held, model, later) < 16
    assert np.array_equal(last_logits(model, held, later), expected)
    assert held.counts.restored_tokens > 280
    held.snapshots.close(30.0)
    model.close()


def test_evictions_save_a_few_stretches_in_a_step_however_many_prefixes_go() -> None:
    model = FakeModel(2000, 40)
    snapshots = Snapshots(PRINT, ram_max=10**7, disk_max=0)
    held = Memory(
        model, Cells(2000, 40), cached_max=2000, saved_bytes_max=10**7, snapshots=snapshots
    )
    for n in range(30):
        run = Run(str(n), tokens(n, 40), 40)
        compute(held, model, run)
        held.keep(run)
    held.begin_step()
    held.evict_all()
    assert len(snapshots._all) == STRETCHES_AT_ONCE
    assert held.cells.used == 0
