"""What a message would put into the prompt, asked while it is typed and said in one line.

One question is on its way at a time, and the next is about the text as it is then: who types
fast asks no more often than the server answers. What cannot be known is said to be so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from textual.content import Content

from hobnob.tui.clean import clean
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Plan
from hobnob.tui.talk import Talk
from hobnob.tui.transcript import Entry
from hobnob.tui.words import SEPARATOR, count

PAUSE_SECONDS = 0.35
PAUSE_SHARE = 4
"""After a slow answer so many times its duration: counting takes a fifth of the time at most."""
SLOW_SECONDS = 1.5
"""A question that takes longer is said to be on its way."""
MAX_CHARS = 1_048_576
"""No server takes a longer text, and none is sent one to count."""

BAR_CELLS = 12
FULL_SHARE = 0.9
WIDE_COLUMNS = 72
"""Below this there are only words, and fewer."""


class Wanted(NamedTuple):
    conversation: str | None
    text: str
    instead_of: Entry | None


class Outlook:
    def __init__(self, talk: Talk, show: Callable[[Content], None]) -> None:
        """`show` is given the line, at every change; an empty one when nothing is typed."""
        self._talk = talk
        self._show = show
        self._wanted: Wanted | None = None
        self._news = asyncio.Event()
        self.columns = WIDE_COLUMNS

    def ask(self, text: str, instead_of: Entry | None = None) -> None:
        """This is what is typed now, in place of `instead_of` if it is an edit."""
        if text.strip():
            self._wanted = Wanted(self._talk.id, text, instead_of)
            self._news.set()
        else:
            self._wanted = None
            self._show(Content(""))

    async def run(self) -> None:
        """Answers until it is cancelled."""
        took = 0.0
        while True:
            await self._news.wait()
            await asyncio.sleep(max(PAUSE_SECONDS, PAUSE_SHARE * took))
            self._news.clear()
            if self._wanted is None:
                continue
            began = time.monotonic()
            await self._answer(self._wanted)
            took = min(time.monotonic() - began, SLOW_SECONDS)

    async def _answer(self, wanted: Wanted) -> None:
        task = asyncio.ensure_future(self._said(wanted))
        try:
            done, _ = await asyncio.wait({task}, timeout=SLOW_SECONDS)
            if not done and self._is_current(wanted):
                self._show(Content.styled("counting…", "$faint"))
            said = await task
        finally:
            task.cancel()
        if self._is_current(wanted):
            self._show(said)

    def _is_current(self, wanted: Wanted) -> bool:
        """Whether the answer is still about what is on the screen; more may have been typed."""
        return self._wanted is not None and wanted.conversation == self._talk.id

    async def _said(self, wanted: Wanted) -> Content:
        if len(wanted.text) > MAX_CHARS:
            return warning(f"{count(len(wanted.text))} characters: too long to be sent")
        try:
            if self._talk.live is not None:  # what it will say is part of the next prompt
                return tokens(await self._talk.count(wanted.text))
            plan = await self._talk.plan(wanted.text, instead_of=wanted.instead_of)
        except ClientError as error:
            return warning(f"not counted: {clean(error.message)}")
        return line(plan, self.columns)


def tokens(number: int) -> Content:
    return Content("1 token" if number == 1 else f"{count(number)} tokens")


def warning(words: str) -> Content:
    return Content.styled(words, "$warning")


def line(plan: Plan, columns: int) -> Content:
    """The plan in words, with a bar where there is room."""
    wide = columns >= WIDE_COLUMNS
    parts = [tokens(plan.text_tokens)]
    share = plan.prompt_tokens / max(plan.n_ctx, 1)
    style = "$warning" if share > FULL_SHARE else ""
    context = f"{count(plan.prompt_tokens)} of {count(plan.n_ctx)}"
    if wide:
        parts.append(Content.assemble("context ", bar(plan), " ", (context, style)))
    else:
        parts.append(Content.styled(context, style))
    if plan.cached_tokens:
        parts.append(Content(f"{count(plan.cached_tokens)} cached"))
    if plan.left_out:
        number = len(plan.left_out)
        words = "1 message left out" if number == 1 else f"{count(number)} messages left out"
        parts.append(warning(words))
    return Content(SEPARATOR).join(parts)


def bar(plan: Plan) -> Content:
    """Of the window: what is cached, what is to be read, what is free."""
    n_ctx = max(plan.n_ctx, 1)
    used = min(BAR_CELLS, -(-plan.prompt_tokens * BAR_CELLS // n_ctx))
    cached = min(used, (plan.cached_tokens or 0) * BAR_CELLS // n_ctx)
    return Content.assemble(
        ("━" * cached, "$success"),
        ("━" * (used - cached), "$primary"),
        ("─" * (BAR_CELLS - used), "$line"),
    )
