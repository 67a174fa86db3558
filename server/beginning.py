"""What a run begins with: its row in the store, what the registry keeps of it, its first events.

Pure, but for the loop's clock and the ids of runs that are not stored.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace

from hobnob.server import continuing
from hobnob.server.intake import Prepared
from hobnob.server.live import Job
from hobnob.server.log import LogEntry
from hobnob.server.requests import (
    CompletionRequest,
    ContinueRequest,
    QuestionRequest,
    ReplyRequest,
    TurnRequest,
)
from hobnob.server.sampling_options import to_params
from hobnob.store.values import NewRun, Turn

Request = TurnRequest | ReplyRequest | ContinueRequest
Unstored = CompletionRequest | QuestionRequest


def opening(prepared: Prepared, turn: Turn) -> list[LogEntry]:
    assert prepared.kept is not None, "the reply begins with nothing"
    sampling = prepared.options.sampling
    return continuing.opening(prepared.kept, sampling.stop, prepared.plan, sampling.seed, turn)


def new_run(prepared: Prepared, request: Request) -> NewRun:
    plan, kept = prepared.plan, prepared.kept
    params = to_params(prepared.options)
    params["context"] = {"n_ctx": plan.n_ctx, "included": plan.included, "left_out": plan.left_out}
    if isinstance(request, ContinueRequest):
        assert kept is not None, "there is something to go on with"
        options, instructions = {**kept.asked, **request.options}, kept.instructions
        params[continuing.CONTINUED] = {"message": kept.message, "tokens": len(kept.tokens)}
    else:
        options, instructions = dict(request.options), request.instructions
    params["asked"] = {"options": options, "instructions": instructions}
    return NewRun(
        api="native",
        model=prepared.model,
        params=params,
        prompt=plan.prompt,
        vocab_hash=prepared.text.vocab_hash,
        template_hash=prepared.text.template_hash,
        interactive=request.interactive,
        idempotency_key=request.idempotency_key,
        request_hash=request.request_hash if request.idempotency_key is not None else None,
    )


def job_of(
    prepared: Prepared, owner: str, run: str, conversation: str, message: str, interactive: bool
) -> Job:
    return Job(
        id=run,
        owner=owner,
        conversation=conversation,
        message=message,
        model=prepared.model,
        prompt=prepared.prompt,
        sampling=prepared.options.sampling,
        vocab_hash=prepared.text.vocab_hash,
        exact=prepared.options.exact,
        interactive=interactive,
        accepted_at=asyncio.get_running_loop().time(),
        planned_s=prepared.planned_s,
    )


def job_unstored(prepared: Prepared, request: Unstored) -> Job:
    """Of a run in memory only. One about a conversation is ended when that is deleted."""
    run, place = "run_" + secrets.token_hex(12), prepared.conversation or ""
    job = job_of(prepared, request.owner, run, place, run, request.interactive)
    return replace(job, yields=isinstance(request, QuestionRequest) and request.yields)
