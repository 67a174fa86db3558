"""Two clients of one real server: the app, given its address and key as from another machine,
shows what is asked and answered from a shell."""

from __future__ import annotations

import asyncio
from pathlib import Path

from support_app import screen_text, until
from support_e2e import GREEDY, WAIT_SECONDS, Home, read_rest

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.tui.app import HobnobApp
from hobnob.tui.client import Client


async def test_the_app_shows_live_what_another_client_of_its_server_does(
    home: Home, tmp_path: Path
) -> None:
    short = ("-o", "max_tokens", "4", "-o", "ignore_eos", "true", *GREEDY)
    assert home.run("ask", *short, "Name a river.").returncode == 0
    (conversation,) = home.conversations()
    elsewhere = Paths.home({"HOBNOB_HOME": str(tmp_path / "second")})
    host, port = home.address()
    target = Target.choose(f"http://{host}:{port}", home.key(), environ={})
    app = HobnobApp(
        lambda hear: Client(target, on_notice=hear),
        elsewhere.state_dir,
        conversation=conversation,
    )
    async with app.run_test(size=(120, 40)) as pilot, asyncio.timeout(WAIT_SECONDS):
        await until(pilot, lambda: "Name a river." in screen_text(pilot))
        await pilot.press(*"my draft")
        long = ("-o", "max_tokens", "80", "-o", "ignore_eos", "true", *GREEDY)
        asking = home.start("ask", *long, "--conversation", conversation, "And a hill?")
        while app.talk.live is None or not app.talk.live.text:
            await pilot.pause(0.02)
        await until(pilot, lambda: "And a hill?" in screen_text(pilot))
        while app.talk.live is not None:
            await pilot.pause(0.02)
        shown, _ = await asyncio.to_thread(read_rest, asking)
        assert app.talk.entries[-1].text.rstrip("\n") == shown.decode().rstrip("\n")
        assert app.chat.composer.text == "my draft"

        await asyncio.to_thread(home.run, "ask", *short, "Something new.")
        while len(app.sidebar.shown) < 2:
            await pilot.pause(0.02)
        assert app.talk.id == conversation

        await asyncio.to_thread(home.run, "history", "rm", "-y", conversation)
        while "was deleted elsewhere" not in screen_text(pilot):
            await pilot.pause(0.02)
        assert [one.id for one in app.sidebar.shown] != [conversation]
        assert app.chat.composer.text == "my draft"
