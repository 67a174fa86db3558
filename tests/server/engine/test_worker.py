"""The engine process itself, spoken to through its socket."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from support_model import starter

from hobnob.server.engine import protocol
from hobnob.server.engine.protocol import (
    Cancel,
    ChatMessage,
    Command,
    Configure,
    Forget,
    Found,
    LoadFailed,
    LoadProgress,
    Lookup,
    Measured,
    Output,
    Ready,
    Render,
    Rendered,
    Report,
    Sampling,
    Shutdown,
    Stepped,
    Submit,
    TextReady,
    Tokenize,
)
from hobnob.server.engine.worker import read_frame

DEADLINE_SECONDS = 60.0

Kind = TypeVar("Kind", bound=Report)


class Process:
    def __init__(self, log: Path) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        self.socket.settimeout(DEADLINE_SECONDS)
        self.log = log
        with theirs, log.open("wb") as out:
            command = [sys.executable, "-m", "hobnob.server.engine.worker", str(theirs.fileno())]
            self.popen = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.socket.sendall(protocol.frame(command))

    def next(self) -> Report:
        body = read_frame(self.socket)
        assert body is not None, f"the engine is gone: {self.log.read_text()}"
        return protocol.report(body)

    def until(self, kind: type[Kind]) -> Kind:
        while not isinstance(report := self.next(), kind):
            pass
        return report

    def outputs(self, until: Callable[[Output], bool]) -> list[Output]:
        found: list[Output] = []
        while not any(map(until, found)):
            found += self.until(Stepped).outputs
        return found

    def close(self) -> None:
        self.socket.close()
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(DEADLINE_SECONDS)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    started = Process(tmp_path / "engine.log")
    yield started
    started.close()


def configure(path: Path | None = None) -> Configure:
    return Configure(str(path or starter()), n_ctx=256, n_cells=512, n_seq_max=2, n_threads=1)


def finished(output: Output) -> bool:
    return output.finish is not None


def prompt(process: Process, text: str) -> list[int]:
    process.send(Render(1, [ChatMessage("user", text)]))
    return process.until(Rendered).tokens


def test_from_loading_to_a_reply_and_a_clean_end(process: Process) -> None:
    process.send(configure(), Tokenize(7, "hello <|im_end|>"))
    text = process.next()
    assert isinstance(text, TextReady) and text.n_ctx_train == 8192 and text.has_template
    rendered = process.until(Rendered)
    assert rendered.id == 7 and len(rendered.tokens) > 3 and rendered.error is None

    # what is submitted while the weights load waits for them
    ask = prompt(process, "Hi!")
    process.send(Submit("a", ask, Sampling(seed=1, temperature=0.0, max_tokens=6), exact=True))
    ready = process.until(Ready)
    assert (ready.n_ctx, ready.n_cells, ready.n_seq_max, ready.device) == (256, 512, 2, "cpu")
    assert ready.exact_rows == 128
    outputs = process.outputs(finished)
    reply = [token for output in outputs for token in output.tokens]
    finish = outputs[-1].finish
    assert finish is not None and finish.reason in ("max_tokens", "end_turn")
    assert finish.prompt_tokens == len(ask) and finish.completion_tokens == len(reply) > 2

    # the same run, gone on with by another engine after a crash, says the same
    again = Submit("b", ask, Sampling(seed=1, temperature=0.0, max_tokens=6), reply[:2], exact=True)
    process.send(again)
    later = process.outputs(finished)
    assert reply[:2] + [token for output in later for token in output.tokens] == reply
    joined = (later[0].replayed or "") + "".join(output.text for output in later)
    assert joined == "".join(output.text for output in outputs)

    # the prompt and the reply are in the cells, all but what only the reply's last token needs
    process.send(Lookup(5, "local", [*ask, *reply, 1, 2], exact=True))
    found = process.until(Found)
    assert (found.id, found.resident) == (5, len(ask) + len(reply) - 1)
    process.send(Lookup(6, "another", [*ask, *reply], exact=True))
    assert process.until(Found) == Found(6, 0)

    process.send(Shutdown())
    assert process.popen.wait(DEADLINE_SECONDS) == 0
    assert "Traceback" not in process.log.read_text()


def test_what_an_engine_measured_spares_the_next_one_the_measuring(
    tmp_path: Path, tiny: Path
) -> None:
    def ready(measured: Measured | None) -> Ready:
        process = Process(tmp_path / "engine.log")
        try:
            process.send(msgspec.structs.replace(configure(tiny), measured=measured))
            return process.until(Ready)
        finally:
            process.close()

    measured = ready(None).measured
    assert measured is not None and (measured.exact_rows, measured.rows) == (128, 128)
    assert measured.stretch_s > 0 and measured.token_s > 0
    told = msgspec.structs.replace(measured, exact_rows=77)
    assert (ready(told).exact_rows, ready(told).measured) == (77, told)
    again = ready(msgspec.structs.replace(told, of=b"another model"))
    assert again.exact_rows == 128
    assert again.measured is not None and again.measured.of == measured.of


def test_two_runs_share_steps_and_a_cancelled_one_leaves_the_other(process: Process) -> None:
    process.send(configure())
    asks = [prompt(process, text) for text in ("Tell me a story.", "Count to a hundred.")]
    sampling = Sampling(seed=1, temperature=0.0, ignore_eos=True, max_tokens=40)
    process.send(*(Submit(f"r{n}", ask, sampling) for n, ask in enumerate(asks)))
    seen = process.outputs(lambda output: len(output.tokens) > 0)
    while process.until(Stepped).stats.running < 2:
        pass
    process.send(Cancel("r0"))
    seen += process.outputs(lambda output: output.run == "r0" and finished(output))
    assert [o.finish.reason for o in seen if o.finish is not None] == ["cancelled"]
    (finish,) = (o.finish for o in process.outputs(finished) if o.finish is not None)
    assert finish.completion_tokens == 40


@pytest.mark.parametrize("content", [None, b"no model", "half"])
def test_a_file_that_cannot_be_loaded_is_said_and_the_process_waits_to_be_told_to_end(
    process: Process, tmp_path: Path, content: bytes | str | None
) -> None:
    path = tmp_path / "model.gguf"
    if content == "half":
        content = starter().read_bytes()[: 30 * 2**20]
    if isinstance(content, bytes):
        path.write_bytes(content)
    process.send(configure(path))
    failed = process.until(LoadFailed)
    code = "model_not_found" if content is None else "model_unavailable"
    assert failed.code == code and failed.message
    process.send(Render(1, [ChatMessage("user", "x")]))
    assert process.until(Rendered).error
    process.send(Shutdown())
    assert process.popen.wait(DEADLINE_SECONDS) == 0


def test_a_conversation_is_not_read_again_after_a_restart_until_it_is_deleted(
    tmp_path: Path, tiny: Path
) -> None:
    folder = tmp_path / "snapshots"
    settings = msgspec.structs.replace(
        configure(tiny), snapshot_folder=str(folder), snapshot_disk_bytes=10**9
    )
    sampling = Sampling(seed=1, temperature=0.0, max_tokens=4, ignore_eos=True)
    said: list[int] = []
    found = []
    for life, forget in enumerate((False, True, False)):
        process = Process(tmp_path / f"engine-{life}.log")
        process.send(settings)
        ask = [*prompt(process, "word " * 40), *said]
        process.send(Submit("a", ask, sampling, group="g"))
        outputs = process.outputs(finished)
        said += [token for output in outputs for token in output.tokens]
        found.append(outputs[-1].finish)
        if forget:
            process.send(Forget("g"))
        process.send(Shutdown())
        assert process.popen.wait(DEADLINE_SECONDS) == 0
        assert "Traceback" not in process.log.read_text()
        process.close()
        assert bool(list(folder.iterdir())) is not forget
    first, second, third = found
    assert first is not None and second is not None and third is not None
    assert (first.cached_tokens, third.cached_tokens) == (0, 0)
    assert first.prompt_tokens - 16 < second.cached_tokens < second.prompt_tokens


@pytest.mark.parametrize("busy", [False, True])
def test_the_process_ends_when_its_socket_closes_whatever_it_is_doing(
    process: Process, busy: bool
) -> None:
    process.send(configure())
    if busy:
        process.send(Submit("a", [1] * 200, Sampling(seed=1, ignore_eos=True)))
        process.until(Stepped)
    else:
        process.until(LoadProgress)
    process.socket.close()
    assert process.popen.wait(DEADLINE_SECONDS) == 0


def test_what_it_does_not_understand_ends_the_process_with_a_reason(process: Process) -> None:
    process.socket.sendall(protocol.LENGTH.pack(3) + b"\xc1\xc1\xc1")
    assert process.popen.wait(DEADLINE_SECONDS) == 65
    assert "cannot understand" in process.log.read_text()
    assert "Traceback" not in process.log.read_text()
