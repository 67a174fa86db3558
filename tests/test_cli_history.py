"""`hobnob history` against the whole HTTP edge, in this process."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from support_edge import KEY, Edge, edge_at
from support_turns import ME, SettableClock, said
from support_verbs import Said, replied
from support_verbs import run as run_verb

from hobnob.exits import Exit
from hobnob.store.store import Store, utc_ms

HOSTILE = 'A\x1b]52;c;cHduZWQ=\x1b\\B\x1b]0;owned\x07C\x1b[2J"D\x9d0;x\x9cE\rF\x08G'


History = Callable[..., Awaitable[Said]]


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with edge_at(tmp_path) as opened:
        yield opened


@pytest.fixture
def history(
    edge: Edge,
    hobnob_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> History:
    monkeypatch.setenv("HOBNOB_URL", edge.url)
    monkeypatch.setenv("HOBNOB_KEY", KEY)

    async def run(*arguments: str) -> Said:
        return await asyncio.to_thread(run_verb, capfd, "history", *arguments)

    return run


async def branched(edge: Edge) -> dict[str, str]:
    """A conversation of two questions, the first of them with two answers; ids by name."""
    first = await replied(edge, await edge.send("one?", title="A title", system="Be brief."))
    id = first["conversation"]["id"]
    second = await replied(edge, await edge.send("two?", id))
    again = await edge.call(
        "POST", f"/conversations/{id}/replies", json={"parent": first["message"]["id"]}
    )
    other = await replied(edge, again.json())
    return {
        "id": id,
        "first": first["message"]["id"],
        "reply": first["reply"]["id"],
        "second": second["message"]["id"],
        "last": second["reply"]["id"],
        "other": other["reply"]["id"],
    }


# ---- export -----------------------------------------------------------------------------------


async def test_markdown_has_a_front_matter_and_the_branch_that_is_shown(
    edge: Edge, history: History
) -> None:
    ids = await branched(edge)
    await edge.call("PATCH", f"/conversations/{ids['id']}", json={"head": ids["last"]})
    result = await history("export", ids["id"][:6])
    assert (result.code, result.err) == (0, "")
    front, _, body = result.out.removeprefix("---\n").partition("\n---\n")
    fields = dict(line.split(": ", 1) for line in front.split("\n"))
    assert fields["title"] == '"A title"'
    assert (fields["id"], fields["models"]) == (f'"{ids["id"]}"', '["tiny.gguf"]')
    assert fields["created"].endswith("Z") and fields["updated"] >= fields["created"]
    assert body == (
        "\n## System\n\nBe brief.\n\n## User\n\none?\n\n## Assistant\n\nHello, world!\n\n"
        "## User\n\ntwo?\n\n## Assistant\n\nHello, world!\n"
    )


async def test_markdown_of_all_branches_has_each_message_once_and_says_where_they_part(
    edge: Edge, history: History
) -> None:
    ids = await branched(edge)
    shown = {name: id[:8] for name, id in ids.items()}
    out = (await history("export", "--markdown", "--branches", ids["id"])).out
    headings = [line for line in out.split("\n") if line.startswith("#")]
    assert headings == [
        "## System",
        f"## User · {shown['first']}",
        f"## Assistant · {shown['other']}",
        f"# Another branch, after {shown['first']}",
        f"## Assistant · {shown['reply']}",
        f"## User · {shown['second']}",
        f"## Assistant · {shown['last']}",
    ]


async def test_json_holds_every_message_with_its_parent(edge: Edge, history: History) -> None:
    ids = await branched(edge)
    result = await history("export", "--json", ids["id"], ids["id"][:5])
    assert result.out.isascii()
    whole = json.loads(result.out)
    (one,) = whole["conversations"]
    assert (whole["version"], one["id"], one["title"]) == (1, ids["id"], "A title")
    assert (one["system"], one["head"]) == ("Be brief.", ids["other"])
    assert {message["id"]: message["parent"] for message in one["messages"]} == {
        ids["first"]: None,
        ids["reply"]: ids["first"],
        ids["second"]: ids["reply"],
        ids["last"]: ids["second"],
        ids["other"]: ids["first"],
    }
    reply = one["messages"][1]
    assert (reply["text"], reply["status"], reply["role"]) == (
        "Hello, world!",
        "completed",
        "assistant",
    )
    assert reply["usage"]["completion_tokens"] > 0 and reply["model"] == "tiny.gguf"


async def test_all_are_exported_however_many_pages_they_fill(
    edge: Edge, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hobnob.tui.verbs.PAGE", 2)
    for number in range(5):
        await said(edge.store, f"question {number}")
    whole = json.loads((await history("export", "--all", "--json")).out)
    asked = [one["messages"][0]["text"] for one in whole["conversations"]]
    assert asked == [f"question {number}" for number in (4, 3, 2, 1, 0)]
    text = (await history("export", "--all")).out
    assert [text.count(f"question {number}\n") for number in range(5)] == [1] * 5


async def test_a_page_for_a_browser_has_every_conversation(edge: Edge, history: History) -> None:
    for number in range(2):
        await said(edge.store, f"question {number}", "**yes**")
    page = await history("export", "--all", "--html")
    assert (page.code, page.err) == (0, "")
    assert page.out.startswith("<!doctype html>") and page.out.endswith("</body></html>\n")
    assert page.out.count("<strong>yes</strong>") == 2 and "question 1" in page.out
    assert (await history("export", "--all", "--html", "--json")).code == Exit.USAGE


async def test_a_time_that_no_calendar_has_keeps_no_conversation_from_being_read(
    edge: Edge, history: History, tmp_path: Path
) -> None:
    id = (await said(edge.store, "hello", "yes")).conversation.id
    with closing(sqlite3.connect(tmp_path / "hobnob.db", isolation_level=None)) as conn:
        conn.execute("UPDATE conversations SET created_at = ?1, updated_at = ?1", (2**63 - 1,))
    listed = await history("list")
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.startswith(f"{id[:8]}  ????-??-?? ??:??  ")
    exported = await history("export", "--all")
    assert (exported.code, exported.err) == (0, "")
    assert "created: null\n" in exported.out and "hello" in exported.out


async def test_an_empty_history_is_an_empty_export(history: History) -> None:
    assert json.loads((await history("export", "--all", "--json")).out)["conversations"] == []
    assert (await history("export", "--all")).out == ""


async def test_an_export_goes_into_a_private_file_that_is_there_when_it_is_complete(
    edge: Edge, history: History, tmp_path: Path
) -> None:
    turn = await said(edge.store, HOSTILE)
    file = tmp_path / "out.md"
    file.write_text("the one before")
    result = await history("export", turn.conversation.id, "nothing", "-o", str(file))
    assert (result.code, result.out) == (Exit.NOT_FOUND, "")
    assert file.read_text() == "the one before"
    result = await history("export", "-o", str(file), turn.conversation.id)
    assert (result.code, result.out, result.err) == (0, "", "")
    assert HOSTILE.encode() in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir() if "part" in one.name] == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_an_export_onto_a_full_disk_fails_and_a_device_stays_what_it_is(
    edge: Edge, history: History
) -> None:
    turn = await said(edge.store, "hi")
    result = await history("export", turn.conversation.id, "-o", "/dev/full")
    assert result.code == Exit.OUTPUT and "No space left" in result.err
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


async def test_an_export_cannot_drive_a_terminal(
    edge: Edge, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = await said(edge.store, HOSTILE, HOSTILE)
    await edge.store.update_conversation(ME, turn.conversation.id, title=HOSTILE, system=HOSTILE)
    monkeypatch.setattr("os.isatty", lambda descriptor: True)
    for form in ("--markdown", "--json"):
        shown = (await history("export", form, "--branches", turn.conversation.id)).out
        assert "A" in shown
        assert not [c for c in shown if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "ids, or --all"),
        (["--all", "abcd"], "ids, or --all"),
        (["--all", "--json", "--markdown"], "choose one"),
    ],
)
async def test_an_export_of_nothing_or_of_two_things_is_wrong_use(
    history: History, arguments: list[str], words: str
) -> None:
    result = await history("export", *arguments)
    assert result.code == Exit.USAGE and words in result.err


async def test_a_reply_that_is_still_written_is_exported_as_far_as_it_is(
    edge: Edge, history: History, tmp_path: Path
) -> None:
    async with edge_at(tmp_path / "slow", playing=False) as slow:
        turn = await slow.send("hi")
        os.environ["HOBNOB_URL"] = slow.url
        out = (await history("export", turn["conversation"]["id"])).out
    assert "## Assistant (queued)" in out or "## Assistant (running)" in out


# ---- deleting and renaming --------------------------------------------------------------------

DAY_MS = 86_400_000


@pytest.fixture
async def aged(tmp_path: Path) -> AsyncIterator[dict[int, str]]:
    """Conversations in the store at tmp_path, by the days since they changed."""
    clock = SettableClock()
    now = utc_ms()
    store = await Store.open(tmp_path / "hobnob.db", clock=clock)
    ids = {}
    for days in (40, 31, 29, 1):
        clock.now = now - days * DAY_MS
        ids[days] = (await said(store, f"{days} days ago")).conversation.id
    await store.close()
    yield ids


async def kept(edge: Edge) -> set[str]:
    return {one.id for one in await edge.store.conversations(ME)}


async def test_only_what_is_older_and_what_is_named_is_deleted(
    aged: dict[int, str], edge: Edge, history: History
) -> None:
    result = await history("rm", "--older-than", "30d", "--yes", aged[1][:8])
    assert (result.code, result.out) == (0, "")
    assert await kept(edge) == {aged[29]}
    for days in (40, 31, 1):
        assert aged[days][:8] in result.err
    assert "Deleted: 3 conversations" in result.err
    again = await history("rm", "--older-than", "30d", "-y")
    assert again.code == 0 and "No conversation is as old" in again.err
    assert (await history("rm", "--older-than", "0h", "-y")).code == 0
    assert await kept(edge) == set()


async def test_pinned_ones_are_spared_by_age_and_deleted_by_name(
    aged: dict[int, str], edge: Edge, history: History
) -> None:
    for days in (40, 31, 29):
        await edge.call("PATCH", f"/conversations/{aged[days]}", json={"pinned": True})
    result = await history("rm", "--older-than", "0h", "-y", aged[40])
    assert result.code == 0
    assert await kept(edge) == {aged[31], aged[29]}
    assert "Pinned, and therefore kept: 2 conversations" in result.err
    again = await history("rm", "--older-than", "0h", "-y")
    assert again.code == 0 and "No other conversation is as old" in again.err
    assert (await history("rm", aged[31][:8], "-y")).code == 0
    assert await kept(edge) == {aged[29]}


async def test_conversations_are_pinned_and_shown_as_such(
    aged: dict[int, str], edge: Edge, history: History
) -> None:
    done = await history("pin", aged[40][:8], aged[29])
    assert (done.code, done.out, done.err) == (0, "", "")
    lines = (await history("list")).out.splitlines()
    assert [line for line in lines if line.endswith("  (pinned)")] == lines[:2]
    only = (await history("list", "--pinned", "--json")).out
    assert {one["id"] for one in json.loads(only)} == {aged[40], aged[29]}
    before = (await edge.store.conversation(ME, aged[40])).change
    assert (await history("pin", aged[40])).code == 0  # it is already
    assert (await edge.store.conversation(ME, aged[40])).change == before
    assert (await history("unpin", "nothing", aged[40])).code == Exit.NOT_FOUND
    assert (await edge.store.conversation(ME, aged[40])).pinned
    assert (await history("unpin", aged[40], aged[29])).code == 0
    assert await edge.store.conversations(ME, pinned=True) == []


@pytest.mark.parametrize(("answered", "left"), [("n\n", 4), ("", 4), ("y\n", 1)])
async def test_on_a_terminal_it_says_what_it_would_delete_and_asks_once(
    aged: dict[int, str],
    edge: Edge,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    answered: str,
    left: int,
) -> None:
    monkeypatch.setattr("os.isatty", lambda descriptor: True)
    monkeypatch.setattr("hobnob.tui.verbs.SHOWN_BEFORE_DELETING", 1)
    monkeypatch.setattr("sys.stdin", io.StringIO(answered))
    result = await history("rm", "--older-than", "2w")
    assert result.code == 0
    assert "and 2 more" in result.err and result.err.count("[y/N]") == 1
    assert "Delete 3 conversations for good?" in result.err
    assert len(await kept(edge)) == left


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-y"], "Say which conversations"),
        (["--older-than", "30d"], "needs -y"),
        (["--older-than", "30", "-y"], "is no age"),
        (["--older-than", "-1d", "-y"], "is no age"),
        (["--older-than", "1y", "-y"], "is no age"),
    ],
)
async def test_what_cannot_be_meant_deletes_nothing(
    aged: dict[int, str], edge: Edge, history: History, arguments: list[str], words: str
) -> None:
    result = await history("rm", *arguments)
    assert result.code == Exit.USAGE and words in result.err
    assert len(await kept(edge)) == 4


async def test_a_wrong_id_beside_an_age_deletes_nothing(
    aged: dict[int, str], edge: Edge, history: History
) -> None:
    assert (await history("rm", "nothing", "--older-than", "1d", "-y")).code == Exit.NOT_FOUND
    assert len(await kept(edge)) == 4


async def test_a_conversation_is_given_another_title(edge: Edge, history: History) -> None:
    id = (await said(edge.store, "hi")).conversation.id
    result = await history("rename", id[:8], "Another", "title")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert (await edge.store.conversation(ME, id)).title == "Another title"
    assert (await history("rename", id, "x" * 501)).code == Exit.USAGE
    assert (await history("rename", "nothing", "x")).code == Exit.NOT_FOUND
