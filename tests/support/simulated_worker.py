"""The engine process on the other side of the handle: frames in memory, a script in place of a
model, and every way to fail that a seed can choose.

Stands in for a process with its pipe ends: `process.EngineProcess` is made of it. It takes
commands as they are written and reports when the history has it step; its frames may arrive in
parts, and late.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from fake_engine import N_VOCAB, READY, TEXT_READY, FakeRun, advance, prompt_of

from hobnob.server.engine import protocol as p
from hobnob.server.engine.process import EngineProcess

POISON = "☠"
"""The engine dies of a run with this in its prompt, before it has drawn a token."""
UNREADABLE = "☢"
"""The engine dies of reading this through the template."""
UNTAUGHT = "☹"
"""The template has no place for this."""

DELAYS = [0.0] * 24 + [0.01, 0.3, 5.0]
GARBAGE = [
    p.LENGTH.pack(3) + b"\xc1\xc1\xc1",
    p.LENGTH.pack(0),
    p.LENGTH.pack(p.MAX_FRAME_BYTES + 1) + b"never read",
    p.LENGTH.pack(9) + b'{"a": []}',
    p.frame(p.Shutdown()),
]
"""What is no report: no msgpack, nothing, far too much, another format, a command."""


class SimulatedWorker:
    """`calm`: it loads by itself, answers at once and fails only of what is poison."""

    def __init__(
        self,
        script: Sequence[str],
        dice: random.Random,
        pid: int,
        *,
        calm: bool,
        submitted: Callable[[p.Submit], None],
    ) -> None:
        self.reader = asyncio.StreamReader()
        self.runs: dict[str, FakeRun] = {}
        self.hangs = False
        self.stage = 0  # of its load: 3 is ready
        self.pid = pid
        self.returncode: int | None = None
        self.unkillable = False
        """A driver holds it: it does not end when it is killed."""
        self.owes: set[str] = set()
        """Runs that it was given and whose end it has not told."""
        self._script = script
        self._dice = dice
        self._calm = calm
        self._submitted = submitted
        self._ended = asyncio.Event()
        self._inbox: list[p.Command] = []  # for the step thread
        self._sent = bytearray()  # and not arrived: it is late
        self._closed = False  # at the handle's end
        self._mute = False  # at ours: it is dead, or says nothing any more

    def as_process(self) -> EngineProcess:
        face = self
        return EngineProcess(face, self.reader, face, Path("/nowhere/engine.log"), 0)  # type: ignore[arg-type]

    @property
    def ready(self) -> bool:
        return self.stage == 3 and not self._mute

    @property
    def is_dead(self) -> bool:
        return self._mute

    # ---- the face of a process

    def kill(self) -> None:
        if not self.unkillable:
            self.die(-9)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    # ---- the face of the stream to it

    @property
    def transport(self) -> SimulatedWorker:
        return self

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        """The engine ends when its socket closes."""
        if self._closed:
            return
        self._closed = True
        self.reader.feed_eof()
        if self.unkillable:
            self._mute = True
        else:
            self.die(0)

    abort = close

    def write(self, data: bytes) -> None:
        (size,) = p.LENGTH.unpack(data[: p.LENGTH.size])
        assert len(data) == p.LENGTH.size + size, "the handle writes whole frames"
        if self._mute:
            return
        command = p.command(data[p.LENGTH.size :])
        if isinstance(command, p.Submit):
            self._submitted(command)
            self.owes.add(command.run)
        if not self.hangs:
            self._obey(command)

    # ---- what it does

    def _obey(self, command: p.Command) -> None:
        match command:
            case p.Configure():
                if self._calm:
                    self.load_on(3)
            case p.Render():
                self._read(command)
            case p.Tokenize():
                self._answer(p.Rendered(command.id, [ord(c) % N_VOCAB for c in command.text]))
            case p.Shutdown():
                self._inbox.clear()
                self.die(0)
            case _:
                self._inbox.append(command)

    def _read(self, render: p.Render) -> None:
        text = "".join(message.text for message in render.messages)
        if UNREADABLE in text:
            self.die(-6)
        elif UNTAUGHT in text:
            self._answer(p.Rendered(render.id, error="Roles must alternate."))
        else:
            self._answer(p.Rendered(render.id, prompt_of(render.messages)))

    def _answer(self, rendered: p.Rendered) -> None:
        delay = 0.0 if self._calm else self._dice.choice(DELAYS)
        if delay:
            asyncio.get_running_loop().call_later(delay, self.say, rendered)
        else:
            self.say(rendered)

    def load_on(self, stages: int = 1) -> None:
        """The vocabulary, then half of the weights, then the rest."""
        for _ in range(stages):
            if self.hangs or self._mute or self.stage == 3:
                return
            self.say([TEXT_READY, p.LoadProgress(0.5), READY][self.stage])
            self.stage += 1

    def fail_to_load(self) -> None:
        self.say(p.LoadFailed("model_unavailable", "The file is cut off."))

    def drain(self) -> None:
        """Takes the commands that came since the last step."""
        if self.hangs or not self.ready:
            return
        commands, self._inbox = self._inbox, []
        for command in commands:
            match command:
                case p.Submit():
                    self.runs[command.run] = FakeRun(command, at=len(command.emitted))
                case p.Cancel(run=run) if run in self.runs:
                    self.runs[run].cancelled = True
                case p.Lookup():
                    self.say(p.Found(command.id, self._dice.randrange(len(command.prompt))))

    def step(self, chosen: Sequence[str]) -> None:
        """One step in which these get one piece each, or their end."""
        if self.hangs or not self.ready:
            return
        runs = [self.runs[run] for run in chosen]
        if any(poisoned(run.submit) for run in runs):
            self.die(-11)
            return
        self.report(*(self._advance(run) for run in runs))

    def report(self, *outputs: p.Output) -> None:
        for output in outputs:
            if output.finish is not None:
                self.runs.pop(output.run, None)
                self.owes.discard(output.run)
        self.say(p.Stepped(outputs=list(outputs)))

    def _advance(self, run: FakeRun) -> p.Output:
        if run.submit.warm:
            return p.Output(run.submit.run, finish=p.Finish(p.WARMED))
        return advance(run, self._script)

    # ---- what it says

    def say(self, report: p.Report) -> None:
        """Whole, or in two parts of which the second comes later, with all that follows it."""
        if self._mute:
            return
        data = p.frame(report)
        if self._sent:
            self._sent += data
        elif not self._calm and self._dice.random() < 0.03:
            self.begin_frame(data)
            asyncio.get_running_loop().call_later(self._dice.choice([0.0, 0.05, 2.0]), self._arrive)
        else:
            self.reader.feed_data(data)

    def begin_frame(self, data: bytes) -> None:
        cut = self._dice.randrange(len(data))
        if cut:
            self.reader.feed_data(data[:cut])
        self._sent += data[cut:]

    def _arrive(self) -> None:
        data, self._sent = bytes(self._sent), bytearray()
        if data and not self._mute:
            self.reader.feed_data(data)

    def talk_nonsense(self) -> None:
        if not self._mute and not self._sent:
            self.reader.feed_data(self._dice.choice(GARBAGE))

    def break_off(self, code: int) -> None:
        """It dies in the middle of a frame."""
        if not self._mute and not self._sent:
            frame = p.frame(p.Stepped([p.Output(run, [1], "never") for run in self.runs]))
            self.begin_frame(frame)
        self.die(code)

    def die(self, code: int) -> None:
        """Its frames end at once, and the system tells of its end a little later."""
        if self._mute:
            return
        self._mute = True
        if not self._closed:
            self.reader.feed_eof()
        loop = asyncio.get_running_loop()
        loop.call_later(self._dice.choice([0.0, 0.0, 0.0, 0.2]), self._end, code)

    def _end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()


def poisoned(submit: p.Submit) -> bool:
    return ord(POISON) % N_VOCAB in submit.prompt


def no_process() -> OSError:
    return OSError(errno.EAGAIN, "Resource temporarily unavailable")
