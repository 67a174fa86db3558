"""Routes that look after the database: a copy of it, and what is wrong with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import BinaryIO

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse, StreamingResponse

from hobnob.server import wire
from hobnob.server.routes.bodies import StrictRoute
from hobnob.store.store import Store

PIECE_BYTES = 256 * 1024


class UpkeepRoutes:
    def __init__(self, store: Store) -> None:
        self._store = store

    def router(self) -> APIRouter:
        router = APIRouter(route_class=StrictRoute)
        router.add_api_route(f"{wire.API}/backup", self.backup, methods=["GET"])
        router.add_api_route(f"{wire.API}/check", self.check, methods=["GET"])
        return router

    async def backup(self) -> Response:
        """The whole history of this moment as one database file."""
        file = await self._store.open_copy()
        size = os.fstat(file.fileno()).st_size
        return StreamingResponse(
            _pieces(file),
            media_type="application/vnd.sqlite3",
            headers={"Content-Length": str(size), "Cache-Control": "no-store"},
        )

    async def check(self) -> Response:
        return JSONResponse({"problems": await self._store.check()})


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece
