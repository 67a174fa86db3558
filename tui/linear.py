"""The plain chat (`hobnob --plain`): line after line, nothing redrawn, everything in words.

For screen readers, terminals without a cursor to move, and logs of a session. The same talk,
drafts, prompts and commands as the app's. While the input waits nothing else happens; while a
reply is written Ctrl+C stops it, and what is typed is kept for the input that comes next.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from hobnob.tui.clean import clean, one_line
from hobnob.tui.drafts import Draft, Drafts
from hobnob.tui.editor import edit
from hobnob.tui.folds import Typed
from hobnob.tui.line import Connect, Line
from hobnob.tui.line_editor import Complete, LineEditor
from hobnob.tui.linear_commands import LinearCommands, command_of, completions
from hobnob.tui.model_watch import describe
from hobnob.tui.notice import ClientError, Notice, NoticeKind, in_words
from hobnob.tui.prompts import Prompts
from hobnob.tui.shell_notation import MARK, literal
from hobnob.tui.talk import Outgoing, Talk
from hobnob.tui.telling import Telling
from hobnob.tui.temporary import beside
from hobnob.tui.terminal import Terminal
from hobnob.tui.transcript import USER, Entry

T = TypeVar("T")

ASKED = "You: "
GREETING = "hobnob, plain chat. Enter sends, /help lists the commands, Ctrl+D leaves."
TICK_SECONDS = 0.5
QUIT_AGAIN_SECONDS = 1.5
CANCEL_SECONDS = 3.0
"""How long a message that was taken back by Ctrl+C may take to be accepted before we let go."""
CLOSE_SECONDS = 1.0
LAST_MESSAGES = 2
"""What is told of a conversation that is opened; the rest is asked for."""


class Ended(BaseException):
    """A signal ends the chat."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class LinearChat:
    """Owns the terminal and the order of things. Runs in the main thread, signals and all."""

    def __init__(
        self,
        connect: Connect,
        state_dir: Path,
        *,
        conversation: str | None = None,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
        temporary: bool = False,
    ) -> None:
        self._connect_with = connect
        self._first = conversation
        self._terminal = Terminal()
        self._editor = LineEditor()
        self.line = Line()
        self.talk = Talk(self.line, system=system, options=options, keep=beside(connect))
        self.talk.clear(temporary=temporary)
        self._drafts = Drafts(state_dir / "drafts", lambda: not self.talk.temporary, self.say)
        self._prompts = Prompts(state_dir / "prompts.jsonl", lambda: not self.talk.temporary)
        self._commands = LinearCommands(self)
        self._exits = AsyncExitStack()
        self._runner = asyncio.Runner()
        self._retry = Draft("")
        self._editing: Entry | None = None
        self._outage = ""
        self._quit_asked = float("-inf")
        self._waiting = False  # for the server, not for the user
        self._task: asyncio.Task[Any] | None = None
        self._signal = 0
        self._composing = False  # a message, not an answer to a question of ours
        self._dropped = False  # there was text in the input that Ctrl+C took away
        self._on_interrupt: Callable[[], None] | None = None

    def run(self) -> int:
        """To the end; the exit code."""
        ends = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT)
        for number in (signal.SIGINT, signal.SIGTSTP, *ends):
            signal.signal(number, self._on_signal)
        with self._runner:
            try:
                if self._editor.edits:
                    self._terminal.quieten()
                    self._editor.take_ahead(self._terminal.typed_ahead())
                self._begin()
                while True:
                    self._safely(self._turn)
            except EOFError:
                code = 0
            except Ended as ended:
                code = 128 + ended.number
            except BrokenPipeError:
                code = 128 + signal.SIGHUP
            finally:
                self._terminal.restore()
                self._close()
        return code

    # ---- one turn -----------------------------------------------------------------------------

    def _begin(self) -> None:
        self.say(GREETING)
        self._safely(lambda: self.wait(self.connect()))
        first = self._first
        if first is not None:
            self._safely(lambda: self.open(first))
        self._retry = self._drafts.load(self.talk.id)

    def _safely(self, step: Callable[[], None]) -> None:
        """What goes wrong in one step is said and ends it, not the chat; so does Ctrl+C."""
        try:
            step()
        except ClientError as error:
            self.say(error.message)
        except KeyboardInterrupt:
            self._write("\n")

    def _turn(self) -> None:
        try:
            typed = self._message()
        except KeyboardInterrupt:
            self._interrupted_input()
            return
        text = typed.text
        if typed.command:
            self._prompts.add(MARK + typed.command)
            self._commands.run_in_shell(typed)
        elif command_of(text) is not None:
            self._command(text.strip())
        elif text.strip() and not self._commands.doubts(text):
            self._deliver(typed)

    def _message(self) -> Typed:
        draft = self._retry.as_typed
        self._composing = True
        try:
            text = self._read(ASKED, draft.text, history=self._prompts.all(), complete=completions)
        except EOFError:
            self._write("\n")
            self._save_draft(self._in_hand)  # the lines above an empty one
            raise
        except ValueError:
            self.say("what was typed is not text in this terminal's encoding")
            return Typed()
        finally:
            self._composing = False
        if text != draft.text:
            self._retry = Draft("")
        return Typed(text, draft.folds).in_use

    @property
    def _in_hand(self) -> Typed:
        return Typed(self._editor.typed, self._retry.as_typed.folds).in_use

    def _interrupted_input(self) -> None:
        """Ctrl+C at the input: what is in it is dropped; twice on an empty one leaves."""
        self._write("\n")
        had_text = self._dropped
        self._retry, self._editing = Draft(""), None
        self._save_draft(Typed())
        if had_text:
            self.say("dropped")
            return
        now = time.monotonic()
        if now - self._quit_asked < QUIT_AGAIN_SECONDS:
            raise EOFError
        self._quit_asked = now
        self.say("Ctrl+C again or Ctrl+D leaves")

    def _command(self, name: str) -> None:
        if name == "/quit":
            self._save_draft(Typed())
            raise EOFError
        self._commands.run(name)

    def _deliver(self, typed: Typed) -> None:
        if self.talk.live is not None:
            self.follow(self.talk.live)
        out = self._prepared(typed)
        reply = self._sent(out, Draft(typed.full, out.key, typed))
        if reply is not None:
            self.follow(reply)

    def _prepared(self, typed: Typed) -> Outgoing:
        instead_of, self._editing = self._editing, None
        if instead_of is not None and instead_of not in self.talk.entries:
            instead_of = None
        key = self._key(typed)
        out = self.talk.prepare(typed.message, instead_of=instead_of, key=key)
        self._prompts.add(typed.full)
        self._drafts.save(self.talk.id, Draft(typed.full, out.key, typed))
        return out

    def _sent(self, out: Outgoing, draft: Draft) -> Entry | None:
        """The reply that was promised; None when the message was not accepted."""
        before = self.talk.id
        try:
            reply = self.wait(self._send(out), lambda: self._take_back(out))
        except ClientError as error:
            self._withdraw(out, draft)
            self.say(f"Not sent: {self.talk.why(error)} Your message is in the input again.")
            return None
        except KeyboardInterrupt:
            self._withdraw(out, draft)
            self.say("Not sent. Your message is in the input again.")
            return None
        self._retry = Draft("")
        self._drafts.save(before, Draft(""))
        if out.cancelled:
            self.wait(self.talk.stop(reply))
        return reply

    async def _send(self, out: Outgoing) -> Entry:
        if self.line.client is None:
            await self.connect()
        return await self.talk.send(out)

    def _take_back(self, out: Outgoing) -> None:
        """Ctrl+C before the server has answered: it may have the message already."""
        if out.cancelled and self._task is not None:
            self._task.cancel()
            return
        out.cancelled = True
        task = self._task
        if task is not None:
            asyncio.get_running_loop().call_later(CANCEL_SECONDS, task.cancel)

    def _withdraw(self, out: Outgoing, draft: Draft) -> None:
        self.talk.withdraw(out)
        self._editing = out.replaced[0] if out.replaced else None
        self._retry = draft

    # ---- what the commands use ----------------------------------------------------------------

    def follow(self, reply: Entry, *, more: bool = False) -> None:
        """Tell a reply to its end. Ctrl+C stops it; a second one does not wait for that. `more`:
        what there is of it was told before."""
        telling = Telling(reply, self._write)
        if more:
            telling.pass_over()
        try:
            self.wait(self._follow(reply, telling), lambda: self._stop(reply))
        except KeyboardInterrupt:
            self.say("it is being stopped")
        except ClientError as error:
            self.say(error.message)
        finally:
            telling.finish()

    async def _follow(self, reply: Entry, telling: Telling) -> None:
        loop = asyncio.get_running_loop()

        async def tick() -> None:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                telling.update(loop.time())

        ticking = asyncio.ensure_future(tick())
        try:
            await self.talk.follow(reply, lambda _: telling.update(loop.time()))
        finally:
            ticking.cancel()

    def _stop(self, reply: Entry) -> None:
        task = self._task
        if task is None:
            return

        def let_go() -> None:
            task.cancel()

        self._on_interrupt = let_go

        async def stop() -> None:
            try:
                await self.talk.stop(reply)
            except ClientError as error:
                self.say(f"Not stopped: {error.message}")

        self._stopping = asyncio.ensure_future(stop())

    def open(self, id: str, at: str | None = None) -> None:
        """Tell a stored conversation: its end, or one message of it."""
        self._save_draft(Typed())
        self.wait(self.talk.open(id, at))
        self._retry, self._editing = self._drafts.load(self.talk.id), None
        entries = self.talk.entries
        found = [entry for entry in entries if entry.id == at]
        conversation = self.talk.conversation
        title = one_line(conversation.title) if conversation else ""
        count = f"{self.talk.earlier + len(entries)} messages"
        about = ", ".join(filter(None, [title or "Untitled", count, self.talk.tuning.words]))
        self.say(f"{about}; /show tells them all")
        self.tell(found or entries[-LAST_MESSAGES:])
        self.wait(self.talk.warm())

    def tell(self, entries: Sequence[Entry]) -> None:
        """Stored messages; one that is still written is followed."""
        for entry in entries:
            if entry.live:
                self.follow(entry)
                return
            who = "You" if entry.role == USER else one_line(entry.model or "Assistant")
            self._write(f"{who}: {clean(entry.text).rstrip()}\n")

    def fresh(self, *, temporary: bool = False) -> None:
        """A new conversation."""
        self._save_draft(Typed())
        self.talk.clear(temporary=temporary)
        self._retry, self._editing = self._drafts.load(None), None
        self.say("a temporary conversation" if temporary else "a new conversation")

    def edit(self, entry: Entry) -> None:
        """The next message takes the place of this one, whose text is there to begin with."""
        self._editing = entry
        self.put(Typed(literal(entry.text)))

    def edit_outside(self, text: str) -> str | None:
        """A text in $EDITOR; None when nothing came of it. Raises OSError."""
        with self._terminal.lent():
            return edit(text, os.environ)

    def put(self, typed: Typed) -> None:
        """The input will begin with this."""
        self._retry = Draft(typed.full, typed=typed)

    def ask(self, asked: str, text: str = "") -> str:
        """What the user makes of a text; the same when they leave it."""
        try:
            return self._read(asked, text).strip()
        except (EOFError, KeyboardInterrupt, ValueError):
            self._write("\n")
            return text

    def _read(
        self,
        asked: str,
        text: str = "",
        *,
        history: Sequence[str] = (),
        complete: Complete | None = None,
    ) -> str:
        with self._terminal.echoing() if self._editor.edits else nullcontext():
            return self._editor.read(asked, text, history=history, complete=complete)

    def wait(
        self, doing: Coroutine[Any, Any, T], on_interrupt: Callable[[], None] | None = None
    ) -> T:
        """Run to its end. Ctrl+C does `on_interrupt`; without that it ends the waiting with
        KeyboardInterrupt. Raises Ended for the signals that end the chat."""

        async def watched() -> T:
            self._task = asyncio.current_task()
            self._pass_on()
            return await doing

        self._signal, self._on_interrupt = 0, on_interrupt
        self._waiting = True
        try:
            return self._runner.run(watched())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._waiting, self._task, self._on_interrupt = False, None, None
            if self._signal not in (0, signal.SIGINT):
                self._save_draft(self._retry.as_typed)
                raise Ended(self._signal)

    def say(self, sentence: str) -> None:
        self._write(f"hobnob: {one_line(sentence)}\n")

    def write(self, text: str) -> None:
        """Text that came from elsewhere, made harmless."""
        self._write(clean(text))

    def write_to_terminal(self, sequence: str) -> None:
        """A control sequence of ours."""
        self._write(sequence)

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError:
            raise BrokenPipeError from None  # the terminal is gone

    # ---- the connection -----------------------------------------------------------------------

    async def connect(self) -> None:
        """Find or start the server. Says what came of it."""
        self.line.reset()
        self._outage = ""
        try:
            client = await self._exits.enter_async_context(self._connect_with(self._hear))
        except ClientError as error:
            self.line.fail(error)
            raise
        except asyncio.CancelledError:
            self.line.fail(ClientError("not_running", "Not connected."))
            raise
        self.line.open(client)
        self.say(f"connected, {describe(await client.status()).words}")

    def _hear(self, notice: Notice) -> None:
        """What the client says while one of its calls waits; each outage once."""
        if notice.kind is NoticeKind.CONNECTED:
            self._outage = ""
            return
        words = in_words(notice)
        if words != self._outage:
            self._outage = words
            self.say(words)

    # ---- signals, drafts, the end -------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """At the input it ends the reading; elsewhere the loop is told."""
        if number == signal.SIGTSTP:
            self._suspend()
        elif self._waiting:
            self._signal = number
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._pass_on)
        elif number == signal.SIGINT:
            self._dropped = bool(self._editor.typed)
            raise KeyboardInterrupt
        else:
            self._save_draft(self._in_hand if self._composing else self._retry.as_typed)
            raise Ended(number)

    def _pass_on(self) -> None:
        """In the loop: a signal came."""
        if not self._signal or self._task is None:
            return
        if self._signal == signal.SIGINT and self._on_interrupt is not None:
            self._signal = 0
            self._on_interrupt()
        else:
            self._task.cancel()

    def _suspend(self) -> None:
        if self._editor.reading:
            self._write(self._editor.unbracket)
        self._terminal.stop_process()
        if self._editor.reading:
            self._write(self._editor.shown)

    def _save_draft(self, typed: Typed) -> None:
        """What is typed, or waits to be sent again, belongs to the conversation."""
        self._drafts.save(self.talk.id, Draft(typed.full, self._key(typed), typed))

    def _key(self, typed: Typed) -> str:
        """The one under which the same was posted before, if it was."""
        return self._retry.key if typed.full == self._retry.text else ""

    def _close(self) -> None:
        async def close() -> None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    with suppress(ClientError):  # then the server sees that we have gone
                        await self.talk.end()
                    await self._exits.aclose()
            except (TimeoutError, ClientError):
                return  # the process ends anyway, and the server notices

        self._waiting = True  # a signal cannot end us any sooner
        self._runner.run(close())
