"""One question, its reply on stdout, an exit code: `hobnob ask`.

Promises: each byte of the reply is printed once, over whatever happens to the connection, the
server and the engine; only the reply is on stdout; Ctrl+C, SIGTERM and a closed stdout cancel
the run, the death of this process does not.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from hobnob import exits
from hobnob.exits import Exit
from hobnob.launch import Target
from hobnob.server import wire
from hobnob.server.wire import Event, Status
from hobnob.tui import here, meant, schema
from hobnob.tui.client import Client
from hobnob.tui.modes import Mode, choose
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.options import model_argument, require_model
from hobnob.tui.plain import Notes, Output, OutputClosed, OutputFailed, print_json
from hobnob.tui.printed import Printed
from hobnob.tui.question import Question
from hobnob.tui.records import Run, Turn
from hobnob.tui.reply_text import CodeOnly, Form, Whole

SAME_SIGNAL_SECONDS = 0.5
"""`timeout` signals us and then our group: within this time it is one wish, not two."""

CANCEL_SECONDS = 3.0
"""How long a cancel may take to reach the server before we leave without it."""

TEXT = "text"
"""The kind of the blocks that are the reply."""

_GONE = ("unreachable", "not_running", "server_stopping")

TEMPORARY_TITLE = "(temporary)"
"""So that the history says what it is that could not be deleted."""


@dataclass(slots=True)
class Reply:
    """What is known of the reply so far; its JSON is a contract (docs/scripting.md)."""

    run: str | None = None
    conversation: str | None = None
    message: str | None = None
    model: str | None = None
    seed: int | None = None
    text: str = ""
    status: str = Status.FAILED
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    left_out: list[str] = field(default_factory=list)
    error: dict[str, str] | None = None

    def fail(self, code: str, message: str) -> None:
        self.status = Status.FAILED
        self.error = {"code": code, "message": message}


def ask(target: Target, question: Question) -> Exit:
    """Runs until the reply is printed. Never raises for what can go wrong outside of us."""
    return asyncio.run(_Ask(target, question).run())


def gather(target: Target, question: Question, waiting: str) -> tuple[Exit, str]:
    """As `ask`, but nothing is printed on stdout: how it ended, and what came of the reply.
    `waiting` is shown on a terminal until there is news."""
    asking = _Ask(target, question, silent=True)
    asking.wait(waiting)
    return asyncio.run(asking.run()), asking.text


class _Ask:
    def __init__(self, target: Target, question: Question, *, silent: bool = False):
        self._target = target
        self._question = question
        self._silent = silent or question.as_json  # the reply is not printed as it comes
        self._notes = Notes(quiet=question.quiet)
        self._reply = Reply()
        self._parts: list[str] = []
        self._signal: signal.Signals | None = None
        self._sending: asyncio.Task[Turn] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._started = False  # the server was started for us, with our model
        self._gone = False  # the server is not to be reached any more
        self._waiting = False  # an outage has been announced
        self._output: Output | None = None
        self._printed: Printed | None = None
        self._form: Form = CodeOnly() if question.code else Whole()
        self._aside: set[int] = set()  # the blocks that are no text
        self._seq = 0  # of the last numbered event
        self._ended = False  # message_stop has been seen

    def wait(self, words: str) -> None:
        self._notes.progress(words)

    @property
    def text(self) -> str:
        """What has come of the reply."""
        return "".join(self._parts)

    async def run(self) -> Exit:
        if sys.stdout is None:
            return Exit.CLOSED_OUTPUT  # started with stdout closed: nobody wants the answer
        self._watch_signals()
        try:
            code = await self._answer()
        except OutputClosed:
            return Exit.CLOSED_OUTPUT
        except OutputFailed as failed:
            self._notes.error(str(failed))
            return Exit.OUTPUT
        except ClientError as error:
            self._notes.error(self._sentence(error))
            self._reply.fail(error.code, error.message)
            code = error.exit_code
        except asyncio.CancelledError:
            code = self._interrupted()
        finally:
            self._notes.clear()
            if self._printed is not None:
                self._printed.close()
        code = self._finish(code)
        if self._signal is signal.SIGHUP:  # now end as all do that are hung up on
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGHUP)
        return code

    # ---- asking -------------------------------------------------------------------------------

    async def _answer(self) -> Exit:
        model = self._question.model
        arguments = [] if model is None else ["--model", model_argument(model)]
        async with Client(self._target, server_args=arguments, on_notice=self._on_notice) as client:
            try:
                code = await self._converse(client)
            finally:
                if self._holding is not None:
                    self._holding.cancel()
                kept = self._question.temporary and not await self._forget(client)
        return Exit.UNREACHABLE if kept and code is Exit.OK else code

    async def _converse(self, client: Client) -> Exit:
        try:
            run = await self._begin(client)
            self._open_output(run)
            await self._follow(client, run)
            if not self._silent:
                await self._print_end()
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            await self._stop(client)
            return self._interrupted()
        except (OutputClosed, OutputFailed):
            await self._stop(client)
            raise
        except ClientError as error:
            self._gone = error.code in _GONE
            raise
        return self._verdict()

    async def _begin(self, client: Client) -> str:
        question = self._question
        if question.resume is not None:
            self._note_run(await client.run(question.resume))
            return question.resume
        if question.model is not None and not self._started:
            await _check_model(client, question.model)
        place = await meant.place(client, question, self._target.paths.terminals_dir)
        system = question.system
        if place.conversation is not None and system is not None:
            await client.update_conversation(place.conversation, system=system)
            system = None
        title = TEMPORARY_TITLE if question.temporary else question.name
        self._sending = asyncio.ensure_future(
            client.send(
                place.conversation,
                question.prompt,
                parent=place.parent,
                options=question.sent_options,
                system=system,
                title=title,
                temporary=question.temporary,
                history=question.history,
            )
        )
        # Shielded: if we are interrupted now, the run must still become known to be cancelled.
        turn = await asyncio.shield(self._sending)
        self._note_run(turn.run)
        if not question.temporary:
            here.remember(self._target.paths.terminals_dir, turn.conversation.id)
        else:
            self._holding = asyncio.create_task(_hold(client, turn.conversation.id))
        return turn.run.id

    def _note_run(self, run: Run) -> None:
        self._reply.run = run.id
        self._reply.conversation = run.conversation or None
        self._reply.message = run.message or None
        self._reply.model = run.model or None

    def _open_output(self, run: str) -> None:
        if self._silent:
            return
        if self._question.render and os.isatty(1) and choose(os.environ) is not Mode.PLAIN:
            from hobnob.tui.rendered import Rendered  # more than most questions need

            self._form = Rendered(_columns, os.environ)
            self._output = Output.stdout(harmless=True)
            return
        skip = self._question.printed
        if not (self._question.events or self._question.code):
            self._printed = Printed(self._target.paths.printed_dir, run)
            if self._question.resume is not None and skip is None:
                skip = self._printed.read()
        self._output = Output.stdout(skip or 0)

    # ---- following ----------------------------------------------------------------------------

    async def _follow(self, client: Client, run: str) -> None:
        async with aclosing(client.stream(run, self._seq)) as items:
            async for item in items:
                if isinstance(item, Notice):
                    self._on_notice(item)
                else:
                    await self._on_event(item)

    async def _on_event(self, event: Event) -> None:
        reply = self._reply
        self._waiting = False
        if self._question.events:
            await self._print(_line(event.payload.TYPE, event.seq, asdict(event.payload)))
        self._seq = event.seq or self._seq  # when it is out: an interrupt may come before
        match event.payload:
            case wire.BlockStart(index=index, kind=kind) if kind != TEXT:
                self._aside.add(index)  # thoughts are not the reply
            case wire.BlockDelta(index=index) if index in self._aside:
                pass
            case wire.BlockDelta(text=text):
                self._notes.clear()
                self._parts.append(text)
                if self._question.stream and not self._question.events:
                    await self._print(self._form.feed(text))
            case wire.MessageStart() as start:
                reply.conversation, reply.message = start.conversation, start.message
                reply.model, reply.seed = start.model, start.seed
            case wire.MessageDelta() as delta:
                reply.stop_reason = delta.stop_reason
                reply.usage, reply.timings = asdict(delta.usage), asdict(delta.timings)
            case wire.MessageStop() as stop:
                self._ended = True
                reply.status, reply.stop_reason = stop.status, stop.stop_reason
                if stop.error is not None:
                    reply.error = asdict(stop.error)
            case wire.Context(left_out=[_, *_] as left_out):
                reply.left_out = list(left_out)
                self._notes.say(
                    f"The conversation is longer than the context window: its oldest "
                    f"{len(left_out)} messages were left out of the prompt"
                )
            case other:
                self._on_news(other)

    def _on_news(self, payload: wire.Payload) -> None:
        """What happens while we wait, and warnings."""
        match payload:
            case wire.Loading(model=model, done=done):
                self._notes.progress(f"loading {model}: {done:.0%}")
            case wire.Queued(position=position, eta_s=eta_s):
                eta = "" if eta_s is None else f", about {eta_s:.0f} s"
                self._notes.progress(f"waiting, number {position} in the queue{eta}")
            case wire.Prefill(done=done, total=total):
                self._notes.progress(f"reading the prompt: {done} of {total} tokens")
            case wire.NotSaved(message=message):
                self._notes.say(f"The reply is not being saved: {message}")
            case wire.Restarted(reason=reason):
                self._notes.say(f"The engine was restarted: {reason}")
            case _:
                pass

    def _on_notice(self, notice: Notice) -> None:
        if notice.kind is NoticeKind.STARTING:
            self._started = True
        if notice.kind in (NoticeKind.RECONNECTING, NoticeKind.BUSY):
            if self._waiting:
                return  # said once per outage
            self._waiting = True
            self._notes.say(f"{notice.reason.rstrip('.')}; trying again")
        elif notice.kind is not NoticeKind.CONNECTED:
            self._notes.say(notice.reason)

    async def _print(self, text: str) -> None:
        if self._output is None:
            return
        await self._output.write(text)
        if self._printed is not None:
            self._printed.note(self._output.printed)

    async def _print_end(self) -> None:
        if self._question.events:
            return
        if not self._question.stream:
            await self._print(self._form.feed(self.text))
        await self._print(self._form.end())
        if isinstance(self._form, CodeOnly) and not self._form.found:
            self._notes.say("The reply has no code block")
        if self._output is not None and self._output.printed:
            await self._output.end()
        if self._printed is not None:
            self._printed.forget()

    # ---- ending -------------------------------------------------------------------------------

    def _verdict(self) -> Exit:
        reply = self._reply
        if reply.status == Status.LENGTH:
            limit = "context window" if reply.stop_reason == wire.StopReason.CONTEXT else "limit"
            self._notes.say(f"The reply was cut: the token {limit} was reached")
            return Exit.TRUNCATED if self._question.fail_on_truncation else self._in_form()
        if reply.status == Status.COMPLETED:
            return self._in_form()
        if reply.status == Status.CANCELLED:
            self._notes.say("The reply was cancelled")
            return Exit.CANCELLED
        error = reply.error or {"code": reply.status, "message": "The reply failed."}
        self._notes.error(error["message"])
        return Exit.REFUSED if reply.status == Status.REFUSED else exits.for_code(error["code"])

    def _in_form(self) -> Exit:
        """Where JSON was asked for, a part of it must not be taken for the whole."""
        if self._question.schema is None or schema.is_whole(self.text):
            return Exit.OK
        self._notes.say("The reply is not the whole JSON that the schema asks for")
        return Exit.SCHEMA

    def _finish(self, code: Exit) -> Exit:
        """The JSON, whatever happened; otherwise the line end that a terminal needs."""
        try:
            if self._question.as_json:
                self._reply.text = self.text
                print_json(asdict(self._reply))
            elif self._question.events:
                self._end_events()
            elif self._output is not None and self._output.terminal and self._parts:
                if self._question.render and code is not Exit.OK:
                    # What was cut within a block has left its looks on.
                    self._output.write_now("\x1b[0m")
                self._output.write_now(self._form.end())
                self._output.end_now()
        except OutputClosed:
            return Exit.CLOSED_OUTPUT
        except OutputFailed as failed:
            self._notes.error(str(failed))
            return Exit.OUTPUT
        return code

    def _end_events(self) -> None:
        """The last line says how it ended, whatever happened."""
        if not self._ended:
            error = self._reply.error or {"code": "cancelled", "message": "It was interrupted."}
            (self._output or Output.stdout()).write_now(_line(wire.StreamError.TYPE, None, error))

    def _sentence(self, error: ClientError) -> str:
        """Where the run may go on without us, how to come back to it."""
        run = None if self._question.temporary else self._reply.run
        if run is None or error.code not in _GONE:
            return error.message
        return f"{error.message} The rest: hobnob ask --resume {run}"

    # ---- stopping -----------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None

        first_at: float | None = None

        def on_signal(number: signal.Signals) -> None:
            nonlocal first_at
            if first_at is None:
                first_at = loop.time()
                self._signal = number
                task.cancel()
            elif loop.time() - first_at > SAME_SIGNAL_SECONDS:  # a second one ends us at once
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

        watched = [signal.SIGINT, signal.SIGTERM]
        if self._question.temporary and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            watched.append(signal.SIGHUP)  # nobody will come back for this reply
        for one in watched:
            loop.add_signal_handler(one, on_signal, one)

    def _interrupted(self) -> Exit:
        self._reply.status = Status.CANCELLED
        self._reply.stop_reason = wire.StopReason.CANCELLED
        return Exit.TERMINATED if self._signal is signal.SIGTERM else Exit.INTERRUPTED

    async def _stop(self, client: Client) -> None:
        """Cancel the run, if the server can be told in time."""
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                if self._reply.run is None and self._sending is not None:
                    self._note_run((await self._sending).run)
                run = self._reply.run
                if run is not None:
                    await client.cancel(run)
                    if self._question.as_json:
                        await self._read_stored(client, run)
                    elif self._question.events and self._signal is not None:
                        await self._follow(client, run)  # to its message_stop
        except (ClientError, TimeoutError):
            pass  # it ends by itself, or with its server

    async def _forget(self, client: Client) -> bool:
        """Delete the conversation, if there is one. False: it is still there, which is said."""
        id = self._reply.conversation
        if id is None:
            return True
        try:
            if not self._gone:  # or it would be started again
                async with asyncio.timeout(CANCEL_SECONDS):
                    await client.delete_conversation(id)
                    return True
        except TimeoutError:
            pass
        except ClientError as error:
            if error.code == "not_found":
                return True
        self._notes.error(
            f"The temporary conversation could not be deleted: `hobnob history rm {id}` does it"
        )
        return False

    async def _read_stored(self, client: Client, run: str) -> None:
        """The JSON of a cancelled reply shows what was stored of it."""
        async with aclosing(client.stream(run)) as items:
            async for _ in items:
                pass
        self._parts = [(await client.reply(await client.run(run))).text]


def _line(type_: str, seq: int | None, fields: Mapping[str, Any]) -> str:
    """An event as `--events` prints it. ASCII, like all our JSON."""
    return json.dumps({"type": type_, "seq": seq, **fields}, ensure_ascii=True) + "\n"


def _columns() -> int:
    return shutil.get_terminal_size().columns


async def _hold(client: Client, conversation: str) -> None:
    with suppress(ClientError):  # it is gone; whoever reads the reply is told
        await client.hold(conversation)


async def _check_model(client: Client, wanted: str) -> None:
    """The running server has one model; say so rather than answer with another."""
    require_model((await client.status()).get("model") or {}, wanted)
