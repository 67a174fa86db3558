"""The route that takes a whole conversation from a file, with its own ids and times."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, Field

from hobnob.server import errors, sampling_options, wire
from hobnob.server.routes.bodies import Body, StrictRoute, wrong
from hobnob.server.routes.native import Title, conversation_json
from hobnob.server.runs import Runs
from hobnob.store.store import Store
from hobnob.store.values import LOCAL_OWNER, Conversation, Message

MAX_MESSAGES = 100_000
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999."""


def _blocks(value: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for block in value:
        otherwise = None if block.get("type") == "text" else ""
        if not isinstance(block.get("type"), str) or not isinstance(
            block.get("text", otherwise), str
        ):
            raise wrong("each block has a type, and a text that is one")
    _plain(value)
    return value


def _plain(value: Any) -> Any:
    """JSON that can be written as it was read: no NaN, no infinity, no endless nesting."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        raise wrong("holds numbers that are none, or is nested too deeply") from None
    return value


Id = Annotated[str, Field(pattern=r"^[0-9a-f]{20}$")]
Time = Annotated[int, Field(ge=FIRST_MS, le=LAST_MS)]
Blocks = Annotated[list[dict[str, Any]], AfterValidator(_blocks)]
Values = Annotated[dict[str, Any], AfterValidator(_plain)]
Short = Annotated[str, Field(max_length=1000)]


class ImportedMessage(Body):
    id: Id
    parent: Id | None = None
    role: Literal["user", "assistant"]
    blocks: Blocks
    status: Literal["completed", "length", "cancelled", "refused", "failed"] = "completed"
    created_at: Time
    model: Short | None = None
    stop_reason: Short | None = None
    error: Short | None = None
    usage: Values | None = None
    timings: Values | None = None


class ImportedConversation(Body):
    """Messages in the order of writing: each after its parent."""

    id: Id
    title: Title = ""
    system: str | None = None
    settings: Values = {}
    pinned: bool = False
    head: Id | None = None
    created_at: Time
    updated_at: Time
    messages: Annotated[list[ImportedMessage], Field(max_length=MAX_MESSAGES)]


class ImportRoutes:
    def __init__(self, store: Store, runs: Runs) -> None:
        self._store = store
        self._runs = runs

    def router(self) -> APIRouter:
        router = APIRouter(prefix=wire.API, route_class=StrictRoute)
        router.add_api_route("/conversations/import", self.take, methods=["POST"])
        return router

    async def take(self, body: ImportedConversation) -> Response:
        """All of it, or nothing where there is one of that id: may be repeated at will."""
        sampling_options.check(body.settings)
        self._runs.check_system(body.system)
        messages = [_message(body.id, one) for one in body.messages]
        self._check(messages)
        done = await self._store.import_conversation(LOCAL_OWNER, _conversation(body), messages)
        there = await self._store.conversation(LOCAL_OWNER, body.id)
        answer = {"conversation": conversation_json(there), "imported": done}
        return JSONResponse(answer, status_code=201 if done else 200)

    def _check(self, messages: list[Message]) -> None:
        """What could not have been sent or written here: it could not be gone on with."""
        for number, message in enumerate(messages):
            place = f"messages.{number}"
            if message.role == "user" and message.status != "completed":
                raise errors.InvalidRequest(f"{place}.status: of a user's message.", param=place)
            if message.parent is None and message.status != "completed":
                sentence = f"{place}.status: a reply to nothing cannot be gone on with."
                raise errors.InvalidRequest(sentence, param=place)
            try:
                self._runs.check_system(message.text)  # the same bound as for a message
            except errors.TextTooLong as error:
                raise errors.TextTooLong(error.message, param=place) from None


def _conversation(body: ImportedConversation) -> Conversation:
    return Conversation(
        id=body.id,
        owner=LOCAL_OWNER,
        title=body.title,
        system=body.system,
        head=body.head,
        settings=body.settings,
        pinned=body.pinned,
        temporary=False,
        created_at=body.created_at,
        updated_at=body.updated_at,
        change=0,  # the store gives it one
    )


def _message(conversation: str, one: ImportedMessage) -> Message:
    said = (str(block["text"]) for block in one.blocks if block["type"] == "text")
    return Message(
        id=one.id,
        conversation=conversation,
        parent=one.parent,
        role=one.role,
        text="".join(said),
        blocks=one.blocks,
        status=one.status,
        created_at=one.created_at,
        model=one.model,
        stop_reason=one.stop_reason,
        error=one.error,
        usage=one.usage,
        timings=one.timings,
    )
