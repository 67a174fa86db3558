"""An exact reply is the same, whatever happens around it: the real model in every situation.

HOBNOB_REPLIES=100 asks for as many replies as that; the suite for a few.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from engine_history import put_newest_aside
from support_model import starter

from hobnob.server.engine import loading
from hobnob.server.engine.llama import PAD_CELLS, Vocab
from hobnob.server.engine.protocol import Configure, Sampling, Stepped, Submit
from hobnob.server.engine.steps import Steps

pytestmark = pytest.mark.alone
REPLIES = int(os.environ.get("HOBNOB_REPLIES", "6"))
REPLY_TOKENS = 20
GROUP = 16
SHARED = (
    "You are the keeper of a lighthouse on a small island, and you answer whoever asks, in "
    "a sentence or two, about boats, weather, birds and the books on your shelf. "
) * 3
TOPICS = ("the storm", "gulls", "an old map", "the lamp", "a letter", "bread", "the ferry", "fog")


class Engine:
    """All of the engine but its process."""

    def __init__(self, *, cells: int = 8192, speculation: str = "off", folder: Path | None = None):
        asked = Configure(
            str(starter()),
            n_ctx=512,
            n_cells=cells,
            n_seq_max=GROUP,
            speculation=speculation,
            snapshot_folder=str(folder or ""),
            snapshot_disk_bytes=2**30 if folder else 0,
        )
        self._frames: list[Stepped] = []
        self.steps, self.ready = loading.load(
            asked, self._frames.append, lambda _: None, lambda: None
        )
        counted = self.ready.n_cells - self.steps.stats().cells_total
        assert counted == PAD_CELLS, "an exact row may need one more"

    def replies(
        self, submits: Sequence[Submit], disturb: Callable[[Steps], None] = lambda _: None
    ) -> list[list[int]]:
        """Asked for all at once; what each said from its beginning."""
        self._frames.clear()
        for submit in submits:
            self.steps.submit(submit)
        while not self.steps.idle:
            self.steps.step()
            disturb(self.steps)
        self.steps.check_integrity()
        said = {submit.run: [*submit.emitted] for submit in submits}
        for frame in self._frames:
            for output in frame.outputs:
                if output.run in said:
                    said[output.run] += output.tokens
        return list(said.values())

    def close(self) -> None:
        while self.steps.tidy():
            pass
        self.steps.close()


def in_groups(
    engine: Engine, submits: Sequence[Submit], disturb: Callable[[Steps], None] = lambda _: None
) -> list[list[int]]:
    found = []
    for at in range(0, len(submits), GROUP):
        found += engine.replies(submits[at : at + GROUP], disturb)
    return found


def put_one_aside(steps: Steps) -> None:
    """Now and then the newest run gives its cells to nobody."""
    if steps.records and len(steps.records) % 7 == 0:
        put_newest_aside(steps)


@pytest.fixture(scope="module")
def submits() -> Iterator[list[Submit]]:
    vocab = Vocab.open(starter())
    made = []
    for n in range(REPLIES):
        head = f"<|im_start|>system\n{SHARED if n % 2 else 'Be brief.'}<|im_end|>\n"
        ask = f"Tell me about {TOPICS[n % len(TOPICS)]}, story {n}. " * (1 + n % 5)
        text = f"{head}<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n"
        sampling = Sampling(
            seed=n, temperature=0.8 * (n % 3 > 0), max_tokens=REPLY_TOKENS, ignore_eos=True
        )
        prompt = vocab.tokenize(text, special=True)
        made.append(Submit(f"r{n}", prompt, sampling, exact=True, group=f"c{n}"))
    vocab.close()
    yield made


@pytest.fixture(scope="module")
def alone(submits: list[Submit]) -> list[list[int]]:
    engine = Engine()
    assert engine.ready.exact_rows > GROUP
    return [engine.replies([submit])[0] for submit in submits]


def test_among_fifteen_others_a_reply_is_the_same(
    submits: list[Submit], alone: list[list[int]]
) -> None:
    engine = Engine()
    while len(submits) < GROUP:  # there are always fifteen others
        first = submits[len(submits) % REPLIES]
        submits = [*submits, Submit(f"r{len(submits)}", first.prompt[9:], first.sampling)]
    assert in_groups(engine, submits)[: len(alone)] == alone
    assert max(record.decodes for record in engine.steps.records) >= GROUP // 2


def test_put_aside_and_brought_back_a_reply_is_the_same(
    submits: list[Submit], alone: list[list[int]]
) -> None:
    engine = Engine()
    assert in_groups(engine, submits, put_one_aside) == alone
    assert engine.steps.stats().saved > 0, "nobody was put aside"


def test_with_drafts_a_reply_is_the_same(submits: list[Submit], alone: list[list[int]]) -> None:
    engine = Engine(speculation="auto")
    speculation = engine.steps._speculation
    assert speculation is not None
    live = engine.steps._live
    known = {submit.run: reply for submit, reply in zip(submits, alone, strict=True)}

    def propose(drafter: object, decodes: int, rows: int, most: int) -> list[int]:
        run = next(made.run for made in live.values() if made.drafter is drafter)
        said = len(run.tokens) - run.n_prompt
        draft = known[run.id][said : said + 5]
        if said // 6 % 2 and draft:
            draft[-1] += 1  # some are wrong
        return draft[: max(0, most)]

    speculation.propose = propose  # type: ignore[assignment,method-assign]
    assert in_groups(engine, submits) == alone
    stats = engine.steps.stats()
    assert 0 < stats.accepted < stats.drafted


def test_gone_on_with_by_another_engine_from_files_a_reply_is_the_same(
    submits: list[Submit], alone: list[list[int]], tmp_path: Path
) -> None:
    first = Engine(folder=tmp_path)
    in_groups(first, submits)
    first.close()
    second = Engine(folder=tmp_path)
    halves = [
        Submit(s.run, s.prompt, s.sampling, reply[: len(reply) // 2], exact=True, group=s.group)
        for s, reply in zip(submits, alone, strict=True)
    ]
    assert in_groups(second, halves) == alone
    assert second.steps.stats().restored_tokens > 0, "nothing came from the files"
    second.close()


# ---- several owners, in turns ------------------------------------------------------------------

OWNERS = 8
TURNS = 2
TURN_TOKENS = 6


def test_interleaved_conversations_with_cancels_and_too_few_cells_say_what_each_says_alone(
    tmp_path: Path,
) -> None:
    """Nobody's words come from another's cells, drafts or snapshots."""
    vocab = Vocab.open(starter())

    def turn(owner: int, number: int, before: list[int], *, suffix: str = "") -> Submit:
        ask = f"My word is {TOPICS[owner]}. Which?" if not number else "And now?"
        text = f"<|im_start|>user\n{ask}<|im_end|>\n<|im_start|>assistant\n"
        sampling = Sampling(
            seed=owner, temperature=0.7 * (owner % 2), max_tokens=TURN_TOKENS, ignore_eos=True
        )
        return Submit(
            f"o{owner}t{number}{suffix}",
            [*before, *vocab.tokenize(text, special=True)],
            sampling,
            exact=True,
            owner=f"owner{owner}",
            group=f"c{owner}",
        )

    def conversations(engine: Engine, owners: Sequence[int], *, crowded: bool) -> list[list[int]]:
        said: dict[int, list[int]] = {owner: [] for owner in owners}
        for number in range(TURNS):
            submits = [turn(owner, number, said[owner]) for owner in owners]
            steps_done = 0

            def disturb(steps: Steps, number: int = number) -> None:
                nonlocal steps_done
                steps_done += 1
                for owner in owners:  # each asks for the same again, and loses interest
                    again = turn(owner, number, said[owner], suffix="x")
                    if steps_done == 1 + owner:
                        steps.submit(again)
                    elif steps_done == 4 + owner:
                        steps.cancel(again.run)
                if steps_done % 3 == 0:
                    put_newest_aside(steps)

            replies = engine.replies(submits, disturb if crowded else lambda _: None)
            for owner, submit, reply in zip(owners, submits, replies, strict=True):
                said[owner] = [*submit.prompt, *reply]
        return list(said.values())

    quiet = Engine()
    alone = [conversations(quiet, [owner], crowded=False)[0] for owner in range(OWNERS)]
    crowd = Engine(cells=512, speculation="auto", folder=tmp_path)
    assert conversations(crowd, range(OWNERS), crowded=True) == alone
    assert crowd.steps.stats().saved > 0, "nobody was put aside"
    crowd.close()
    vocab.close()
