"""Routes that show replies to the same message side by side. They change nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from hobnob.server import wire
from hobnob.server.routes.bodies import StrictRoute
from hobnob.server.routes.native import MAX_PAGE, conversation_json, message_json, run_json
from hobnob.store.store import Store
from hobnob.store.values import LOCAL_OWNER


class ComparisonRoutes:
    def __init__(self, store: Store) -> None:
        self._store = store

    def router(self) -> APIRouter:
        router = APIRouter(prefix=wire.API, route_class=StrictRoute)
        router.add_api_route("/conversations/{id}/replies", self.replies, methods=["GET"])
        router.add_api_route("/comparisons", self.comparisons, methods=["GET"])
        return router

    async def replies(self, id: str, parent: str) -> Response:
        """Every reply to a user's message, with the run that wrote it."""
        place = await self._store.conversation(LOCAL_OWNER, id)
        found = await self._store.replies(LOCAL_OWNER, place.id, parent)
        return JSONResponse(
            {
                "conversation": conversation_json(found.conversation),
                "message": message_json(found.message),
                "replies": [
                    {"reply": message_json(reply), "run": None if run is None else run_json(run)}
                    for reply, run in found.replies
                ],
            }
        )

    async def comparisons(self, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50) -> Response:
        found = await self._store.comparisons(LOCAL_OWNER, limit=limit)
        return JSONResponse({"comparisons": [asdict(one) for one in found]})
