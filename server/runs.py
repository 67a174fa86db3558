"""The registry of live runs: one producer per run, many readers, exactly one terminal event.

Owns every run from its acceptance to its end, hands it to the engine (again, after a death),
and logs before it shows. A run outlives its socket. Event loop thread only.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from hobnob.server import admission, beginning, recovery, wire
from hobnob.server.dispatch import Dispatch
from hobnob.server.engine.state import EnginePort, EngineState
from hobnob.server.errors import Conflict, Gone, Internal, ServerStopping
from hobnob.server.finished import Finished, Followable, reader_of, stored_log
from hobnob.server.intake import Forecast, Intake, Prepared
from hobnob.server.journal import Journal, logged
from hobnob.server.live import LiveRun, Phase
from hobnob.server.log import Reader
from hobnob.server.requests import (
    CompletionRequest,
    ContinueRequest,
    QuestionRequest,
    ReplyRequest,
    RunSettings,
    TurnRequest,
)
from hobnob.server.title import title_from
from hobnob.store.store import Store
from hobnob.store.values import LIVE, Damaged, LoggedEvent, Run, Stale, Turn, WriteFailed

CANCEL_SECONDS = 5.0
"""How long a deleted conversation's runs may take to end before they are dropped."""

NOTE_SECONDS = 2.0
"""How long the answer to a cancel waits for the disk."""

DRAIN_SECONDS = 0.8
"""How long a stop waits for the log to take what has been received."""

STOPPING_RETRY_SECONDS = 5

_STOPPING = wire.StreamError("server_stopping", "The server is stopping; the reply will go on.")
_BROKEN = wire.StreamError("internal", "The server cannot log replies any more and stops.")


class Runs:
    def __init__(
        self,
        store: Store,
        engine: EnginePort,
        settings: RunSettings,
        *,
        now_ms: Callable[[], int],
        choose_seed: Callable[[], int] = lambda: secrets.randbelow(2**63),
        on_broken: Callable[[], None] = lambda: None,
    ):
        """Listens to the engine from here on. `start` before the first request. `on_broken`:
        nothing can be logged any more, so nothing will be shown; only another server can go on.
        """
        self._store = store
        self._engine = engine
        self._settings = settings
        self._now_ms = now_ms
        self._on_broken = on_broken
        self._intake = Intake(store, engine, settings, choose_seed)
        self._journal = Journal(
            store,
            retry_s=settings.store_retry_s,
            patience_s=settings.store_patience_s,
            settled=self._settle,
            lost=self._lose,
        )
        self._dispatch = Dispatch(engine, self._journal, settings)
        self._limits = admission.Limits(
            settings.max_running,
            settings.max_waiting if settings.queue_timeout_s > 0 else 0,
            settings.max_waiting_tokens,
        )
        self._finished = Finished(settings.finished_kept, settings.finished_kept_bytes)
        self._arriving: list[int] = []  # prompt tokens of runs that are being stored
        self._unreadable: set[str] = set()  # in flight, but the disk does not give their log
        self._tasks: set[asyncio.Task[Any]] = set()
        self._journal_task: asyncio.Task[None] | None = None
        self._closing: wire.StreamError | None = None  # set: no run enters, readers end
        self._listeners: list[Callable[[LiveRun], None]] = []
        engine.listen(self._dispatch)

    # ---- life

    async def start(self) -> None:
        """Starts the journal and takes up what the store says is in flight."""
        self._journal_task = asyncio.create_task(self._journal.run(), name="journal")
        self._journal_task.add_done_callback(self._journal_ended)
        await self.recover()

    async def recover(self) -> None:
        """Runs of an earlier server go on; those older than the bound end failed, and those that
        were being cancelled end so. Their text is kept."""
        now = asyncio.get_running_loop().time()
        for run in await self._store.in_flight():
            try:
                events = await self._store.events(run.owner, run.id)
            except Damaged:
                self._unreadable.add(run.id)
                continue  # a damaged page must not keep the others from going on
            try:
                live = recovery.restore(run, events, now=now)
            except recovery.LogUnreadable:
                await self._end_unreadable(run, events)
                continue
            # A long reply is not old: what counts is how long nobody has worked on it.
            alive_at = max(run.created_at, self._store.last_written_ms)
            age_s = (self._now_ms() - alive_at) / 1000
            if run.cancel_asked:
                live.cancelled = True
                live.finish(live.ending_here(wire.StopReason.CANCELLED))
            elif age_s > self._settings.recover_age_s:
                why = wire.Failure(recovery.INTERRUPTED, "The server was stopped for too long.")
                live.finish(live.ending_here(wire.StopReason.ERROR, why))
            self._dispatch.enter(live)

    async def _end_unreadable(self, run: Run, events: list[LoggedEvent]) -> None:
        try:
            await self._store.append([recovery.unreadable_end(run, events)])
        except Stale:
            raise
        except WriteFailed:  # a full disk: the next start tries again
            self._unreadable.add(run.id)

    async def stop(self) -> None:
        """Every reader gets StreamError(server_stopping); runs stay as they are in the store.

        Waits for no reader. Safe to call twice.
        """
        self._shut(_STOPPING)
        await self._journal.drain(DRAIN_SECONDS)
        if self._journal_task is not None:
            self._journal_task.cancel()
            await asyncio.wait([self._journal_task])

    @property
    def live_count(self) -> int:
        """Runs that have not ended, those being accepted included."""
        return len(self._arriving) + len(self._dispatch.unended)

    @property
    def waiting_count(self) -> int:
        """Live runs that have not started in the engine."""
        return self._load().waiting

    @property
    def saving(self) -> bool:
        """False while the store cannot write, or does not answer."""
        return self._journal.saving

    @property
    def unsaved_count(self) -> int:
        """Runs with something that is in memory only, ended ones included."""
        return self._journal.owing

    # ---- acceptance

    async def accept(self, request: TurnRequest) -> Turn:
        """Plans, stores the user's message, and submits. Nothing is stored when it raises.

        Raises HobnobErrors (EmptyPrompt, PromptTooLong, InvalidRequest with `param`, Busy,
        ModelLoading, ModelUnavailable, Conflict, ServerStopping) and store.values errors
        (NotFound, BadParent, KeyReused, WriteFailed), which the edge maps. Being cancelled does
        not undo an acceptance that is being stored.
        """
        earlier = await self._earlier(request)
        if earlier is not None:
            return earlier
        self._intake.check_text(request.text)
        self._check_open()
        prepared = await self._intake.turn(request)
        new_run = beginning.new_run(prepared, request)
        new = request.conversation is None
        title = title_from(request.first_text) if request.title is None else request.title

        async def begin() -> Turn:
            return await self._store.begin_turn(
                request.owner,
                prepared.conversation,
                parent=prepared.parent,
                text=request.text,
                run=new_run,
                aside=request.aside,
                about=request.about,
                title=title,  # of use only where there is none yet
                system=request.system if new else None,
                settings=dict(request.settings) if new else None,
                temporary=new and request.temporary,
                history=request.history if new else (),
            )

        return await self._store_and_enter(prepared, begin)

    async def accept_reply(self, request: ReplyRequest) -> Turn:
        """As `accept`, for another reply to a stored user message."""
        earlier = await self._earlier(request)
        if earlier is not None:
            return earlier
        self._check_open()
        prepared = await self._intake.reply(request)
        new_run = beginning.new_run(prepared, request)
        conversation = prepared.conversation or request.conversation

        async def begin() -> Turn:
            return await self._store.begin_reply(
                request.owner,
                conversation,
                parent=request.parent,
                run=new_run,
                aside=request.aside,
            )

        return await self._store_and_enter(prepared, begin)

    async def accept_continued(self, request: ContinueRequest) -> Turn:
        """As `accept`, for a version of a reply that was cut, which goes on where that ends."""
        earlier = await self._earlier(request)
        if earlier is not None:
            return earlier
        self._check_open()
        prepared = await self._intake.continued(request)
        assert prepared.parent is not None, "a reply follows a message"
        parent, conversation = prepared.parent, prepared.conversation or request.conversation
        new_run = beginning.new_run(prepared, request)

        def opening(turn: Turn) -> list[LoggedEvent]:
            return [logged(entry) for entry in beginning.opening(prepared, turn)]

        async def begin() -> Turn:
            return await self._store.begin_reply(
                request.owner,
                conversation,
                parent=parent,
                run=new_run,
                aside=request.aside,
                opening=opening,
            )

        return await self._store_and_enter(prepared, begin)

    async def complete(self, request: CompletionRequest) -> LiveRun:
        """A run in memory only. Read it with `LiveRun.read()`; `abandon` it when the client goes.

        Raises as `accept` does, but no store errors.
        """
        self._intake.check_messages(request.messages)
        self._check_open()
        return self._enter_unstored(await self._intake.completion(request), request)

    async def question(self, request: QuestionRequest) -> LiveRun:
        """As `complete`; what is asked is no part of the conversation, and nor is the answer.

        Raises NotFound (store.values) too.
        """
        self._check_open()
        return self._enter_unstored(await self._intake.question(request), request)

    def abandon(self, live: LiveRun) -> None:
        """Ends a completion whose client is gone. Sync, idempotent, harmless after the end."""
        self._dispatch.cancel(live)

    async def warm(self, owner: str, conversation: str) -> bool:
        """Has the engine read the conversation while nobody needs it. False: not now, or there
        is nothing to read. No run comes of it. Raises NotFound (store.values)."""
        if not self.free:
            await self._store.conversation(owner, conversation)
            return False
        submit = await self._intake.warm(owner, conversation)
        if submit is None or not self.free:
            return False
        self._engine.submit(submit)
        return True

    @property
    def free(self) -> bool:
        """The engine is ready and nobody needs it."""
        ready = self._engine.status.state is EngineState.READY
        return ready and self._closing is None and not self.live_count

    async def plan(self, request: TurnRequest) -> Forecast:
        """What `accept` would send, without sending it."""
        self._intake.check_text(request.text)
        return await self._intake.forecast(request)

    def listen(self, listener: Callable[[LiveRun], None]) -> None:
        """It is called with each run that was stored, once its end is."""
        self._listeners.append(listener)

    def check_system(self, text: str | None) -> None:
        """Raises TextTooLong for a system prompt that no conversation may have."""
        self._intake.check_system(text)

    # ---- reading and cancelling

    async def follow(self, owner: str, run_id: str, after: int = 0) -> Reader:
        """A reader from `after` on. `reader.at_end`: the end was delivered before (204).

        Raises NotFound (store.values) and Gone: log pruned or damaged, or a cursor ahead of it
        (the log of a run that was not saved can be shorter after a crash).
        """
        found = self._followable(owner, run_id)
        if found is None:
            run = await self._store.run(owner, run_id)
            live = await self._entered(run)
            found = None if live is None else Followable.of(live)
        if found is not None:
            return reader_of(found.log, after, found.message)
        events = await self._store.whole_log(owner, run_id)
        return reader_of(stored_log(events, run.message), after, run.message)

    async def cancel(self, owner: str, run_id: str) -> None:
        """Idempotent; the end comes through the log. Raises NotFound, Closed (store.values).

        The wish is stored when this returns, so that it outlives this process. Where the store
        cannot write, or not soon, it holds in memory only, and `Run.cancel_asked` says so.
        """
        live = self._find(owner, run_id)
        if live is None:
            live = await self._entered(await self._store.run(owner, run_id))
        if live is None:
            return
        self._dispatch.cancel(live)
        if not live.cancelled:  # it had ended by itself
            return
        try:
            async with asyncio.timeout(NOTE_SECONDS):
                await self._store.ask_cancel(owner, run_id)
        except Stale:  # another server goes on with it, and does not know
            raise
        except (WriteFailed, TimeoutError):
            return

    async def cancel_conversation(self, owner: str, conversation: str) -> None:
        """Ends its live runs and forgets the ended ones: before a conversation is deleted."""
        found = [
            live
            for live in self._dispatch.unended
            if (live.job.owner, live.job.conversation) == (owner, conversation)
        ]
        for live in found:
            self._dispatch.cancel(live)
        for live in found:
            await self._wait_for_end(live)
        self._finished.drop_conversation(owner, conversation)
        await self._engine.forget(conversation)

    # ---- inside

    def _find(self, owner: str, run_id: str) -> LiveRun | None:
        """Under way, and stored: a completion has one reader, who has it already."""
        live = self._dispatch.find(run_id)
        if live is None or live.job.owner != owner or not live.job.conversation:
            return None
        return live

    def _followable(self, owner: str, run_id: str) -> Followable | None:
        """Under way or kept after its end."""
        live = self._find(owner, run_id)
        found = self._finished.find(run_id) if live is None else Followable.of(live)
        return found if found is not None and found.owner == owner else None

    async def _entered(self, run: Run) -> LiveRun | None:
        """The live run that belongs to a stored one; None when that has ended."""
        if run.status not in LIVE:
            return None
        if run.id in self._unreadable:
            raise Gone(
                "The log of this run lies on a damaged page; see `hobnob doctor --check-db`.",
                message_id=run.message,
            )
        if self._tasks:  # committed a moment ago and about to be entered
            await asyncio.wait(set(self._tasks))
        live = self._find(run.owner, run.id)
        if live is None and (await self._store.run(run.owner, run.id)).status in LIVE:
            raise Internal("Nobody works on this run; restart the server.")
        return live

    async def _wait_for_end(self, live: LiveRun) -> None:
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                async for _ in live.read(live.log.last_seq):
                    pass
        except TimeoutError:
            if live.phase is not Phase.ENDED:
                self._dispatch.drop(live)

    async def _earlier(self, request: beginning.Request) -> Turn | None:
        """The turn that the same idempotency key made before."""
        if request.idempotency_key is None:
            return None
        found = await self._store.find_turn(request.owner, request.idempotency_key)
        if found is None:
            return None
        turn, request_hash = found
        if request_hash != request.request_hash:
            raise Conflict("This idempotency key was used before with another request.")
        return turn

    def _check_open(self, prompt_tokens: int = 0) -> None:
        """Raises where no run may enter now; first with no prompt, then with its size."""
        if self._closing is not None:
            raise ServerStopping(self._closing.message, retry_after_s=STOPPING_RETRY_SECONDS)
        self._intake.check_model()
        answer = admission.decide(self._limits, self._load(), prompt_tokens)
        if isinstance(answer, admission.Refuse):
            raise answer.error

    def _load(self) -> admission.Load:
        load = self._dispatch.load
        return replace(
            load,
            waiting=load.waiting + len(self._arriving),
            waiting_tokens=load.waiting_tokens + sum(self._arriving),
        )

    async def _store_and_enter(
        self, prepared: Prepared, begin: Callable[[], Awaitable[Turn]]
    ) -> Turn:
        """Shielded: a client that goes away must not leave a stored run that nobody works on."""
        self._check_open(len(prepared.prompt))
        self._arriving.append(len(prepared.prompt))
        task = asyncio.create_task(self._begin(prepared, begin))
        self._tasks.add(task)
        task.add_done_callback(self._begun)
        return await asyncio.shield(task)

    async def _begin(self, prepared: Prepared, begin: Callable[[], Awaitable[Turn]]) -> Turn:
        try:
            turn = await begin()
        finally:
            self._arriving.remove(len(prepared.prompt))
        if turn.created:
            run = turn.run
            job = beginning.job_of(
                prepared, run.owner, run.id, run.conversation, run.message, run.interactive
            )
            live = LiveRun(job, stored=True)
            if prepared.kept is None:
                self._open(live, prepared)
            else:  # its log has begun, like that of a run of an earlier server
                live.restore(beginning.opening(prepared, turn))
                self._dispatch.enter(live)
        return turn

    def _begun(self, task: asyncio.Task[Turn]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # told to the request, if that is still there

    def _enter_unstored(self, prepared: Prepared, request: beginning.Unstored) -> LiveRun:
        self._check_open(len(prepared.prompt))
        live = LiveRun(beginning.job_unstored(prepared, request), stored=False)
        self._open(live, prepared)
        return live

    def _open(self, live: LiveRun, prepared: Prepared) -> None:
        plan = prepared.plan
        context = wire.Context(len(plan.prompt), plan.n_ctx, plan.included, plan.left_out)
        live.open(context, recovery.start_of(live.job, exact=prepared.exact))
        self._dispatch.enter(live)

    def _settle(self, live: LiveRun) -> None:
        self._dispatch.forget(live)
        if live.stored:
            self._finished.keep(Followable.of(live))
            for listener in self._listeners:
                listener(live)

    def _lose(self, live: LiveRun, why: str) -> None:
        """The store has no place for the run: its conversation was deleted."""
        self._dispatch.drop(live)

    def _shut(self, error: wire.StreamError) -> None:
        if self._closing is None:
            self._closing = error
            self._dispatch.close(error)

    def _journal_ended(self, task: asyncio.Task[None]) -> None:
        """The journal ends by being cancelled, or because the database is another's now, which the
        store has said; anything else is a fault of ours. Without it nothing may be shown, so
        nothing goes on, and the event loop's handler reports it."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._shut(_BROKEN)
        self._on_broken()
        if not isinstance(error, Stale):
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the journal has failed", "exception": error, "task": task}
            )
