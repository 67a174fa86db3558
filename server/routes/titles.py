"""The route that has the model find a title now."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from hobnob.server import titling, wire
from hobnob.server.routes.bodies import StrictRoute
from hobnob.server.routes.native import conversation_json
from hobnob.server.runs import Runs
from hobnob.store.store import Store
from hobnob.store.values import LOCAL_OWNER


class TitleRoutes:
    def __init__(self, store: Store, runs: Runs) -> None:
        self._store = store
        self._runs = runs

    def router(self) -> APIRouter:
        router = APIRouter(prefix=wire.API, route_class=StrictRoute)
        router.add_api_route("/conversations/{id}/title", self.title, methods=["POST"])
        return router

    async def title(self, id: str) -> Response:
        """Answered when the model has; a title that somebody sets meanwhile stays."""
        found = await self._store.conversation(LOCAL_OWNER, id)
        titled = await titling.title_now(self._store, self._runs, found)
        now = await self._store.conversation(LOCAL_OWNER, found.id)
        return JSONResponse({"conversation": conversation_json(now), "titled": titled})
