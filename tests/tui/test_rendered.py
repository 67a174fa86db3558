"""`hobnob ask --render`: a reply's Markdown on a terminal, block after block."""

from __future__ import annotations

import asyncio
import re

import pytest
from fake_server import RUN, STREAM_HEAD, FakeServer, Request, body_of, chunk, reply_events
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support_cli import Cli
from support_documents import DOCUMENTS
from support_session import Session

from hobnob.tui.rendered import Rendered

ANSWER = DOCUMENTS["answer"]
TERM = {"TERM": "xterm"}


def rendered(text: str, *cuts: int, columns: int = 60, **environ: str) -> str:
    form = Rendered(lambda: columns, TERM | environ)
    bounds = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return "".join(map(form.feed, pieces)) + form.end()


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@given(st.sampled_from(sorted(DOCUMENTS)), st.lists(st.integers(0, 400), max_size=5))
def test_no_way_of_cutting_changes_what_is_printed(name: str, cuts: list[int]) -> None:
    text = DOCUMENTS[name]
    assert rendered(text, *(cut for cut in cuts if cut <= len(text))) == rendered(text)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
@pytest.mark.parametrize("columns", [1, 20, 200])
def test_a_row_is_never_wider_than_the_terminal_and_only_styled(name: str, columns: int) -> None:
    out = rendered(DOCUMENTS[name], columns=columns)
    assert "\x1b" not in bare(out)
    if columns >= 20:  # in fewer a code block's margin alone may be more
        assert max((cell_len(line) for line in bare(out).split("\n")), default=0) <= columns
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", bare(out))
    assert out == "" or out.endswith("\n")
    assert not any(line != line.rstrip() for line in bare(out).split("\n"))


def test_marks_become_looks_and_without_colour_there_are_no_colours() -> None:
    out = rendered(ANSWER)
    assert "\x1b[1;4mSorting\x1b[0m\n" in out and "\x1b[1mIn place\x1b[0m" in out
    assert "\x1b[36mlist.sort()\x1b[0m" in out
    without = rendered(ANSWER, NO_COLOR="1")
    assert bare(without) == bare(out) and "list.sort():" in without
    assert set(re.findall(r"\x1b\[([\d;]*)m", without)) == {"0", "1", "1;4", "3"}


async def test_each_block_is_printed_when_it_is_complete_and_never_again(
    server: FakeServer, hobnob: Cli
) -> None:
    async def waits(request: Request, writer: object) -> None:
        writer.write(STREAM_HEAD + chunk(body_of(server.events[:4])))  # type: ignore[attr-defined]
        await session.until("One")
        assert "Two" not in session.text
        writer.write(chunk(body_of(server.events[4:])) + b"0\r\n\r\n")  # type: ignore[attr-defined]

    server.events = reply_events("# One\n\nTw", "o **bold**")
    server.scripts[f"/runs/{RUN}/events"].append(waits)
    async with Session(hobnob, "ask", "--render", "-q", "hi") as session:
        await session.until("Two")
        assert await session.ends() == 0
    assert bare(session.text) == "One\n\nTwo bold\n"


async def test_an_interrupt_leaves_what_there_is_of_the_open_block(
    server: FakeServer, hobnob: Cli
) -> None:
    async def waits(request: Request, writer: object) -> None:
        writer.write(STREAM_HEAD + chunk(body_of(server.events[:4])))  # type: ignore[attr-defined]
        await session.until("One")
        session.type("\x03")
        await asyncio.Event().wait()

    server.events = reply_events("One\n\nTwo is **cut", "")
    server.scripts[f"/runs/{RUN}/events"].append(waits)
    async with Session(hobnob, "ask", "--render", "-q", "hi") as session:
        assert await session.ends() == 130
    assert "Two is **cut\n" in session.text


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"ACCESSIBLE": "1"}])
async def test_where_nothing_is_to_be_drawn_the_reply_is_as_it_is(
    server: FakeServer, hobnob: Cli, env: dict[str, str]
) -> None:
    server.events = reply_events("# One\n\n> **T", "wo**\n")
    result = await hobnob.run("ask", "--render", "hi")
    assert (result.code, result.out) == (0, b"# One\n\n> **Two**\n")
    async with Session(hobnob, "ask", "--render", "-q", "hi", env=env) as session:
        assert await session.ends() == 0
        assert session.text == "# One\n\n> **Two**\n"


@pytest.mark.parametrize("more", [["--json"], ["--code"], ["--resume", "r", "--printed", "3"]])
async def test_it_is_a_form_of_its_own(server: FakeServer, hobnob: Cli, more: list[str]) -> None:
    result = await hobnob.run("ask", "--render", *more, *([] if "--resume" in more else ["hi"]))
    assert result.code == 2 and server.requests == []
