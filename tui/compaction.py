"""A conversation made shorter: the model sums up what is older, and it goes on with the summary.

What there was stays as it is, as another version of the first message. The summary is a reply
like any other: its run outlives the connection. Knows no screen.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hobnob.server.wire import Status
from hobnob.tui.notice import ClientError
from hobnob.tui.talk import Talk
from hobnob.tui.transcript import USER, Entry

KEPT_TURNS = 2
"""The last ones, which are kept word by word."""
SUMMARY_TOKENS = 1024
LOOK_SECONDS = 0.1

REQUEST = (
    "Sum up our conversation so far, so that it can go on from the summary alone: what I want, "
    "what was found and decided, names, numbers, code and files that matter, and what is still "
    "open. Write the summary and nothing else."
)


class Wish(Protocol):
    """What may be taken back at any moment."""

    cancelled: bool


class Stop:
    """A wish of the plain chat's."""

    def __init__(self) -> None:
        self.cancelled = False

    def ask(self) -> None:
        self.cancelled = True


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a branch is divided."""

    about: str  # the last reply of the older part
    first: str  # the first message of what is kept
    leaf: str  # the last one
    older: int  # messages


def divide(entries: Sequence[Entry], earlier: int) -> Cut | None:
    """The last turns apart from all before them; None where there is nothing to gain. `entries`
    are the end of a branch, with so many messages before them."""
    asked = [number for number, one in enumerate(entries) if one.role == USER]
    if len(asked) <= KEPT_TURNS or entries[-1].role == USER or not all(e.id for e in entries):
        return None
    at = asked[-KEPT_TURNS]
    about, older = entries[at].parent, earlier + at
    summed_up = not earlier and entries[0].text == REQUEST
    if about is None or entries[at - 1].role == USER or (summed_up and older <= 2):
        return None
    return Cut(about, entries[at].id, entries[-1].id, older)


async def compact(talk: Talk, wish: Wish, tell: Callable[[str], None]) -> str:
    """Carries it out; a sentence about what came of it. Raises ClientError, and the conversation
    is as it was."""
    cut = None if talk.id is None or talk.live is not None else divide(talk.entries, talk.earlier)
    if cut is None:
        return "There is nothing to sum up yet: the last two turns stay as they are."
    tell(f"summing up the first {cut.older} messages…")
    # whatever form the replies of the conversation are held to
    options = {"max_tokens": SUMMARY_TOKENS, "stop": [], "response_format": {"type": "text"}}
    summary = await talk.sum_up(REQUEST, cut.about, options, uuid.uuid4().hex)
    watching = asyncio.ensure_future(_stop_when_asked(talk, summary, wish))
    try:
        await talk.follow_aside(summary, lambda _: None)
    finally:
        watching.cancel()
    if (why := _why_not(summary)) is not None:
        return f"Not compacted: {why} The conversation is as it was."
    await talk.go_on_below(summary.id, cut.first, cut.leaf)
    left_out = len(summary.context.left_out) if summary.context is not None else 0
    missing = f" The oldest {left_out} had no room and are not in it." if left_out else ""
    return (
        f"The first {cut.older} messages are a summary now.{missing} "
        "All of them are in the other version of the first message."
    )


async def _stop_when_asked(talk: Talk, summary: Entry, wish: Wish) -> None:
    while not wish.cancelled:
        await asyncio.sleep(LOOK_SECONDS)
    try:
        await talk.stop(summary)
    except ClientError:
        return  # the stream says what is wrong with the connection


def _why_not(summary: Entry) -> str | None:
    if summary.status == Status.CANCELLED:
        return "the summary was stopped."
    if summary.status == Status.LENGTH:
        return "the summary was cut before its end."
    if summary.status != Status.COMPLETED:
        return f"{(summary.error or 'the summary failed').rstrip('.')}."
    return None if summary.text.strip() else "the model wrote nothing."
