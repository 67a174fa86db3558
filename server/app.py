"""The web application, built from parts that are open already. Holds no state of its own.

The parts are opened and closed by main.py, around the server and not in the application's
lifespan: uvicorn ends that only after it has waited for every open stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from hobnob.server import errors
from hobnob.server.changes import Changes
from hobnob.server.engine.state import EnginePort
from hobnob.server.lifecycle import Lifecycle
from hobnob.server.routes import envelopes
from hobnob.server.routes.admin import AdminRoutes, ModelLister
from hobnob.server.routes.changes import ChangeRoutes
from hobnob.server.routes.comparisons import ComparisonRoutes
from hobnob.server.routes.counted import Counted
from hobnob.server.routes.imports import ImportRoutes
from hobnob.server.routes.native import NativeRoutes
from hobnob.server.routes.openai import OpenAIRoutes
from hobnob.server.routes.titles import TitleRoutes
from hobnob.server.routes.upkeep import UpkeepRoutes
from hobnob.server.runs import Runs
from hobnob.server.security import Guard, Policy
from hobnob.server.served import ServedModel
from hobnob.server.status import StatusReport
from hobnob.server.tally import Tally
from hobnob.server.temporary import Temporary
from hobnob.store import values
from hobnob.store.store import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes work with. Whoever made them closes them."""

    store: Store
    engine: EnginePort
    runs: Runs
    changes: Changes
    temporary: Temporary
    lifecycle: Lifecycle
    policy: Policy
    model: ServedModel
    report: StatusReport
    models: ModelLister
    tally: Tally


REFUSALS: tuple[type[Exception], ...] = (
    errors.HobnobError,
    values.StoreError,
    RequestValidationError,
    HTTPException,
    Exception,  # the last resort; its traceback goes to the log
)


def build_app(parts: Parts) -> FastAPI:
    # No generated pages: they would be open to anyone, and load scripts from the network.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for router in routers(parts):
        app.include_router(router)

    async def refuse(request: Request, error: Exception) -> Response:
        if isinstance(error, errors.Busy):
            parts.tally.refused(error.code)
        return envelopes.response(request.url.path, error)

    for kind in REFUSALS:
        app.add_exception_handler(kind, refuse)
    app.add_middleware(Guard, policy=parts.policy, lifecycle=parts.lifecycle)
    app.add_middleware(Counted, tally=parts.tally)  # outermost: what the guard refuses counts
    return app


def routers(parts: Parts) -> list[APIRouter]:
    """Everything that is served."""
    return [
        NativeRoutes(parts.store, parts.runs, parts.temporary).router(),
        ImportRoutes(parts.store, parts.runs).router(),
        ComparisonRoutes(parts.store).router(),
        TitleRoutes(parts.store, parts.runs).router(),
        ChangeRoutes(parts.changes).router(),
        OpenAIRoutes(parts.runs, parts.engine, parts.model).router(),
        AdminRoutes(
            parts.report, parts.engine, parts.lifecycle, parts.models, parts.tally
        ).router(),
        UpkeepRoutes(parts.store).router(),
    ]
