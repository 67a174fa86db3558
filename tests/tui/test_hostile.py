"""What others wrote is only text, in every place where text is shown.

One session of the app for each text; it is led from place to place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, send, until
from support_documents import HOSTILE_TEXTS
from textual.pilot import Pilot

from hobnob.server import wire
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.records import Hit

LETTERS = "ABCDEFG"


def harmless(pilot: Pilot[int]) -> str:
    """The screen, which holds nothing that a terminal would act on or could not be sent."""
    shown = screen_text(pilot)
    acting = [c for c in shown if c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0)]
    acting += [c for c in shown if "\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"]
    assert acting == []
    shown.encode()  # no lone surrogates: they would end the app
    assert pilot.app.is_running
    return shown


def whole(shown: str) -> bool:
    """Whether all the letters are there, in their order."""
    left = iter(shown)
    return all(letter in left for letter in LETTERS)


async def seen(pilot: Pilot[int]) -> None:
    await until(pilot, lambda: whole(harmless(pilot)))


def rows(pilot: Pilot[int]) -> str:
    """All rows of the newest message, in sight or not."""
    return "\n".join(row.text for row in pilot.app.chat.view.views[-1].rows)


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
async def test_what_others_wrote_is_only_text_in_every_place(tmp_path: Path, text: str) -> None:
    client = FakeClient()
    client.talk(text, text, f"```{text}\n{text}\n```\n\n|a|b|\n|-|-|\n|{text}|c|\n\n> {text}\n")
    client.state["model"]["id"] = text
    async with running(client, tmp_path, size=(140, 40)) as pilot:
        await seen(pilot)  # in the list
        for place in (_messages, _stream, _search, _refusals, _name, _status):
            await place(pilot, client, text)


async def _messages(pilot: Pilot[int], client: FakeClient, text: str) -> None:
    """Title, model, words, code, table and quote; clicked and copied."""
    pilot.app.chat.open("c0001")
    await until(pilot, lambda: len(pilot.app.chat.view.views) == 2)
    await seen(pilot)
    assert whole(rows(pilot))
    pilot.app.chat.view.scroll_home(animate=False)
    await pilot.pause()
    await pilot.click(pilot.app.chat.view.views[0], offset=(5, 1))
    pilot.app.chat.view.views[0].focus()
    await pilot.press("y")
    words = ("Copied", "Too long for the terminal")
    await until(pilot, lambda: any(one in screen_text(pilot) for one in words))
    harmless(pilot)
    pilot.app.chat.new()
    await until(pilot, lambda: pilot.app.focused is pilot.app.chat.composer)


async def _stream(pilot: Pilot[int], client: FakeClient, text: str) -> None:
    """A reply's model, thoughts, tool, notes, troubles and error."""
    await send(pilot, "go")
    script = client.script
    script.put(wire.MessageStart("run1", "c", "r1", text, 7))
    script.put(wire.BlockStart(0, "reasoning"))
    script.put(wire.BlockDelta(0, text))
    await until(pilot, lambda: whole(rows(pilot)))
    harmless(pilot)
    script.put(wire.BlockStop(0))
    script.put(wire.BlockStart(1, "tool"))
    size = max(1, len(text) // 40)
    for at in range(0, len(text), size):
        script.put(wire.BlockDelta(1, text[at : at + size]))
    script.put(wire.NotSaved(text))
    script.put(wire.Restarted(text))
    script.put(Notice(NoticeKind.RECONNECTING, text, 1.0))
    await until(pilot, lambda: "reconnecting" in rows(pilot))
    harmless(pilot)
    script.put(ClientError("failed", text))
    await until(pilot, lambda: pilot.app.talk.live is None)
    harmless(pilot)
    assert rows(pilot).count("G") >= 4


async def _search(pilot: Pilot[int], client: FakeClient, text: str) -> None:
    """Hits, snippets, and why there are none."""
    snippet = f"{text[:400]} \x02{text[:400]}\x03"
    client.hits = [Hit("c0001", text, "c0001-m0", "user", snippet, 0)]
    await pilot.press("f3", "x")
    await until(pilot, lambda: pilot.app.screen.query_one("#hits").option_count == 1)
    await seen(pilot)
    client.search = _refusing(text)  # type: ignore[method-assign]
    await pilot.press("y")
    await until(pilot, lambda: pilot.app.screen.query_one("#hits").option_count == 0)
    await seen(pilot)
    await pilot.press("escape")


async def _refusals(pilot: Pilot[int], client: FakeClient, text: str) -> None:
    """What is said over the transcript and in a corner."""
    client.refuse = ClientError("server_overloaded", text)
    pilot.app.chat.composer.put("hello")
    await pilot.press("enter")
    await until(pilot, lambda: "Not sent" in screen_text(pilot))
    await seen(pilot)
    pilot.app.chat.say_trouble("")
    client.delete_conversation = _refusing(text)  # type: ignore[method-assign]
    pilot.app.library.UNDO_SECONDS = 0  # type: ignore[misc]
    pilot.app.library.delete_later("c0001")
    pilot.app._delete_due()
    await until(pilot, lambda: "Not deleted" in screen_text(pilot))
    await seen(pilot)


async def _name(pilot: Pilot[int], client: FakeClient, text: str) -> None:
    """In the line where it is changed."""
    pilot.app.rename("c0001")
    await until(pilot, lambda: "New name" in screen_text(pilot))
    await seen(pilot)
    await pilot.press("escape")


async def _status(pilot: Pilot[int], client: FakeClient, text: str) -> None:
    """Why the engine failed, and what is waited for."""
    client.state["engine"] = {"state": "failed", "failure": {"message": text}}
    pilot.app._watch_model()
    await until(pilot, lambda: pilot.app.query_one("#model").has_class("failed"))
    await seen(pilot)
    pilot.app._hear(Notice(NoticeKind.BUSY, text))
    await pilot.pause()
    harmless(pilot)


def _refusing(text: str) -> Callable[..., Awaitable[Any]]:
    async def refuse(*_: object, **__: object) -> Any:
        raise ClientError("internal", text)

    return refuse
