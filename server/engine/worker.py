"""The engine process: `python -m hobnob.server.engine.worker FD`, FD being an inherited socket.

Owns the socket and the threads: this one reads commands, one renders and tokenises, one computes
steps, one writes reports. The process ends when the socket closes, whatever it is doing. What it
prints goes to the log that the server gave it as stderr, never to a terminal.
"""

from __future__ import annotations

import logging
import os
import queue
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

from hobnob.server.engine.protocol import (
    LENGTH,
    MAX_FRAME_BYTES,
    Cancel,
    Command,
    Configure,
    Forget,
    Found,
    LoadFailed,
    LoadProgress,
    Lookup,
    Render,
    Rendered,
    Report,
    Shutdown,
    Stepped,
    Submit,
    Tokenize,
    command,
    frame,
)

OUTBOX_FRAMES = 256  # a server that does not read stops the engine here
STOP_SECONDS = 2.0  # for the step under way when told to stop, and for saving what it left
FETCH_SECONDS = 0.5  # between looks at a run that waits for the disk
TEXT_STACK_BYTES = 64 * 1024 * 1024  # llama.cpp's pre-tokenizers recurse per character
PROGRESS_STEP = 0.02
STUCK_STEPS = 1000

log = logging.getLogger("hobnob.engine")

Send = Callable[[Report], None]
Told = Submit | Cancel | Forget | Lookup | Shutdown | None
"""What the step thread takes; None: the disk has news."""


def read_frame(sock: socket.socket) -> bytes | None:
    """The next frame's body; None when the other side has closed."""
    head = _exactly(sock, LENGTH.size)
    if head is None:
        return None
    (length,) = LENGTH.unpack(head)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length} bytes is over the limit")
    return _exactly(sock, length)


def _exactly(sock: socket.socket, n: int) -> bytes | None:
    data = bytearray(n)
    view = memoryview(data)
    at = 0
    while at < n:
        got = sock.recv_into(view[at:])
        if not got:
            return None
        at += got
    return bytes(data)


class Outbox:
    """Writes reports in a thread of its own: a step's frame goes out while the next computes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames: queue.Queue[Report | None] = queue.Queue(OUTBOX_FRAMES)
        self._thread = threading.Thread(target=self._write, name="outbox", daemon=True)
        self._thread.start()

    def send(self, report: Report) -> None:
        """Any thread. Waits while too many frames are unread."""
        self._frames.put(report)

    def close(self, seconds: float) -> None:
        """Writes what is queued, as far as the time allows."""
        try:
            self._frames.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _write(self) -> None:
        while (report := self._frames.get()) is not None:
            try:
                self._sock.sendall(frame(report))
            except OSError:
                _exit(0)  # the server is gone


class TextThread:
    """Answers Render and Tokenize with the vocabulary alone, from before the weights load."""

    def __init__(self, configure: Configure, send: Send) -> None:
        self._configure = configure
        self._send = send
        self._inbox: queue.SimpleQueue[Render | Tokenize] = queue.SimpleQueue()
        self.tried = threading.Event()
        """Set when the vocabulary has been loaded, or cannot be."""
        old = threading.stack_size(TEXT_STACK_BYTES)
        threading.Thread(target=self._main, name="text", daemon=True).start()
        threading.stack_size(old)

    def put(self, command: Render | Tokenize) -> None:
        self._inbox.put(command)

    def _main(self) -> None:
        from hobnob.server.engine.llama import LlamaError
        from hobnob.server.engine.text import TemplateError, TextService, TextTooLong

        try:
            service = TextService.open(Path(self._configure.model), n_ctx=self._configure.n_ctx)
        except LlamaError as error:
            self.tried.set()
            self._refuse_all(str(error))
        except Exception:  # the step thread would wait for the vocabulary for ever
            log.exception("the vocabulary could not be opened")
            _exit(70)
        self._send(service.info)
        for note in service.notes:
            log.info("%s", note)
        self.tried.set()
        while True:
            asked = self._inbox.get()
            try:
                if isinstance(asked, Render):
                    tokens = service.render(asked.messages, asked.add_generation_prompt)
                else:
                    tokens = service.tokenize(asked.text, inside=asked.inside)
            except TemplateError as error:
                too_long = isinstance(error, TextTooLong)
                self._send(Rendered(asked.id, error=str(error), too_long=too_long))
            except Exception:  # the text thread's guard: one bad text costs one answer
                log.exception("a text could not be rendered")
                self._send(Rendered(asked.id, error="The text could not be turned into tokens."))
            else:
                self._send(Rendered(asked.id, tokens))

    def _refuse_all(self, why: str) -> NoReturn:
        while True:
            self._send(Rendered(self._inbox.get().id, error=why))


class StepThread:
    """Loads the model, then computes steps while there is anything to compute."""

    def __init__(self, configure: Configure, send: Send, after: threading.Event) -> None:
        self._configure = configure
        self._send = send
        self._after = after
        self._inbox: queue.SimpleQueue[Told] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._guarded, name="steps", daemon=True)
        self._thread.start()

    def put(self, command: Submit | Cancel | Forget | Lookup) -> None:
        self._inbox.put(command)

    def stop(self, seconds: float) -> None:
        """Ends at the next step boundary."""
        self._inbox.put(Shutdown())
        self._thread.join(seconds)

    def _guarded(self) -> None:
        try:
            self._main()
        except Exception:  # the per-step guard: the server restarts us and goes on with the runs
            log.exception("the step loop broke")
            _exit(70)

    def _main(self) -> None:
        from hobnob.server.engine import loading
        from hobnob.server.engine.llama import LlamaError

        self._after.wait()  # the vocabulary first: it is small and answers meanwhile
        try:
            steps, ready = loading.load(
                self._configure, self._send, self._progress(), lambda: self._inbox.put(None)
            )
        except (LlamaError, MemoryError) as error:
            failed = LoadFailed(loading.code(self._configure), str(error) or "Out of memory.")
            log.error("cannot load: %s", failed.message)
            self._send(failed)
            return  # no run is sent to an engine that has not loaded
        for line in ready.explain:
            log.info("%s", line)
        self._send(ready)
        self._send(Stepped(stats=steps.stats()))
        stuck = 0
        while True:
            if steps.idle:
                seconds = 0.0 if steps.tidy() else None
            else:
                seconds = FETCH_SECONDS if steps.fetching else 0.0
            for taken in self._commands(seconds):
                if isinstance(taken, Submit):
                    steps.submit(taken)
                elif isinstance(taken, Cancel):
                    steps.cancel(taken.run)
                elif isinstance(taken, Forget):
                    steps.forget(taken.group)
                elif isinstance(taken, Lookup):
                    self._send(Found(taken.id, steps.resident(taken)))
                elif isinstance(taken, Shutdown):
                    steps.close()
                    return
            stuck = 0 if steps.step() or steps.idle or steps.fetching else stuck + 1
            if stuck > STUCK_STEPS:
                raise RuntimeError("runs are waiting and none can be planned")

    def _progress(self) -> Callable[[float], None]:
        said = 0.0

        def tell(done: float) -> None:
            nonlocal said
            if done - said >= PROGRESS_STEP or done >= 1.0:
                said = done
                self._send(LoadProgress(done))

        return tell

    def _commands(self, seconds: float | None) -> list[Told]:
        """What has come; waits for the first one, for ever if `seconds` is None."""
        taken: list[Told] = []
        try:
            if seconds is None or seconds > 0:
                taken.append(self._inbox.get(timeout=seconds))
            while True:
                taken.append(self._inbox.get_nowait())
        except queue.Empty:
            return taken


def serve(sock: socket.socket) -> int:
    """Reads commands until told to stop or the socket closes; the exit code."""
    first = _next(sock)
    if first is None:
        return 0
    if not isinstance(first, Configure):
        log.error("the first frame was %s", type(first).__name__)
        return 64
    outbox = Outbox(sock)
    text = TextThread(first, outbox.send)
    steps = StepThread(first, outbox.send, after=text.tried)
    while (taken := _next(sock)) is not None:
        if isinstance(taken, Shutdown):
            steps.stop(STOP_SECONDS)
            outbox.close(0.2)
            return 0
        if isinstance(taken, (Render, Tokenize)):
            text.put(taken)
        elif isinstance(taken, (Submit, Cancel, Forget, Lookup)):
            steps.put(taken)
        else:
            log.error("a second Configure was ignored")
    return 0


def _next(sock: socket.socket) -> Command | None:
    try:
        body = read_frame(sock)
    except ConnectionError:
        return None
    return None if body is None else command(body)


def _exit(code: int) -> NoReturn:
    """Ends the process at once: threads inside llama.cpp cannot be asked to stop."""
    logging.shutdown()
    os._exit(code)


def main() -> NoReturn:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s engine: %(message)s"
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the server's; we end when it does
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold the user's words
    try:
        code = serve(socket.socket(fileno=int(sys.argv[1])))
    except (msgspec.DecodeError, ValueError) as error:
        log.error("cannot understand the server: %s", error)
        code = 65
    _exit(code)


if __name__ == "__main__":
    main()
