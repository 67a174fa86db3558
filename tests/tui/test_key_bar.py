from __future__ import annotations

from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until

from hobnob.tui.app import KEYS
from hobnob.tui.key_bar import fitting


def test_every_width_names_only_whole_keys_and_the_one_that_leads_to_all() -> None:
    for width in range(100):
        shown = fitting(KEYS, width)
        assert len(shown) <= width
        named = shown.split("   ") if shown else []
        assert [one for one in KEYS if one in named] == named
        assert (KEYS[-1] in named) == (width >= len(KEYS[-1]))


@pytest.mark.parametrize(
    ("width", "row"),
    [(40, "Enter send   Esc stop   F1 keys"), (100, "   ".join(KEYS))],
)
async def test_the_foot_of_the_screen_cuts_no_key_off(tmp_path: Path, width: int, row: str) -> None:
    async with running(FakeClient(), tmp_path, size=(width, 12)) as pilot:
        await until(pilot, lambda: screen_text(pilot).splitlines()[-1].strip() == row)


async def test_keys_come_and_go_with_the_width(tmp_path: Path) -> None:
    async with running(FakeClient(), tmp_path, size=(40, 12)) as pilot:
        for width, there in ((100, True), (40, False), (120, True)):
            await pilot.resize_terminal(width, 12)
            await until(pilot, lambda there=there: ("Ctrl+P" in screen_text(pilot)) == there)
