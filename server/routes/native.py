"""The native API: conversations, messages, runs and search. JSON in, plain values on.

Holds no state. A refusal is raised before a stream opens: inside a stream it would come too
late for a status. GET changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, Field

from hobnob.server import errors, sampling_options, wire
from hobnob.server.deletion import delete
from hobnob.server.intake import Forecast
from hobnob.server.requests import ContinueRequest, ReplyRequest, TurnRequest
from hobnob.server.routes.bodies import Body, StrictRoute, wrong
from hobnob.server.runs import Runs
from hobnob.server.streams import EventStream, native
from hobnob.server.temporary import Temporary
from hobnob.store.store import Store
from hobnob.store.values import LOCAL_OWNER, Conversation, Message, Run, Said, Turn

NEW = "new"
"""In place of a conversation's id: make one with this first message."""

MAX_TITLE_CHARS = 500
MAX_PAGE = 500
MAX_HISTORY = 4096
"""Messages that a new conversation may begin with, as many as `/v1` takes."""

MAX_QUERY_CHARS = 1000
LARGEST_INTEGER = 2**63 - 1

_OF_NEW = frozenset({"system", "title", "settings", "temporary", "history"})
_KEY = re.compile(r"[\x21-\x7e]{1,255}")

Title = Annotated[str, Field(max_length=MAX_TITLE_CHARS)]
Cursor = Annotated[int | None, Query(ge=0, le=LARGEST_INTEGER)]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise wrong("must not be empty")
    return text


class NewConversation(Body):
    title: Title | None = None
    system: str | None = None
    settings: dict[str, Any] | None = None


class ConversationChanges(Body):
    """Only what is given changes; null takes the system prompt away."""

    title: Title = ""
    system: str | None = None
    settings: dict[str, Any] | None = None
    head: str = ""
    pinned: bool = False


class Earlier(Body):
    """A message of the history that a new conversation begins with."""

    role: Literal["user", "assistant"]
    text: str


History = Annotated[list[Earlier], Field(max_length=MAX_HISTORY)]


class NewMessage(Body):
    text: str
    parent: str | None = None
    options: dict[str, Any] = {}
    instructions: str | None = None
    aside: bool = False
    about: str | None = None
    interactive: bool = True
    title: Title | None = None
    system: str | None = None
    settings: dict[str, Any] | None = None
    temporary: bool = False
    history: History = []


class Graft(Body):
    """Messages of one branch, to be copied below a reply of another."""

    onto: str
    first: str
    leaf: str


class NewReply(Body):
    """To a user's message (`parent`), or beginning with what there is of a reply (`continue`)."""

    parent: str | None = None
    continue_: str | None = Field(default=None, alias="continue")
    options: dict[str, Any] = {}
    instructions: str | None = None
    aside: bool = False
    interactive: bool = True


class Draft(Body):
    text: str
    parent: str | None = None
    options: dict[str, Any] = {}
    system: str | None = None
    settings: dict[str, Any] | None = None
    history: History = []


class NativeRoutes:
    def __init__(self, store: Store, runs: Runs, temporary: Temporary) -> None:
        self._store = store
        self._runs = runs
        self._temporary = temporary

    def router(self) -> APIRouter:
        router = APIRouter(prefix=wire.API, route_class=StrictRoute)
        add = router.add_api_route
        one = "/conversations/{id}"
        add("/conversations", self.conversations, methods=["GET"])
        add("/conversations", self.create, methods=["POST"])
        add(one, self.conversation, methods=["GET"])
        add(one, self.update, methods=["PATCH"])
        add(one, self.delete, methods=["DELETE"])
        add(f"{one}/messages", self.messages, methods=["GET"])
        add(f"{one}/messages", self.send, methods=["POST"])
        add(f"{one}/tree", self.tree, methods=["GET"])
        add(f"{one}/graft", self.graft, methods=["POST"])
        add(f"{one}/replies", self.regenerate, methods=["POST"])
        add(f"{one}/plan", self.plan, methods=["POST"])
        add(f"{one}/warm", self.warm, methods=["POST"])
        add(f"{one}/hold", self.hold, methods=["GET"])
        add("/runs/{id}", self.run, methods=["GET"])
        add("/runs/{id}/cancel", self.cancel, methods=["POST"])
        add("/runs/{id}/events", self.events, methods=["GET"])
        add("/messages/{id}", self.message, methods=["GET"])
        add("/search", self.search, methods=["GET"])
        return router

    # ---- conversations

    async def conversations(
        self,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
        before: Cursor = None,
        q: Annotated[str | None, Query(max_length=MAX_QUERY_CHARS)] = None,
        pinned: bool | None = None,
        title: Annotated[str | None, Query(max_length=MAX_TITLE_CHARS)] = None,
    ) -> Response:
        found = await self._store.conversations(
            LOCAL_OWNER, limit=limit, before=before, query=q, pinned=pinned, title=title
        )
        return JSONResponse({"conversations": [conversation_json(one) for one in found]})

    async def create(self, body: NewConversation) -> Response:
        self._runs.check_system(body.system)
        made = await self._store.create_conversation(
            LOCAL_OWNER, title=body.title or "", system=body.system, settings=_settings(body)
        )
        place = {"Location": f"{wire.API}/conversations/{made.id}"}
        return JSONResponse(conversation_json(made), status_code=201, headers=place)

    async def conversation(self, id: str) -> Response:
        return JSONResponse(conversation_json(await self._store.conversation(LOCAL_OWNER, id)))

    async def update(self, id: str, body: ConversationChanges) -> Response:
        changes = {name: getattr(body, name) for name in body.model_fields_set}
        if "settings" in changes:
            changes["settings"] = _settings(body)
        self._runs.check_system(body.system)
        found = await self._store.conversation(LOCAL_OWNER, id)
        changed = await self._store.update_conversation(LOCAL_OWNER, found.id, **changes)
        return JSONResponse(conversation_json(changed))

    async def delete(self, id: str) -> Response:
        found = await self._store.conversation(LOCAL_OWNER, id)
        await delete(self._store, self._runs, LOCAL_OWNER, found.id)
        self._temporary.gone(LOCAL_OWNER, found.id)
        return Response(status_code=204)

    # ---- messages

    async def messages(
        self,
        id: str,
        leaf: str | None = None,
        newest: bool = False,
        before: str | None = None,
        limit: Annotated[int | None, Query(ge=1, le=MAX_PAGE)] = None,
    ) -> Response:
        """One branch, or with `limit` the last messages of it; see docs/api.md."""
        if before is not None and leaf is not None:
            raise errors.InvalidRequest("before: not together with leaf.", param="before")
        page = await self._store.page(
            LOCAL_OWNER, id, leaf=leaf, newest=newest, before=before, limit=limit
        )
        return JSONResponse(
            {
                "conversation": conversation_json(page.conversation),
                "messages": [message_json(message) for message in page.messages],
                "earlier": page.earlier,
                "siblings": page.siblings,
            }
        )

    async def message(self, id: str) -> Response:
        """For whoever has a message's id and nothing else."""
        return JSONResponse(message_json(await self._store.message(LOCAL_OWNER, id)))

    async def tree(self, id: str) -> Response:
        """Every message of all branches, in the order of writing."""
        found = await self._store.conversation(LOCAL_OWNER, id)
        tree = await self._store.messages(LOCAL_OWNER, found.id, tokens=False)
        messages = [message_json(message) for message in tree]
        return JSONResponse({"conversation": conversation_json(found), "messages": messages})

    async def send(
        self,
        id: str,
        body: NewMessage,
        idempotency_key: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Accepts a message: 202 with where its reply can be followed."""
        request = TurnRequest(
            owner=LOCAL_OWNER,
            conversation=await self._id(id, body),
            text=body.text,
            parent=body.parent,
            options=body.options,
            instructions=body.instructions,
            aside=body.aside,
            about=body.about,
            system=body.system,
            title=body.title,
            settings=_settings(body),
            temporary=body.temporary,
            history=_said(body.history),
            idempotency_key=_key(idempotency_key),
            interactive=body.interactive,
        )
        return self._accepted(await self._runs.accept(request))

    async def graft(self, id: str, body: Graft) -> Response:
        """Safe to repeat: what is there already is not copied again."""
        found = await self._store.conversation(LOCAL_OWNER, id)
        changed = await self._store.graft(
            LOCAL_OWNER, found.id, onto=body.onto, first=body.first, leaf=body.leaf
        )
        return JSONResponse(conversation_json(changed))

    async def regenerate(
        self,
        id: str,
        body: NewReply,
        idempotency_key: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Another reply to a user message that is there already."""
        found = await self._store.conversation(LOCAL_OWNER, id)
        if body.continue_ is not None:
            return await self._go_on(found, body.continue_, body, _key(idempotency_key))
        if body.parent is None:
            raise errors.InvalidRequest("parent or continue: one is needed.", param="parent")
        request = ReplyRequest(
            owner=LOCAL_OWNER,
            conversation=found.id,
            parent=body.parent,
            options=body.options,
            instructions=body.instructions,
            aside=body.aside,
            idempotency_key=_key(idempotency_key),
            interactive=body.interactive,
        )
        return self._accepted(await self._runs.accept_reply(request))

    async def _go_on(
        self, conversation: Conversation, message: str, body: NewReply, key: str | None
    ) -> Response:
        for name in ("parent", "instructions"):
            if getattr(body, name) is not None:
                raise errors.InvalidRequest(f"{name}: not together with continue.", param=name)
        request = ContinueRequest(
            owner=LOCAL_OWNER,
            conversation=conversation.id,
            message=message,
            options=body.options,
            aside=body.aside,
            idempotency_key=key,
            interactive=body.interactive,
        )
        return self._accepted(await self._runs.accept_continued(request))

    def _accepted(self, turn: Turn) -> Response:
        if turn.conversation.temporary:
            self._temporary.touch(LOCAL_OWNER, turn.conversation.id)
        return _accepted(turn)

    async def plan(self, id: str, body: Draft) -> Response:
        """What would go into the prompt if this were sent now."""
        request = TurnRequest(
            owner=LOCAL_OWNER,
            conversation=await self._id(id, body),
            text=body.text,
            parent=body.parent,
            options=body.options,
            system=body.system,
            settings=_settings(body),
            history=_said(body.history),
        )
        return JSONResponse(plan_json(await self._runs.plan(request)))

    async def warm(self, id: str) -> Response:
        """A hint that a message may follow soon. May be repeated at will."""
        found = await self._store.conversation(LOCAL_OWNER, id)
        warming = await self._runs.warm(LOCAL_OWNER, found.id)
        return JSONResponse({"warming": warming}, status_code=202)

    async def hold(self, id: str) -> Response:
        """A temporary conversation lives as long as such a stream is open, and a little longer."""
        hold = await self._temporary.hold(LOCAL_OWNER, id)
        return EventStream(native(hold), on_close=hold.release)

    async def _id(self, id: str, body: NewMessage | Draft) -> str | None:
        """The conversation's whole id (a prefix of it is taken too); None for a new one."""
        if id == NEW:
            return None
        given = sorted(body.model_fields_set & _OF_NEW)
        if given:
            raise errors.InvalidRequest(
                f"{given[0]}: only a new conversation takes this here; change it with PATCH.",
                param=given[0],
            )
        return (await self._store.conversation(LOCAL_OWNER, id)).id

    # ---- runs

    async def run(self, id: str) -> Response:
        return JSONResponse(run_json(await self._store.run(LOCAL_OWNER, id)))

    async def cancel(self, id: str) -> Response:
        """Safe to call twice, and after the end; the end comes through the stream."""
        await self._runs.cancel(LOCAL_OWNER, id)
        return JSONResponse(run_json(await self._store.run(LOCAL_OWNER, id)), status_code=202)

    async def events(
        self,
        id: str,
        after: Cursor = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Replays what follows the cursor, then goes on live. Leaving it does not stop the run.

        204 when the end was delivered before, or an EventSource would reconnect for ever.
        """
        start = cursor(after, last_event_id) or 0
        reader = await self._runs.follow(LOCAL_OWNER, id, start)
        return Response(status_code=204) if reader.at_end else EventStream(native(reader))

    # ---- search

    async def search(
        self,
        q: Annotated[str, Query(max_length=MAX_QUERY_CHARS), AfterValidator(_not_blank)],
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
    ) -> Response:
        found = await self._store.search(LOCAL_OWNER, q, limit=limit)
        return JSONResponse({"hits": [asdict(hit) for hit in found]})


def cursor(after: int | None, last_event_id: str | None) -> int | None:
    """The header wins: an EventSource that reconnects repeats the address as it was."""
    if last_event_id is None or last_event_id == "":
        return after
    if not (last_event_id.isascii() and last_event_id.isdecimal() and len(last_event_id) < 19):
        raise errors.InvalidRequest("Last-Event-ID: must be a number from this stream.")
    return int(last_event_id)


def _key(value: str | None) -> str | None:
    if value is not None and not _KEY.fullmatch(value):
        raise errors.InvalidRequest(
            "Idempotency-Key: 1 to 255 visible ASCII characters.", param="Idempotency-Key"
        )
    return value


def _said(history: list[Earlier]) -> list[Said]:
    return [Said(one.role, one.text) for one in history]


def _settings(body: NewConversation | ConversationChanges | NewMessage | Draft) -> dict[str, Any]:
    """A conversation's settings are sampling options, held to the same bounds."""
    settings = body.settings or {}
    sampling_options.check(settings)
    return settings


# ---- JSON -------------------------------------------------------------------------------------


def _accepted(turn: Turn) -> Response:
    body = {
        "conversation": conversation_json(turn.conversation),
        "message": message_json(turn.message),
        "reply": message_json(turn.reply),
        "run": run_json(turn.run),
        "created": turn.created,
    }
    place = {"Location": f"{wire.API}/runs/{turn.run.id}/events"}
    return JSONResponse(body, status_code=202, headers=place)


def conversation_json(conversation: Conversation) -> dict[str, Any]:
    return _fields(conversation, "owner")


def message_json(message: Message) -> dict[str, Any]:
    return _fields(message, "tokens", "vocab_hash")


def run_json(run: Run) -> dict[str, Any]:
    return _fields(run, "owner", "prompt", "vocab_hash", "template_hash", "interactive")


def plan_json(forecast: Forecast) -> dict[str, Any]:
    plan = forecast.plan
    return {
        "text_tokens": forecast.text_tokens,
        "prompt_tokens": len(plan.prompt),
        "cached_tokens": forecast.cached_tokens,
        "n_ctx": plan.n_ctx,
        "included": plan.included,
        "left_out": list(plan.left_out),
    }


def _fields(value: Conversation | Message | Run, *left_out: str) -> dict[str, Any]:
    """By name, not by asdict: that would copy thousands of token ids only to drop them."""
    names = (field.name for field in fields(value))
    return {name: getattr(value, name) for name in names if name not in left_out}
