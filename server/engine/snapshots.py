"""What is kept of finished conversations' cells outside the cells: in RAM, and in files.

A segment is a stretch of at most 256 tokens that follows another one, or a root; its key is a
hash of all tokens up to its end, of the owner, and of everything that the cells depend on. So a
turn adds segments and never rewrites one, and conversations that start alike share their heads.
Each remembers whether it was computed in bit-equal steps only. Both budgets lose what was unused
for longest, tails before heads. The step thread's; no files or threads but through `Files`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hobnob.server.engine.cells import Ids, common_length
from hobnob.server.engine.model import State
from hobnob.server.engine.snapshot_files import (
    TAG_BYTES,
    Bytes,
    Entry,
    Read,
    Wrote,
    chained,
    tag_of,
)

SEGMENT_TOKENS = 256
TAIL_TOKENS = 16
"""Shorter stretches are not worth a file: they are computed again."""

SEGMENTS_MAX = 16_384
UNDER_WAY_BYTES = 256 * 1024**2
"""States that are in RAM beyond the budget, until they are written or put back."""

READ_BYTE_SECONDS = 1e-9
"""For a byte from the disk, before any was read."""

_WEIGHT = 0.2  # of the newest read
_DOUBT = 0.8

_NO_TAG = bytes(TAG_BYTES)


class Files(Protocol):
    """snapshot_files.Disk, or a scripted one."""

    def found(self) -> list[Entry]: ...

    def write(self, entry: Entry, state: Bytes) -> None: ...

    def read(self, entry: Entry) -> None: ...

    def touch(self, entries: Sequence[Entry]) -> None: ...

    def remove(self, entry: Entry) -> None: ...

    def forget(self, tag: bytes) -> None: ...

    def news(self) -> list[Wrote | Read]: ...

    def close(self, seconds: float) -> bool: ...


@dataclass(slots=True, eq=False)
class Segment:
    entry: Entry
    ids: Ids
    state: State | None = None  # in RAM
    filed: bool = False  # on disk, or about to be
    writing: bool = False
    reading: bool = False
    pins: int = 0  # runs that are waiting for it

    @property
    def bound(self) -> bool:
        """Whether its state has to stay in RAM for now."""
        return self.writing or self.pins > 0


@dataclass(frozen=True, slots=True)
class Link:
    """A segment of a chain, and how far it is what was looked for."""

    segment: Segment
    start: int
    end: int  # of what was looked for
    beyond: int  # tokens that the segment goes on after that


class Snapshots:
    def __init__(
        self, fingerprint: bytes, *, ram_max: int, disk_max: int = 0, files: Files | None = None
    ) -> None:
        """`fingerprint`: of model file, cell type and all else that a state's bits depend on."""
        self.ram_bytes = 0
        self.disk_bytes = 0
        self.written_bytes = 0  # since the start
        self._fingerprint = fingerprint
        self._ram_most = self._ram_max = ram_max
        self._disk_max = disk_max if files is not None else 0
        self._files = files
        self._bound_bytes = 0
        self._read_byte_s: float | None = None  # none was read yet
        self._all: dict[bytes, Segment] = {}
        self._children: dict[tuple[bytes, bool], list[tuple[bytes, bytes]]] = {}
        """Of a parent, exact ones or not: tokens and keys, sorted."""
        self._ram: OrderedDict[bytes, Segment] = OrderedDict()  # longest unused first
        self._disk: OrderedDict[bytes, Segment] = OrderedDict()
        for entry in files.found() if files is not None else ():
            self._adopt(entry)
        self._trim()

    @property
    def keeps(self) -> bool:
        """Whether there is any room for it."""
        return self._ram_most > 0 or self._disk_max > 0

    @property
    def on_disk(self) -> bool:
        """Whether states outlive the process."""
        return self._disk_max > 0

    @property
    def ram_budget(self) -> int:
        return self._ram_most

    @property
    def disk_budget(self) -> int:
        return self._disk_max

    @property
    def pinnable(self) -> int:
        """Bytes of a chain that can be held until it is put back, when nothing else is."""
        return max(self._ram_max, UNDER_WAY_BYTES)

    def limit_ram(self, ram_max: int) -> None:
        """Less room than at first: the states of runs that were put aside take theirs from it."""
        self._ram_max = max(0, min(ram_max, self._ram_most))
        self._trim()

    # ---- keeping ------------------------------------------------------------------------------

    def covered(self, owner: str, ids: Ids, *, exact: bool) -> tuple[int, bytes]:
        """How many leading tokens are kept already, and the key of what the next may follow: a
        whole segment. So of those that follow one, none begins with all of another."""
        at, key = 0, self._root(owner)
        while at < ids.size and (found := self._longest(key, ids[at:], exact=exact)):
            segment, shared = found
            if shared == ids.size - at:
                return ids.size, key
            if shared < segment.ids.size:
                break
            at, key = at + shared, segment.entry.key
        return at, key

    def can_take(self, size: int) -> bool:
        """Whether a state of so many bytes can be taken before others have been written."""
        return self._bound_bytes + size <= self.pinnable

    def add(self, parent: bytes, ids: Ids, state: State, *, exact: bool, group: str) -> bool:
        """A stretch that follows the one with key `parent`. It goes to disk only with a group.
        False: no budget holds it."""
        tokens = ids.astype("<i4").tobytes()
        entry = Entry(chained(parent, tokens), parent, tag_of(group), exact, tokens, state.size)
        old = self._all.get(entry.key)
        if old is not None:  # the same, less exact
            self._lose(old)
        segment = Segment(entry, ids.copy())
        self._link(segment)
        self._set_state(segment, state)
        if self._files is not None and group and entry.file_size <= self._disk_max:
            self._file(segment)
            self._bind(segment, writing=True)
            self.written_bytes += entry.file_size
            self._trim()  # room is made before it is taken
            self._files.write(entry, state)
        self._touch(self._path(segment))
        self._trim()
        return entry.key in self._all

    def forget(self, group: str) -> None:
        """Drops all that was kept for the group. What others computed of the same tokens stays."""
        tag = tag_of(group)
        if tag == _NO_TAG:
            return
        for segment in [one for one in self._all.values() if one.entry.tag == tag]:
            self._lose(segment)
        if self._files is not None:
            self._files.forget(tag)

    # ---- bringing back ------------------------------------------------------------------------

    def match(self, owner: str, ids: Ids, *, exact: bool) -> list[Link]:
        """The longest chain of segments that the tokens begin with; the last may go on beyond."""
        links: list[Link] = []
        at, key = 0, self._root(owner)
        while at < ids.size:
            found = self._longest(key, ids[at:], exact=exact)
            if found is None:
                break
            segment, length = found
            links.append(Link(segment, at, at + length, segment.ids.size - length))
            at, key = at + length, segment.entry.key
            if links[-1].beyond:
                break
        return links

    def seconds_to_read(self, segment: Segment) -> float:
        """Until its state is in RAM, by what others took."""
        known = READ_BYTE_SECONDS if self._read_byte_s is None else self._read_byte_s
        return 0.0 if segment.state is not None else segment.entry.size * known

    def doubt(self) -> None:
        """Something was not read since that takes too long: it may have become faster."""
        if self._read_byte_s is not None:
            self._read_byte_s *= _DOUBT

    def pin(self, links: Sequence[Link]) -> bool:
        """Reads what is not in RAM and holds all of it there until `unpin`. False: too much is
        under way, and nothing happened."""
        size = sum(link.segment.entry.size for link in links)
        if not self.can_take(size):
            return False
        for link in links:
            self._bind(link.segment, pins=1)
            self._fetch(link.segment)
        return True

    def ready(self, links: Sequence[Link]) -> bool:
        """Whether none of them is still being read."""
        return not any(link.segment.reading for link in links)

    def unpin(self, links: Sequence[Link]) -> None:
        for link in links:
            self._bind(link.segment, pins=-1)
        self._trim()

    def used(self, segment: Segment) -> None:
        """Marks the segment and all that it follows as just used."""
        path = self._path(segment)
        self._touch(path)
        filed = [segment.entry for segment in reversed(path) if segment.filed]
        if self._files is not None and filed:
            self._files.touch(filed)

    # ---- the files' news ----------------------------------------------------------------------

    def poll(self) -> None:
        """Takes in what the files' thread has done."""
        if self._files is None or not (news := self._files.news()):
            return
        for one in news:
            segment = self._all.get(one.key)
            if segment is None:
                continue
            if isinstance(one, Wrote):
                self._wrote(segment, done=one.done)
            else:
                self._have_read(segment, one)
        self._trim()

    def close(self, seconds: float) -> None:
        """Writes what is to be written, as far as the time allows."""
        if self._files is not None:
            self._files.close(seconds)

    def check_integrity(self) -> None:
        """Raises AssertionError unless everything adds up."""
        held = {key: one for key, one in self._all.items() if one.state is not None}
        filed = {key: one for key, one in self._all.items() if one.filed}
        assert held == dict(self._ram) and filed == dict(self._disk), "a tier is out of step"
        assert self.ram_bytes == sum(one.entry.size for one in held.values()), "RAM is miscounted"
        assert self.disk_bytes == sum(one.entry.file_size for one in filed.values()), "disk too"
        bound = sum(one.entry.size for one in self._all.values() if one.bound)
        assert self._bound_bytes == bound, "bound states are miscounted"
        assert self.disk_bytes <= self._disk_max, "more on disk than allowed"
        free = sum(one.entry.size for one in held.values() if not one.bound)
        assert self.ram_bytes <= self._ram_max or not free, "more in RAM than allowed"
        linked = [key for children in self._children.values() for _, key in children]
        assert sorted(linked) == sorted(self._all), "a segment cannot be found"
        for children in self._children.values():
            assert children == sorted(children), "segments are out of order"
        for one in self._all.values():
            assert one.state is not None or one.filed, "a segment without a state"

    def check_pins(self, links: Sequence[Link]) -> None:
        """Raises AssertionError unless these are all for which states are held in RAM."""
        held = Counter(link.segment for link in links)
        for one in self._all.values():
            assert one.pins == held[one], "a state is held for nobody, or is not for somebody"

    # ---- inside -------------------------------------------------------------------------------

    def _root(self, owner: str) -> bytes:
        return chained(self._fingerprint, owner.encode())

    def _longest(self, parent: bytes, ids: Ids, *, exact: bool) -> tuple[Segment, int] | None:
        """The child that shares most with the tokens, and how many."""
        best: tuple[Segment, int] | None = None
        for near in self._nearest(parent, ids, exact=exact):
            shared = common_length(near.ids, ids)
            better = best is None or shared > best[1]
            if shared and (better or (best and shared == best[1] == near.ids.size)):
                best = near, shared  # a whole one can be gone on from
        return best

    def _nearest(self, parent: bytes, ids: Ids, *, exact: bool) -> list[Segment]:
        """Of children in order of their bytes, nobody shares more than a neighbour."""
        found = []
        wanted = ids[:SEGMENT_TOKENS].astype("<i4").tobytes()
        for kind in (True,) if exact else (True, False):
            children = self._children.get((parent, kind), [])
            at = bisect_left(children, (wanted, b""))
            found += [self._all[key] for _, key in children[max(0, at - 1) : at + 1]]
        return found

    def _path(self, segment: Segment) -> list[Segment]:
        """From the chain's first segment that is there to this one."""
        path = [segment]
        while (parent := self._all.get(path[-1].entry.parent)) is not None:
            path.append(parent)
        return path[::-1]

    def _touch(self, path: Sequence[Segment]) -> None:
        """The head as the very last: it is of no use to lose it before what follows it."""
        for segment in reversed(path):
            for tier in (self._ram, self._disk):
                if segment.entry.key in tier:
                    tier.move_to_end(segment.entry.key)

    def _adopt(self, entry: Entry) -> None:
        if entry.key in self._all:
            return  # written for two conversations; the next start finds either
        segment = Segment(entry, np.frombuffer(entry.tokens, "<i4").astype(np.int32))
        self._link(segment)
        self._file(segment)

    def _link(self, segment: Segment) -> None:
        entry = segment.entry
        self._all[entry.key] = segment
        siblings = self._children.setdefault((entry.parent, entry.exact), [])
        insort(siblings, (entry.tokens, entry.key))

    def _file(self, segment: Segment) -> None:
        segment.filed = True
        self._disk[segment.entry.key] = segment
        self.disk_bytes += segment.entry.file_size

    def _unfile(self, segment: Segment) -> None:
        segment.filed = False
        del self._disk[segment.entry.key]
        self.disk_bytes -= segment.entry.file_size
        self._bind(segment, writing=False)

    def _set_state(self, segment: Segment, state: State | None) -> None:
        if (state is None) != (segment.state is None):
            if state is None:
                del self._ram[segment.entry.key]
            else:
                self._ram[segment.entry.key] = segment
            self.ram_bytes += segment.entry.size * (-1 if state is None else 1)
        segment.state = state

    def _bind(self, segment: Segment, *, writing: bool | None = None, pins: int = 0) -> None:
        before = segment.bound
        segment.writing = segment.writing if writing is None else writing
        segment.pins += pins
        if self._all.get(segment.entry.key) is segment and before != segment.bound:
            self._bound_bytes += segment.entry.size * (-1 if before else 1)

    def _fetch(self, segment: Segment) -> None:
        gone = self._all.get(segment.entry.key) is not segment
        if segment.state is None and not segment.reading and self._files is not None and not gone:
            segment.reading = True
            self._files.read(segment.entry)

    def _wrote(self, segment: Segment, *, done: bool) -> None:
        if not segment.writing:
            return
        self._bind(segment, writing=False)
        if not done and segment.filed:
            self._unfile(segment)
            self._bury(segment)

    def _have_read(self, segment: Segment, news: Read) -> None:
        if not segment.reading:
            return  # asked for by an earlier one of the same tokens
        segment.reading = False
        if news.state is not None:
            self._set_state(segment, np.frombuffer(news.state, np.uint8))
            self._observe(news.seconds / max(1, len(news.state)))
        elif segment.filed and segment.state is None and not news.there:  # the file is gone
            self._unfile(segment)
            self._bury(segment)

    def _observe(self, byte_s: float) -> None:
        known = self._read_byte_s
        self._read_byte_s = byte_s if known is None else known + _WEIGHT * (byte_s - known)

    def _trim(self) -> None:
        """Keeps to the budgets."""
        while self.disk_bytes > self._disk_max or len(self._disk) > SEGMENTS_MAX:
            segment = next(iter(self._disk.values()))
            self._unfile(segment)
            if self._files is not None:
                self._files.remove(segment.entry)
            self._bury(segment)
        excess, count = self.ram_bytes - self._ram_max, len(self._ram) - SEGMENTS_MAX
        out: list[Segment] = []
        for segment in self._ram.values():
            if excess <= 0 and count <= 0:
                break
            if not segment.bound:
                out.append(segment)
                excess, count = excess - segment.entry.size, count - 1
        for segment in out:
            self._set_state(segment, None)
            self._bury(segment)

    def _lose(self, segment: Segment) -> None:
        self._set_state(segment, None)
        if segment.filed:
            self._unfile(segment)
            if self._files is not None:
                self._files.remove(segment.entry)
        self._bury(segment)

    def _bury(self, segment: Segment) -> None:
        """Takes a segment out that is neither in RAM nor on disk."""
        if segment.state is not None or segment.filed:
            return
        segment.reading = False
        if segment.bound:
            self._bound_bytes -= segment.entry.size
        entry = segment.entry
        del self._all[entry.key]
        siblings = self._children[entry.parent, entry.exact]
        del siblings[bisect_left(siblings, (entry.tokens, entry.key))]
        if not siblings:
            del self._children[entry.parent, entry.exact]
