"""Writing the answer: encodings, skipping what is printed, outputs that fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hobnob.tui.plain import PIECE_BYTES, Output, OutputClosed, OutputFailed
from hobnob.tui.printed import MAX_NOTES, Printed


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        try:
            os.close(descriptor)
        except OSError:
            pass  # the test closed it


async def printed(pipe: tuple[int, int], *texts: str, **options: object) -> bytes:
    output = Output(pipe[1], **({"terminal": False} | options))  # type: ignore[arg-type]
    for text in texts:
        await output.write(text)
    await output.end()
    os.close(pipe[1])
    with open(pipe[0], "rb", closefd=False) as file:
        return file.read()


async def test_a_pipe_gets_the_text_and_one_line_end(pipe: tuple[int, int]) -> None:
    assert await printed(pipe, "a\x1b\r", "b\n", "c") == b"a\x1b\rb\nc\n"


async def test_a_line_end_that_is_there_is_not_doubled(pipe: tuple[int, int]) -> None:
    assert await printed(pipe, "a", "\n") == b"a\n"


async def test_a_terminal_gets_it_cleaned(pipe: tuple[int, int]) -> None:
    assert await printed(pipe, "a\x1b\r", "\nb\r", terminal=True) == "a␛\nb␍\n".encode()


@pytest.mark.parametrize("skip", range(9))
async def test_bytes_that_are_printed_are_skipped_even_inside_a_character(
    pipe: tuple[int, int], skip: int
) -> None:
    assert await printed(pipe, "a😀", "bc", skip=skip) == "a😀bc\n".encode()[skip:]


async def test_an_encoding_with_state_is_written_as_one_text(pipe: tuple[int, int]) -> None:
    assert await printed(pipe, "a", "é", encoding="utf-16") == "aé\n".encode("utf-16")


async def test_a_full_pipe_holds_up_the_writer_and_not_the_loop(pipe: tuple[int, int]) -> None:
    output = Output(pipe[1], terminal=False)
    writing = asyncio.ensure_future(output.write("x" * 1_000_000))
    await asyncio.sleep(0)
    while output.printed + PIECE_BYTES < 16 * PIECE_BYTES:
        await asyncio.sleep(0)
    assert not writing.done()
    received = 0
    while received < 1_000_000:
        received += len(await asyncio.to_thread(os.read, pipe[0], 65536))
    await writing
    assert output.printed == received == 1_000_000


async def test_a_reader_that_left_is_not_a_full_disk(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(OutputClosed):
        await Output(pipe[1], terminal=False).write("x")


async def test_a_file_is_written_too(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        output = Output(file.fileno(), terminal=False)
        await output.write("x" * 100_000)
    assert (tmp_path / "out").stat().st_size == 100_000


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("act", [Output.write_now, lambda o, t: asyncio.run(o.write(t))])
def test_a_full_disk_says_so(act: Callable[[Output, str], None]) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        with pytest.raises(OutputFailed, match="No space left"):
            act(Output(full.fileno(), terminal=False), "x")


# ---- the note of what is printed --------------------------------------------------------------


def test_a_note_is_read_by_the_next_process(tmp_path: Path) -> None:
    first, second = Printed(tmp_path / "new", "run"), Printed(tmp_path / "new", "run")
    assert second.read() == 0
    first.note(100)
    first.note(7)
    first.close()
    assert second.read() == 7
    second.forget()
    assert second.read() == 0
    second.forget()


@pytest.mark.parametrize("run", ["", "../run", "a/b", "x" * 65])
def test_a_run_is_never_taken_for_a_path(tmp_path: Path, run: str) -> None:
    note = Printed(tmp_path / "notes", run)
    note.note(5)
    assert note.read() == 0 and not (tmp_path / "notes").exists()


def test_a_note_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    note = Printed(tmp_path / "file", "run")
    note.note(5)
    assert note.read() == 0


def test_old_notes_are_thrown_away(tmp_path: Path) -> None:
    for n in range(MAX_NOTES + 20):
        note = Printed(tmp_path, f"run{n}")
        note.note(n)
        note.close()
    assert len(list(tmp_path.iterdir())) == MAX_NOTES
