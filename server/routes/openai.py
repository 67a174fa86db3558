"""The OpenAI API: /v1/chat/completions and /v1/models, as far as docs/api.md says.

Runs of this API are not stored and end with their client, streamed or not, also while they wait.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from hobnob.server import errors, streams, wire
from hobnob.server.engine.protocol import Logprob
from hobnob.server.engine.state import EnginePort
from hobnob.server.log import Reader
from hobnob.server.requests import CompletionRequest
from hobnob.server.routes import chat_reply
from hobnob.server.routes.bodies import StrictRoute
from hobnob.server.routes.chat_body import ChatBody, chat_options, messages_of
from hobnob.server.runs import Runs
from hobnob.server.served import ServedModel
from hobnob.store.values import LOCAL_OWNER

CLIENT_LEFT = 499
"""Never seen by anyone: the client is gone. For logs and tests."""


class OpenAIRoutes:
    def __init__(self, runs: Runs, engine: EnginePort, model: ServedModel) -> None:
        self._runs = runs
        self._engine = engine
        self._model = model

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", route_class=StrictRoute)
        router.add_api_route("/chat/completions", self.chat, methods=["POST"])
        router.add_api_route("/models", self.models, methods=["GET"])
        router.add_api_route("/models/{name:path}", self.model, methods=["GET"])
        return router

    async def chat(self, request: Request, body: ChatBody) -> Response:
        self._model.require(body.model)
        completion = _completion(body)
        work = self._streamed if body.stream else self._whole
        try:
            return await streams.unless_gone(request.receive, work(completion, body))
        except streams.ClientGone:
            return Response(status_code=CLIENT_LEFT)

    async def models(self) -> Response:
        data = [self._model_json()] if self._model.id else []
        return JSONResponse({"object": "list", "data": data})

    async def model(self, name: str) -> Response:
        self._model.require(name)
        return JSONResponse(self._model_json())

    # ---- completions

    async def _whole(self, completion: CompletionRequest, body: ChatBody) -> Response:
        header = self._header()
        live = await self._runs.complete(completion)
        outcome = chat_reply.Outcome()
        try:
            reader = live.read()
            async for event in reader:
                outcome.take(event.payload, _logprobs(reader, event))
        finally:
            self._runs.abandon(live)
        if outcome.failure is not None:
            raise outcome.failure
        return JSONResponse(chat_reply.whole(header, outcome, with_logprobs=bool(body.logprobs)))

    async def _streamed(self, completion: CompletionRequest, body: ChatBody) -> Response:
        """Refusals come before this returns; the stream opens at once, whatever the queue."""
        header = self._header(with_usage=body.wants_usage)
        live = await self._runs.complete(completion)
        return streams.EventStream(
            _blocks(live.read(), header),
            on_close=lambda: self._runs.abandon(live),
        )

    def _header(self, *, with_usage: bool = False) -> chat_reply.Header:
        return chat_reply.Header(
            id=f"chatcmpl-{secrets.token_hex(12)}",
            created=int(time.time()),
            model=self._model.id,
            fingerprint=self._fingerprint(),
            with_usage=with_usage,
        )

    def _fingerprint(self) -> str:
        """Changes when the weights' file, the template or the device that answers does."""
        text, ready = self._engine.status.text, self._engine.status.ready
        seen = [self._model.id, self._model.created_at]
        seen += [text.vocab_hash, text.template_hash] if text is not None else []
        seen += [ready.device, ready.gpu_layers] if ready is not None else []
        return "fp_" + hashlib.blake2b(repr(seen).encode(), digest_size=6).hexdigest()

    def _model_json(self) -> dict[str, Any]:
        return {
            "id": self._model.id,
            "object": "model",
            "created": self._model.created_at,
            "owned_by": "hobnob",
        }


def _completion(body: ChatBody) -> CompletionRequest:
    messages = messages_of(body)
    if messages[-1].role == "user" and not messages[-1].text.strip():
        raise errors.EmptyPrompt("The last message is empty.", param="messages")
    return CompletionRequest(owner=LOCAL_OWNER, messages=messages, options=chat_options(body))


async def _blocks(reader: Reader, header: chat_reply.Header) -> AsyncGenerator[str, None]:
    outcome = chat_reply.Outcome()

    def render(event: wire.Event) -> str:
        said = len(outcome.logprobs)
        text = outcome.take(event.payload, _logprobs(reader, event))
        logprobs = outcome.logprobs[said:]
        if not text and not logprobs:
            return ""
        return chat_reply.chunk(header, {"content": text}, logprobs=logprobs)

    yield chat_reply.chunk(header, {"role": "assistant", "content": ""})
    async with aclosing(streams.rendered(reader, render)) as chunks:
        async for chunk in chunks:
            yield chunk
    if outcome.failure is not None or outcome.finish_reason is None:
        yield chat_reply.error_block(outcome.failure or errors.Internal("The reply was cut off."))
        return
    yield chat_reply.chunk(header, {}, finish_reason=outcome.finish_reason)
    if header.with_usage:
        yield chat_reply.usage_chunk(header, outcome.usage)
    yield chat_reply.DONE


def _logprobs(reader: Reader, event: wire.Event) -> list[Logprob]:
    """Those behind a numbered event; other events have no entry."""
    if event.seq is None or reader.entry is None:
        return []
    return reader.entry.logprobs
