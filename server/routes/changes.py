"""The route of the feed of changes, for a second device that shows what the first one does."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from hobnob.server import wire
from hobnob.server.changes import Changes
from hobnob.server.routes.native import Cursor, cursor
from hobnob.server.streams import EventStream, native
from hobnob.store.values import LOCAL_OWNER


class ChangeRoutes:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def router(self) -> APIRouter:
        router = APIRouter()
        router.add_api_route(f"{wire.API}/changes", self.changes, methods=["GET"])
        return router

    async def changes(
        self,
        after: Cursor = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Each change of the history as it comes, after those that follow the cursor."""
        reader = await self._changes.follow(LOCAL_OWNER, cursor(after, last_event_id))
        return EventStream(native(reader))
