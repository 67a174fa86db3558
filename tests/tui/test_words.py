"""The facts about a reply, in words."""

from __future__ import annotations

import pytest

from hobnob.server.wire import Timings, Usage
from hobnob.tui import words
from hobnob.tui.transcript import ASSISTANT, Entry


def entry(tokens: int, seconds: float) -> Entry:
    made = Entry("r", ASSISTANT)
    made.usage, made.timings = Usage(10, 4, tokens), Timings(prefill_s=0.5, decode_s=seconds)
    return made


def test_a_rate_is_that_of_the_tokens_after_the_first() -> None:
    assert words.rate(entry(101, 10.0)) == "10.0"
    assert words.footer(entry(101, 10.0)) == [
        "10 prompt tokens (4 cached)",
        "first after 0.5 s",
        "101 tokens at 10.0/s",
    ]


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 1.0), (50, 0.099), (2, 0.0), (0, 5.0)])
def test_a_rate_that_would_be_noise_is_not_shown(tokens: int, seconds: float) -> None:
    assert words.rate(entry(tokens, seconds)) == ""
    assert not any("/s" in fact for fact in words.footer(entry(tokens, seconds)))


def test_a_reply_without_figures_has_none() -> None:
    assert words.rate(Entry("r", ASSISTANT)) == ""
    assert words.footer(Entry("r", ASSISTANT)) == []
