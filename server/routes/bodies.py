"""How request bodies are read: strict JSON into pydantic models, which end at this edge.

JSON is UTF-8 here (RFC 8259); another encoding is refused, not guessed. Lone surrogates become
U+FFFD, so that no later turn, log or reply can stumble over them.
Sampling options pass through here as they come: sampling_options.py knows their bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

_SURROGATE = re.compile("[\ud800-\udfff]")


class StrictRequest(Request):
    """Reads JSON as we want it; FastAPI calls `json` for every body."""

    async def json(self) -> Any:
        raw = await self.body()
        try:
            # surrogatepass: what some programs write for half a character is replaced below.
            data = json.loads(raw.decode("utf-8-sig", "surrogatepass"))
            return _scrub(data) if b"\\u" in raw or b"\xed" in raw else data
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            # Not UTF-8, a number of thousands of digits, or nesting beyond reason.
            reason = "nested too deeply" if isinstance(error, RecursionError) else "unreadable"
            raise json.JSONDecodeError(reason, "", 0) from None


class StrictRoute(APIRoute):
    """The route class of every router that takes a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    return value


def wrong(message: str, *, param: str | None = None) -> PydanticCustomError:
    """A refusal from a validator: the sentence follows the field's name.

    `param` names the field where the validator is one of the whole body.
    """
    return PydanticCustomError("wrong", "{reason}", {"reason": message, "param": param})


class Body(BaseModel):
    """Base of every body: JSON types as they are, no guessing; unknown names are refused."""

    model_config = ConfigDict(strict=True, extra="forbid")
