"""The list of models: sizes, whether they fit, and what taking one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_client import FakeClient
from support_app import running, screen_text, until

from hobnob.tui.client import check_restart
from hobnob.tui.model_picker import ModelPicker, matching, row
from hobnob.tui.notice import ClientError

FITS = {"verdict": "fits", "words": "needs about 5.1 GB of 14.0 GB free memory", "need_bytes": 1}
LARGE = {"verdict": "too_large", "words": "needs about 45.0 GB of 14.0 GB free memory"}
MODELS: list[dict[str, Any]] = [
    {"id": "big[/]-70b", "size": 42 * 10**9, "source": "folder", "fit": LARGE, "problem": None},
    {"id": "broken", "size": 10**9, "source": "ollama", "fit": None, "problem": "It is cut off."},
    {"id": "qwen-8b", "size": 4_920_000_000, "source": "huggingface", "fit": FITS},
    {"id": "small", "size": 10**8, "source": "starter", "fit": FITS, "loaded": True},
]


@pytest.fixture
def client() -> FakeClient:
    made = FakeClient()
    made.found_models = MODELS
    return made


def test_a_model_is_shown_with_its_size_and_whether_it_fits() -> None:
    assert row(MODELS[2]).plain == (
        "  qwen-8b   4.92 GB   huggingface\n  fits: needs about 5.1 GB of 14.0 GB free memory"
    )
    assert row(MODELS[0]).plain.endswith(
        "\n  too large: needs about 45.0 GB of 14.0 GB free memory"
    )
    assert row(MODELS[1]).plain.endswith("\n  cannot be loaded: It is cut off.")
    assert row(MODELS[3]).plain == "● small   0.10 GB   starter\n  answers now"
    assert row({}).plain == "     "


def test_models_are_narrowed_by_a_part_of_their_name() -> None:
    assert [one["id"] for one in matching(MODELS, " B ")] == ["big[/]-70b", "broken", "qwen-8b"]
    assert matching(MODELS, "") == MODELS and matching(MODELS, "x") == []


async def test_a_model_is_found_and_taken(client: FakeClient, tmp_path: Path) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.press("slash", *"model", "enter")
        await until(pilot, lambda: "answers now" in screen_text(pilot))
        assert "big[/]-70b" in screen_text(pilot)
        await pilot.press(*"qw")
        await until(pilot, lambda: "big[/]" not in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: client.chosen_models == ["qwen-8b"])
        await until(pilot, lambda: not isinstance(pilot.app.screen, ModelPicker))


async def test_why_a_model_cannot_be_taken_is_said_in_the_list(
    client: FakeClient, tmp_path: Path
) -> None:
    client.refuse = ClientError("busy", "A reply is being [/] written.")
    async with running(client, tmp_path) as pilot:
        await pilot.app.run_command("/model")
        await until(pilot, lambda: "answers now" in screen_text(pilot))
        await pilot.press(*"qw", "enter")
        await until(pilot, lambda: "A reply is being [/] written." in screen_text(pilot))
        for _ in "qw":
            await pilot.press("backspace")
        await pilot.press(*"broken", "enter")
        await until(pilot, lambda: "It cannot be loaded: It is cut off." in screen_text(pilot))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, ModelPicker))
        assert client.chosen_models == []


async def test_the_model_that_answers_is_where_the_list_begins_and_stays(
    client: FakeClient, tmp_path: Path
) -> None:
    async with running(client, tmp_path) as pilot:
        await pilot.app.run_command("/model")
        await until(pilot, lambda: "answers now" in screen_text(pilot))
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(pilot.app.screen, ModelPicker))
        assert client.chosen_models == []


def test_a_server_is_not_ended_under_somebody_s_reply_or_under_who_started_it() -> None:
    check_restart({"server": {"on_demand": True}, "runs": {"live": 0}}, "m")
    with pytest.raises(ClientError, match="hobnob serve --model m"):
        check_restart({"server": {"on_demand": False}, "runs": {"live": 0}}, "m")
    with pytest.raises(ClientError, match="started by hand"):
        check_restart({}, "m")
    with pytest.raises(ClientError, match="A reply is being written"):
        check_restart({"server": {"on_demand": True}, "runs": {"live": 2}}, "m")
