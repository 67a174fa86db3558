"""Routes about the server itself: health, status, numbers, models, counting tokens, stopping."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from itertools import islice
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from hobnob.server import wire
from hobnob.server.engine.state import EnginePort
from hobnob.server.fitting import Fittings
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.routes.bodies import Body, StrictRoute
from hobnob.server.status import StatusReport
from hobnob.server.tally import RECORDS, Tally

ModelLister = Callable[[], list[dict[str, Any]]]
"""The models on this machine, as JSON values. Reads folders, so it runs in a thread."""


class TextToCount(Body):
    text: str


class AdminRoutes:
    def __init__(
        self,
        report: StatusReport,
        engine: EnginePort,
        lifecycle: Lifecycle,
        models: ModelLister,
        tally: Tally,
    ) -> None:
        self._report = report
        self._engine = engine
        self._lifecycle = lifecycle
        self._models = models
        self._tally = tally
        self._fittings = Fittings()
        self._judging = asyncio.Lock()

    def router(self) -> APIRouter:
        router = APIRouter(route_class=StrictRoute)
        add = router.add_api_route
        add("/health", self.health, methods=["GET"])
        add(f"{wire.API}/health", self.health, methods=["GET"])
        add(f"{wire.API}/status", self.status, methods=["GET"])
        add(f"{wire.API}/steps", self.steps, methods=["GET"])
        add("/metrics", self.metrics, methods=["GET"])
        add(f"{wire.API}/models", self.models, methods=["GET"])
        add(f"{wire.API}/count", self.count, methods=["GET"])
        add(f"{wire.API}/count", self.count_body, methods=["POST"])
        add(f"{wire.API}/stop", self.stop, methods=["POST"])
        return router

    async def health(self) -> Response:
        return JSONResponse(self._report.health())

    async def status(self) -> Response:
        return JSONResponse(self._report.snapshot())

    async def steps(self, newest: Annotated[int, Query(ge=1, le=RECORDS)] = 100) -> Response:
        """Records of the last steps, oldest first, as far as the engine has sent them."""
        records = list(islice(reversed(self._tally.records), newest))
        found = [msgspec.structs.asdict(record) for record in reversed(records)]
        return JSONResponse({"steps": found})

    async def metrics(self) -> Response:
        """In Prometheus' text format."""
        # In a thread: the first import takes a while. The numbers are the event loop's.
        module = await asyncio.to_thread(importlib.import_module, "hobnob.server.metrics")
        text: bytes = module.text(self._report, self._tally)
        return Response(text, headers={"Content-Type": module.CONTENT_TYPE})

    async def models(self) -> Response:
        """With an estimate of whether each would fit into the memory that is free now."""
        async with self._judging:
            status = self._engine.status
            found = await asyncio.to_thread(lambda: self._fittings.judged(self._models(), status))
        return JSONResponse({"models": found})

    async def count(self, text: str) -> Response:
        return JSONResponse({"tokens": len(await self._engine.tokenize(text))})

    async def count_body(self, body: TextToCount) -> Response:
        """For texts that are too long for an address."""
        return await self.count(body.text)

    async def stop(self, restarting: bool = False) -> Response:
        """Answered before anything is closed; safe to call twice."""
        if restarting:
            self._lifecycle.request_restart()
        else:
            self._lifecycle.request_stop()
        return JSONResponse({"stopping": True}, status_code=202)
