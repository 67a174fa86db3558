"""What stands around the messages stands in line with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until


@pytest.mark.parametrize("width", [40, 80, 100, 141, 142, 200, 201])
async def test_the_input_is_in_line_with_the_messages_at_any_width(
    tmp_path: Path, width: int
) -> None:
    client = FakeClient()
    client.talk("t", "question " * 60, "answer " * 60 + "\n\nthe end")
    async with running(client, tmp_path, size=(width, 50), conversation="c0001") as pilot:
        await until(pilot, lambda: "the end" in screen_text(pilot))
        chat = pilot.app.chat
        chat.say_trouble("Something is amiss.")
        pilot.app.notify("And something was told.")
        await until(pilot, lambda: "was told" in screen_text(pilot))
        box, text = chat.composer.region, chat.composer.content_region
        others = [chat.query_one("#banner"), chat.query_one("#notices"), *chat.view.views]
        assert {(one.region.x, one.region.right) for one in others} == {(box.x, box.right)}
        for view in chat.view.views:
            assert (view.content_region.x, view.content_region.right) == (text.x, text.right)
        room = chat.region
        assert abs((box.x - room.x) - (room.right - box.right)) <= 1
        assert box.width == min(104, room.width - 2)
