"""One prompt and the columns it is put to, and what is asked of the server about them.

Knows no screen. The replies are versions of one message in a conversation that goes on being
shown as it was, until one of them is kept: so every comparison is in the history from its first
word on, and nothing else has to be saved.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hobnob.server import wire
from hobnob.tui.compare import FEWEST, MOST, Column
from hobnob.tui.line import Line
from hobnob.tui.notice import ClientError
from hobnob.tui.records import Conversation, Message, Run, Turn
from hobnob.tui.reply import OnChange, follow
from hobnob.tui.talk import ROOT
from hobnob.tui.transcript import Entry, entry

WRONG_COLUMN = "invalid_request"
"""A refusal that is about one column's settings, and says nothing about the others."""

Told = Callable[[Column], None]


class Trial:
    def __init__(
        self,
        line: Line,
        conversation: Conversation | None = None,
        *,
        parent: str | None = None,
        system: str | None = None,
        settings: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        temporary: bool = False,
        begun: Callable[[Conversation], None] = lambda _: None,
    ) -> None:
        """`parent`: the reply that the prompt follows. `system`, `settings`, `temporary`: of a new
        conversation, and `begun` hears of it. `options`: of every column that does not say
        otherwise."""
        self._line = line
        self._parent = parent
        self._system = system
        self._settings = settings
        self._options = dict(options or {})
        self._temporary = temporary
        self._begun = begun
        self.conversation = conversation
        self.message: str | None = None  # id of the prompt, once it was accepted
        self.text = ""  # of that message
        self.columns = [Column() for _ in range(FEWEST)]
        self.not_shown = 0  # older replies that there is no column for

    @property
    def system(self) -> str | None:
        """What a column without a system prompt of its own is told."""
        return self._system if self.conversation is None else self.conversation.system

    @property
    def live(self) -> bool:
        return any(column.live for column in self.columns)

    @property
    def title(self) -> str:
        return self.conversation.title if self.conversation is not None else ""

    # ---- reading ------------------------------------------------------------------------------

    async def open(self, conversation: str, message: str) -> None:
        """Take the newest replies to a message as the columns. Raises ClientError."""
        found = await (await self._line.get()).replies(conversation, message)
        self.conversation, self._parent = found.conversation, found.message.parent
        self.message, self.text = found.message.id, found.message.text
        self.columns = [_column(reply, run) for reply, run in found.replies[-MOST:]]
        self.columns += [Column() for _ in range(FEWEST - len(self.columns))]
        self.not_shown = max(len(found.replies) - MOST, 0)

    async def follow(self, reply: Entry, changed: OnChange) -> None:
        """Read a reply to its end. Leaving early does not stop it. Raises ClientError."""
        await follow(self._line, reply, changed)

    # ---- asking -------------------------------------------------------------------------------

    def wanted(self, text: str) -> list[Column]:
        """The columns that a prompt is to be put to: all where it is a new one, else those that
        have no reply, else all again."""
        if text != self.text or self.message is None:
            return list(self.columns)
        return [column for column in self.columns if column.reply is None] or list(self.columns)

    def claim(self, columns: Sequence[Column]) -> None:
        """These are about to be asked: nobody else asks them meanwhile."""
        for column in columns:
            column.posting, column.cancelled, column.trouble = True, False, ""

    async def ask(self, text: str, columns: Sequence[Column], told: Told) -> None:
        """Put the prompt to these columns. `told` hears of each that was accepted or refused.

        The first that is accepted makes the message; the others follow in their order, in which
        they are stored and come back. Nothing is raised: why a column was refused is its
        `trouble`.
        """
        self.claim(columns)
        rest = list(columns)
        try:
            if text != self.text or self.message is None:
                rest = await self._begin(text, rest, told)
            for column in rest:
                await self._again(column, told)
        finally:
            for column in columns:
                column.posting = False

    async def _begin(self, text: str, columns: list[Column], told: Told) -> list[Column]:
        """Make the message with the first column that is not refused. Those that are left."""
        while columns:
            column = columns.pop(0)
            error = await self._post(column, self._send(column, text), told)
            if error is None:
                self.text = text
                for other in self.columns:  # what they say answers another prompt
                    if other is not column:
                        other.reply, other.seed = None, None
                return columns
            if error.code != WRONG_COLUMN:
                for other in columns:
                    self._refused(other, error, told)
                return []
        return []

    async def _send(self, column: Column, text: str) -> Turn:
        client = await self._line.get()
        new = self.conversation is None
        turn = await client.send(
            None if self.conversation is None else self.conversation.id,
            text,
            parent=None if new else self._parent or ROOT,
            options=self._options_of(column),
            instructions=column.instructions,
            aside=True,
            system=self._system if new else None,
            settings=(self._settings or None) if new else None,
            temporary=self._temporary and new,
            key=_key(column, text),
        )
        self.message = turn.message.id
        if new:
            self._begun(turn.conversation)
        return turn

    async def _again(self, column: Column, told: Told) -> None:
        await self._post(column, self._regenerate(column), told)

    async def _regenerate(self, column: Column) -> Turn:
        assert self.conversation is not None and self.message is not None, "there is a message"
        client = await self._line.get()
        return await client.regenerate(
            self.conversation.id,
            self.message,
            options=self._options_of(column),
            instructions=column.instructions,
            aside=True,
            key=_key(column, self.message),
        )

    async def _post(self, column: Column, posting: Any, told: Told) -> ClientError | None:
        try:
            turn: Turn = await posting
        except ClientError as error:
            self._refused(column, error, told)
            return error
        self.conversation = turn.conversation
        column.reply = entry(replace(turn.reply, status=wire.Status.QUEUED, run=turn.run.id))
        column.seed = _seed(turn.run)
        column.posting, column.key = False, ""
        told(column)
        if column.cancelled:
            await self._cancel([column])
        return None

    def _refused(self, column: Column, error: ClientError, told: Told) -> None:
        column.posting, column.trouble = False, error.message
        told(column)

    def _options_of(self, column: Column) -> dict[str, Any] | None:
        return {**self._options, **column.options} or None

    async def stop(self) -> None:
        """End every reply that is being written, those on their way included."""
        for column in self.columns:
            column.cancelled = column.cancelled or column.posting
        await self._cancel(self.columns)

    async def _cancel(self, columns: Sequence[Column]) -> None:
        client = await self._line.get()
        replies = [column.reply for column in columns if column.reply is not None]
        runs = [reply.run for reply in replies if reply.live and reply.run]
        found = await asyncio.gather(*map(client.cancel, runs), return_exceptions=True)
        for error in found:
            if isinstance(error, BaseException):
                raise error

    async def keep(self, column: Column, *, with_settings: bool = False) -> str:
        """Make the reply the one that the conversation goes on from; the others stay its
        versions. With its settings, what follows is asked in the same way. The conversation."""
        assert self.conversation is not None and column.reply is not None, "there is a reply"
        changes: dict[str, Any] = {"head": column.reply.id}
        if with_settings:
            changes["settings"] = {**self.conversation.settings, **column.options}
            if column.instructions is not None:
                changes["system"] = column.instructions or None
        client = await self._line.get()
        self.conversation = await client.update_conversation(self.conversation.id, **changes)
        return self.conversation.id


def _column(reply: Message, run: Run) -> Column:
    """A stored reply with what was asked for."""
    asked = run.params.get("asked")
    asked = asked if isinstance(asked, dict) else {}
    options, instructions = asked.get("options"), asked.get("instructions")
    return Column(
        instructions=instructions if isinstance(instructions, str) else None,
        options=options if isinstance(options, dict) else {},
        reply=entry(reply),
        seed=_seed(run),
    )


def _seed(run: Run) -> int | None:
    seed = run.params.get("seed")
    return seed if isinstance(seed, int) else None


def _key(column: Column, what: str) -> str:
    """The same for the same post, so that an answer that was lost does not make it twice."""
    number, _, of = column.key.partition(" ")
    if not number or of != what:
        number = uuid.uuid4().hex
        column.key = f"{number} {what}"
    return number
