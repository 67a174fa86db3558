"""The native API as methods. Knows no Textual: the TUI and the CLI both speak through it.

Every method raises ClientError and nothing else of its own; answers are records, not JSON.
A message is posted under an idempotency key, so that however often it is sent again it makes
one turn.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote

from hobnob.launch import Target
from hobnob.server.wire import ChangePayload, Event
from hobnob.tui import options, records
from hobnob.tui.connection import IDLE_SECONDS, PATIENCE_SECONDS, Connection, OnNotice
from hobnob.tui.feed import Feed
from hobnob.tui.follow import STREAM_PATIENCE_SECONDS, Follow
from hobnob.tui.hold import hold
from hobnob.tui.notice import ClientError, Notice
from hobnob.tui.records import (
    Branch,
    Comparison,
    Conversation,
    Counted,
    Hit,
    Message,
    Replies,
    Run,
    Tree,
    Turn,
    build,
    items,
)

_ID = re.compile(r"[A-Za-z0-9_-]+")

GLANCE_SECONDS = 5.0

UPKEEP_SECONDS = 600.0
"""For an answer that needs the whole database to be read."""


class Client:
    """Use it as `async with Client(Target.choose()) as client`.

    For a local target, entering finds the server or (with `start`) starts it with
    `server_args`; later on, too, one that has died is started again. `on_notice` hears what
    happens while a method waits; `stream` yields its notices instead.
    """

    def __init__(
        self,
        target: Target,
        *,
        start: bool = True,
        server_args: Sequence[str] = (),
        on_notice: OnNotice | None = None,
        patience_s: float = PATIENCE_SECONDS,
        stream_patience_s: float = STREAM_PATIENCE_SECONDS,
        idle_s: float = IDLE_SECONDS,
    ):
        self._stream_patience_s = stream_patience_s
        self._line = Connection(
            target,
            start=start,
            server_args=server_args,
            on_notice=on_notice,
            patience_s=patience_s,
            idle_s=idle_s,
        )

    async def __aenter__(self) -> Client:
        await self._line.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._line.__aexit__(kind, error, trace)

    @property
    def url(self) -> str:
        return self._line.url

    @property
    def local(self) -> bool:
        """Whether it is this machine's own server, which is started when it is needed."""
        return self._line.local

    @property
    def instance(self) -> str | None:
        """Which database the local server has; None for a server given by address."""
        return self._line.instance

    # ---- conversations ------------------------------------------------------------------------

    async def conversations(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        query: str | None = None,
        pinned: bool | None = None,
        title: str | None = None,
    ) -> list[Conversation]:
        """Newest change first. `before` is the `change` of the last one of the page before. With
        `pinned` only those that are, or are not; with `title` those called exactly so."""
        params: dict[str, str | int] = {"limit": limit, **_given(title=title)}
        if pinned is not None:
            params["pinned"] = str(pinned).lower()
        if before is not None:
            params["before"] = before
        if query:
            params["q"] = query
        raw = await self._line.json("GET", "/conversations", params=params)
        return [build(Conversation, one) for one in items(raw, "conversations")]

    async def newest(self) -> Conversation:
        """The one that changed last; not_found when there is none."""
        found = await self.conversations(limit=1)
        if not found:
            raise ClientError("not_found", "There is no conversation to continue.")
        return found[0]

    async def conversation(self, id: str) -> Conversation:
        """`id` may be a unique prefix of at least four characters."""
        return build(Conversation, await self._line.json("GET", _conversation(id)))

    async def create_conversation(
        self,
        *,
        title: str | None = None,
        system: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Conversation:
        body = _given(title=title, system=system, settings=settings)
        raw = await self._line.json("POST", "/conversations", body=body, repeatable=False)
        return build(Conversation, raw)

    async def update_conversation(self, id: str, **changes: Any) -> Conversation:
        """Only the fields given change: title, system, settings, head, pinned."""
        return build(Conversation, await self._line.json("PATCH", _conversation(id), body=changes))

    async def find_title(self, id: str) -> tuple[Conversation, bool]:
        """Has the model find one; False where it found none, or somebody set another meanwhile."""
        raw = await self._line.json(
            "POST", f"{_conversation(id)}/title", answer_s=UPKEEP_SECONDS, repeatable=False
        )
        answer = _an_object(raw)
        return build(Conversation, answer.get("conversation")), answer.get("titled") is True

    async def import_conversation(self, whole: Mapping[str, Any]) -> tuple[Conversation, bool]:
        """One from a file, as `POST /conversations/import` takes it; False with the one that is
        there already under its id."""
        raw = await self._line.json(
            "POST", "/conversations/import", body=whole, answer_s=UPKEEP_SECONDS
        )
        answer = _an_object(raw)
        return build(Conversation, answer.get("conversation")), answer.get("imported") is True

    async def delete_conversation(self, id: str) -> None:
        """Gone for good, its running replies cancelled."""
        await self._line.json("DELETE", _conversation(id), repeatable=False)

    async def branch(
        self,
        id: str,
        leaf: str | None = None,
        *,
        newest: bool = False,
        before: str | None = None,
        limit: int | None = None,
    ) -> Branch:
        """The messages from the root to `leaf` (`newest`: and on to the end of the branch that
        leads through it), to the conversation's head, or to the one that `before` follows. With
        `limit` the last ones of them."""
        params: dict[str, str | int] = _given(leaf=leaf, before=before, limit=limit)
        if leaf is not None and newest:
            params["newest"] = "true"
        raw = await self._line.json("GET", f"{_conversation(id)}/messages", params=params)
        return records.branch(raw)

    async def tree(self, id: str) -> Tree:
        """Every message of all branches."""
        return records.tree(await self._line.json("GET", f"{_conversation(id)}/tree"))

    async def message(self, id: str) -> Message:
        """One message, of whatever conversation it is."""
        _check(id, "message")
        return build(Message, await self._line.json("GET", f"/messages/{quote(id, safe='')}"))

    async def search(self, query: str, *, limit: int = 20) -> list[Hit]:
        raw = await self._line.json("GET", "/search", params={"q": query, "limit": limit})
        return [build(Hit, one) for one in items(raw, "hits")]

    async def replies(self, conversation: str, message: str) -> Replies:
        """All replies to a user's message."""
        path = f"{_conversation(conversation)}/replies"
        return records.replies(await self._line.json("GET", path, params={"parent": message}))

    async def comparisons(self, *, limit: int = 50) -> list[Comparison]:
        """The messages that have several replies; those first that have the newest ones."""
        raw = await self._line.json("GET", "/comparisons", params={"limit": limit})
        return [build(Comparison, one) for one in items(raw, "comparisons")]

    def changes(self) -> AsyncGenerator[ChangePayload | Notice, None]:
        """What anybody changes in the history from now on, through any number of connections.

        Begins with a Position, and has another where changes may have been missed: then what was
        read before is to be read again. Never ends; close the iterator (`contextlib.aclosing`).
        """
        return Feed(self._line).items()

    # ---- turns and runs -----------------------------------------------------------------------

    async def send(
        self,
        conversation: str | None,
        text: str,
        *,
        parent: str | None = None,
        options: Mapping[str, Any] | None = None,
        instructions: str | None = None,
        aside: bool = False,
        about: str | None = None,
        system: str | None = None,
        settings: Mapping[str, Any] | None = None,
        title: str | None = None,
        temporary: bool = False,
        history: Sequence[tuple[str, str]] = (),
        key: str | None = None,
    ) -> Turn:
        """Post a user message; its reply is read with `stream(turn.run.id)`.

        None starts a new conversation, with `system`, `settings` and `title` if given (on an
        existing one, change them with `update_conversation`) and with `history` before the message,
        the roles and texts of what was said elsewhere; a `temporary` one is in no list and
        is deleted a little after nobody holds it any more (see `hold`). `parent` answers another
        message than the conversation's head; "root" begins a new branch. `instructions` are the
        system prompt of this reply alone; a reply `aside` does not become the conversation's head.
        `about` names a reply: a first message is asked at the end of its branch, for a summary.
        `key` is the idempotency key, for a caller that wants to repeat the call itself.
        """
        body = _given(
            text=text,
            parent=parent,
            options=options,
            instructions=instructions,
            aside=aside or None,
            about=about,
            system=system,
            settings=settings,
            title=title,
            temporary=temporary or None,
            history=_said(history),
        )
        raw = await self._line.json(
            "POST",
            f"{_conversation(conversation or 'new')}/messages",
            body=body,
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
        )
        return records.turn(raw)

    async def regenerate(
        self,
        conversation: str,
        parent: str,
        *,
        options: Mapping[str, Any] | None = None,
        instructions: str | None = None,
        aside: bool = False,
        key: str | None = None,
    ) -> Turn:
        """A new reply to the user message `parent`, beside the ones it has. As `send` else."""
        raw = await self._line.json(
            "POST",
            f"{_conversation(conversation)}/replies",
            body=_given(
                parent=parent, options=options, instructions=instructions, aside=aside or None
            ),
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
        )
        return records.turn(raw)

    async def go_on(self, conversation: str, reply: str, *, key: str | None = None) -> Turn:
        """Another version of a reply that was cut: it begins with its text and goes on, with the
        same options. Refused for one that ended by itself. As `send` else."""
        raw = await self._line.json(
            "POST",
            f"{_conversation(conversation)}/replies",
            body={"continue": reply},
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
        )
        return records.turn(raw)

    async def graft(self, conversation: str, *, onto: str, first: str, leaf: str) -> Conversation:
        """Copies the messages of a branch from `first` to `leaf` below the reply `onto`, which
        are shown from then on. Safe to repeat."""
        body = {"onto": onto, "first": first, "leaf": leaf}
        path = f"{_conversation(conversation)}/graft"
        return build(Conversation, await self._line.json("POST", path, body=body))

    def stream(self, run: str, after: int = 0) -> AsyncGenerator[Event | Notice, None]:
        """The run's events from number `after` + 1 on, through any number of connections.

        Each numbered event comes once and in order; Notices between them say what happens to
        the connection. Ends after message_stop; anything else raises ClientError. With
        `after=0` the deltas, joined, are the stored text. Leaving early does not stop the run;
        close the iterator then (`contextlib.aclosing`).
        """
        follow = Follow(self._line, run, after, patience_s=self._stream_patience_s)
        return follow.items()

    async def run(self, id: str) -> Run:
        return build(Run, await self._line.json("GET", _run(id)))

    async def cancel(self, run: str) -> None:
        """Stop the run; its stream then ends with message_stop. Safe to call twice."""
        await self._line.json("POST", f"{_run(run)}/cancel")

    async def reply(self, run: Run) -> Message:
        """The reply that the run writes, as stored now."""
        found = await self.branch(run.conversation, run.message, limit=1)
        return found.messages[-1]

    # ---- the server ---------------------------------------------------------------------------

    async def models(self) -> list[dict[str, Any]]:
        return [one for one in items(await self._line.json("GET", "/models"), "models")]

    async def choose_model(self, id: str) -> None:
        """Start the local server again with another model. Raises ClientError, with the reason
        when it must not be: somebody's reply is being written, or somebody else started it."""
        found = await self.status()
        check_restart(found, id)
        await self._line.restart(["--model", id])
        options.require_model((await self.status()).get("model") or {}, id)

    async def status(self) -> dict[str, Any]:
        return await self._object("GET", "/status")

    async def glance(self) -> dict[str, Any]:
        """The status as it is this moment: tried once, and no server is started for it."""
        raw = await self._line.json("GET", "/status", answer_s=GLANCE_SECONDS, once=True)
        return _an_object(raw)

    async def health(self) -> dict[str, Any]:
        return await self._object("GET", "/health")

    async def count(self, text: str) -> int:
        """Tokens of plain text."""
        return build(Counted, await self._line.json("POST", "/count", body={"text": text})).tokens

    async def plan(
        self,
        conversation: str | None,
        text: str,
        *,
        parent: str | None = None,
        options: Mapping[str, Any] | None = None,
        system: str | None = None,
        settings: Mapping[str, Any] | None = None,
        history: Sequence[tuple[str, str]] = (),
    ) -> dict[str, Any]:
        """What `send` with the same arguments would put into the prompt, and leave out; a
        records.Plan as JSON."""
        path = f"{_conversation(conversation or 'new')}/plan"
        body = _given(
            text=text,
            parent=parent,
            options=options,
            system=system,
            settings=settings,
            history=_said(history),
        )
        return await self._object("POST", path, body=body)

    async def warm(self, conversation: str) -> None:
        """A message may follow soon: the server may read the conversation meanwhile."""
        path = f"{_conversation(conversation)}/warm"
        await self._line.json("POST", path, repeatable=False)

    async def hold(self, conversation: str) -> None:
        """Keeps a temporary conversation in being, over any number of connections, until it is
        cancelled. Raises ClientError when the conversation is gone."""
        await hold(self._line, f"{_conversation(conversation)}/hold")

    async def backup(self, take: Callable[[bytes], object]) -> None:
        """Gives the whole history, a database file, to `take`, piece by piece."""
        await self._line.download("/backup", take, UPKEEP_SECONDS)

    async def check(self) -> list[str]:
        """What is wrong with the database, a sentence each."""
        raw = await self._line.json("GET", "/check", answer_s=UPKEEP_SECONDS)
        problems = raw.get("problems") if isinstance(raw, dict) else None
        if not isinstance(problems, list):
            raise ClientError("bad_answer", "The server's answer is odd: expected problems.")
        return [str(problem) for problem in problems]

    async def _object(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Any = None,
    ) -> dict[str, Any]:
        return _an_object(await self._line.json(method, path, params=params, body=body))


def check_restart(status: Mapping[str, Any], model: str) -> None:
    """Raises ClientError where a server with this status must not be ended."""
    server, runs = status.get("server") or {}, status.get("runs") or {}
    if not server.get("on_demand"):
        raise ClientError(
            "not_on_demand",
            "The server was started by hand: end it, and start it with "
            f"`hobnob serve --model {model}`.",
        )
    if runs.get("live"):
        raise ClientError("busy", "A reply is being written; the model can be changed after it.")


def _an_object(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ClientError("bad_answer", "The server's answer is odd: expected an object.")
    return raw


def _said(history: Sequence[tuple[str, str]]) -> list[dict[str, str]] | None:
    return [{"role": role, "text": text} for role, text in history] or None


def _conversation(id: str) -> str:
    _check(id, "conversation")
    return f"/conversations/{quote(id, safe='')}"


def _run(id: str) -> str:
    _check(id, "run")
    return f"/runs/{quote(id, safe='')}"


def _check(id: str, what: str) -> None:
    """An id that no server can know must not lead to another address."""
    if not _ID.fullmatch(id):
        raise ClientError("not_found", f"There is no {what} {id!r}.")


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
