"""Counts what is answered, route by route."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hobnob.server.tally import Tally


class Counted:
    """Middleware that counts every answer, also those that a guard gave. Pure ASGI."""

    def __init__(self, app: ASGIApp, *, tally: Tally) -> None:
        self._app = app
        self._tally = tally

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", None)
                self._tally.answered(scope["method"], route, message["status"])
            await send(message)

        await self._app(scope, receive, counted)
