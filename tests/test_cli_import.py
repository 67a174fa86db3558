"""`hobnob history import` against the whole HTTP edge, in this process."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support_edge import KEY, Edge, edge_at
from support_turns import ME, first_turn, said
from support_verbs import Said, replied
from support_verbs import run as run_verb

from hobnob.exits import Exit
from hobnob.store.values import WriteFailed
from hobnob.tui.importing import tree

History = Callable[..., Awaitable[Said]]


@pytest.fixture
async def edges(tmp_path: Path) -> AsyncIterator[tuple[Edge, Edge]]:
    """Two homes: what is exported from the one is imported into the other."""
    async with AsyncExitStack() as stack:
        places = (tmp_path / "one", tmp_path / "two")
        for place in places:
            place.mkdir()
        first, second = [await stack.enter_async_context(edge_at(place)) for place in places]
        yield first, second


@pytest.fixture
def history(
    hobnob_home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> History:
    monkeypatch.setenv("HOBNOB_KEY", KEY)

    async def run(edge: Edge, *arguments: str | Path) -> Said:
        monkeypatch.setenv("HOBNOB_URL", edge.url)
        return await asyncio.to_thread(run_verb, capfd, "history", *map(str, arguments))

    return run


async def lived_in(edge: Edge) -> None:
    """Conversations with branches, an odd text, settings, a pin, and none but a title."""
    for number in range(2):
        settings = {"temperature": 0.5, "seed": 2**63}
        turn = await edge.send("one\0?\u2028", title=f"T{number}", system="S", settings=settings)
        first = await replied(edge, turn)
        id = first["conversation"]["id"]
        second = await replied(edge, await edge.send("two? \U0001f375 \x1b[2J", id))
        again = await edge.call(
            "POST", f"/conversations/{id}/replies", json={"parent": first["message"]["id"]}
        )
        await replied(edge, again.json())
        await edge.call("PATCH", f"/conversations/{id}", json={"head": second["reply"]["id"]})
    await edge.call("PATCH", f"/conversations/{id}", json={"pinned": True, "title": ""})
    await edge.call("POST", "/conversations", json={"title": "empty"})


async def test_what_was_exported_is_the_same_after_an_import(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    one, two = edges
    await lived_in(one)
    file, again = tmp_path / "all.json", tmp_path / "again.json"
    assert (await history(one, "export", "--all", "--json", "-o", file)).code == 0
    result = await history(two, "import", file)
    assert (result.code, result.err) == (0, "hobnob: 3 conversations were imported.\n")
    assert len(result.out.splitlines()) == 3
    await history(two, "export", "--all", "--json", "-o", again)
    assert again.read_bytes() == file.read_bytes()
    assert await two.store.check() == []
    found = await two.store.search(ME, "one")
    assert len(found) == 2


async def test_what_is_here_already_is_said_and_left_as_it_is(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    one, _ = edges
    await lived_in(one)
    file = tmp_path / "all.json"
    await history(one, "export", "--all", "--json", "-o", file)
    listed = await one.store.conversations(ME)
    result = await history(one, "import", file)
    assert (result.code, result.out) == (0, "")
    assert result.err == (
        "hobnob: No conversations were imported; 3 conversations were here already.\n"
    )
    assert await one.store.conversations(ME) == listed


async def test_a_reply_that_was_being_written_is_one_that_was_cut(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    one, two = edges
    turn = await first_turn(one.store, "one?")
    file = tmp_path / "one.json"
    await history(one, "export", turn.conversation.id, "--json", "-o", file)
    assert (await history(two, "import", file)).code == 0
    reply = await two.store.message(ME, turn.reply.id)
    assert (reply.status, reply.error) == ("failed", tree.UNFINISHED)


CHATS = [
    {
        "title": f"Chat {number}",
        "update_time": 1_700_000_000 - number,
        "conversation_id": f"c{number}",
        "current_node": "a",
        "mapping": {
            "q": {
                "parent": None,
                "message": {
                    "author": {"role": "user"},
                    "content": {
                        "content_type": "multimodal_text",
                        "parts": ["tea?", {"content_type": "image_asset_pointer"}],
                    },
                },
            },
            "a": {
                "parent": "q",
                "message": {
                    "author": {"role": "assistant"},
                    "content": {"content_type": "text", "parts": ["yes\x1b[2J"]},
                },
            },
        },
    }
    for number in range(3)
]


async def test_the_file_of_another_tool_is_imported_and_what_is_left_out_is_said(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    edge, _ = edges
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(CHATS))
    dry = await history(edge, "import", "--dry-run", file)
    assert (dry.code, await edge.store.conversations(ME)) == (0, [])
    assert "3 conversations would be imported." in dry.err and "Left out: 3 images." in dry.err
    result = await history(edge, "import", file)
    assert result.out == dry.out
    assert result.err.splitlines()[-2:] == [
        "hobnob: 3 conversations were imported.",
        "hobnob: Left out: 3 images.",
    ]
    listed = await edge.store.conversations(ME)
    assert [one.title for one in listed] == ["Chat 0", "Chat 1", "Chat 2"]
    assert [one.updated_at for one in listed][0] == 1_700_000_000_000
    assert await edge.store.check() == []


async def test_json_says_what_came_of_each(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    edge, _ = edges
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps([*CHATS, CHATS[0], {"mapping": {}, "id": "none"}, 7]))
    bad.write_text("Dear diary")
    result = await history(edge, "import", "--json", good, bad)
    assert result.code == Exit.USAGE
    whole = json.loads(result.out)
    assert [one["title"] for one in whole["imported"]] == ["Chat 2", "Chat 1", "Chat 0"]
    assert [one["title"] for one in whole["already"]] == ["Chat 0"]
    assert [(one["file"], one["title"]) for one in whole["failed"]] == [
        (str(good), None),
        (str(bad), None),
    ]
    assert whole["left_out"] == {"image": 3, "empty conversation": 1}
    assert whole["dry_run"] is False and whole["imported"][0]["messages"] == 2


async def test_one_that_the_server_refuses_takes_nothing_from_the_others(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    edge, _ = edges
    file = tmp_path / "two.jsonl"
    long = [{"role": "user", "content": "x" * 1_100_000}]
    file.write_text(json.dumps({"messages": long}) + "\n" + json.dumps({"messages": long[:0]}))
    with open(file, "a") as out:
        out.write("\n" + json.dumps({"messages": [{"role": "user", "content": "short"}]}))
    result = await history(edge, "import", file)
    assert result.code == Exit.USAGE and "was not imported: The text has" in result.err
    assert [one.title for one in await edge.store.conversations(ME)] == ["short"]


async def test_an_import_that_is_broken_off_is_completed_by_the_next(
    edges: tuple[Edge, Edge],
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edge, _ = edges
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(CHATS))
    take, taken = edge.store.import_conversation, 0

    async def until_full(*arguments: Any) -> bool:
        nonlocal taken
        taken += 1
        if taken == 2:
            raise WriteFailed("The disk is full.")
        return await take(*arguments)

    with monkeypatch.context() as full:
        full.setattr(edge.store, "import_conversation", until_full)
        broken = await history(edge, "import", file)
    assert broken.code == Exit.OUTPUT and len(broken.out.splitlines()) == 1
    assert "The same command again imports the rest." in broken.err
    assert [one.title for one in await edge.store.conversations(ME)] == ["Chat 2"]
    rest = await history(edge, "import", file)
    assert "2 conversations were imported; 1 conversation was here already." in rest.err
    assert len(await edge.store.conversations(ME)) == 3


async def test_what_is_piped_in_is_imported_too(
    edges: tuple[Edge, Edge], history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, _ = edges
    given = [{"role": "user", "content": "Ping?"}, {"role": "assistant", "content": "Pong."}]
    piped = io.TextIOWrapper(io.BytesIO(json.dumps(given).encode()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert (await history(edge, "import", "-")).code == 0
    (one,) = await edge.store.conversations(ME)
    assert one.head is not None
    assert (await edge.store.message(ME, one.head)).text == "Pong."


async def test_a_file_that_is_not_there_starts_nothing(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    edge, _ = edges
    result = await history(edge, "import", tmp_path / "nothing.json")
    assert result.code == Exit.USAGE
    assert "nothing.json: It cannot be read: No such file or directory." in result.err


async def test_a_hostile_title_and_name_cannot_drive_the_terminal(
    edges: tuple[Edge, Edge], history: History, tmp_path: Path
) -> None:
    edge, _ = edges
    turn = await said(edge.store, "x")
    file = tmp_path / "a\x1b[2J.json"
    file.write_text(json.dumps({"version": 1, "conversations": [{"id": "a\x1b]0;x\x07"}, 1]}))
    result = await history(edge, "import", file)
    assert "\x1b" not in result.err and turn.conversation.id
