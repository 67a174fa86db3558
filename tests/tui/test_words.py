"""The facts about a reply, in words."""

from __future__ import annotations

import pytest

from hobnob.server.wire import Timings, Usage
from hobnob.tui import words
from hobnob.tui.transcript import ASSISTANT, Entry


def entry(tokens: int, seconds: float, new: int = 0) -> Entry:
    made = Entry("r", ASSISTANT)
    made.usage = Usage(10, 4, tokens)
    made.timings = Timings(prefill_s=0.5, decode_s=seconds, decoded=new)
    return made


def test_a_rate_is_that_of_the_tokens_after_the_first() -> None:
    assert words.rate(entry(101, 10.0)) == "10.0"
    assert words.footer(entry(101, 10.0)) == [
        "10 prompt tokens (4 cached)",
        "first after 0.5 s",
        "101 tokens at 10.0/s",
    ]


def test_the_rate_of_a_reply_that_was_gone_on_with_is_that_of_its_new_tokens() -> None:
    continued = entry(996, 2.0, new=21)
    assert words.rate(continued) == "10.0"
    assert "996 tokens at 10.0/s" in words.footer(continued)
    assert words.rate(entry(996, 2.0, new=1)) == ""


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 1.0), (50, 0.099), (2, 0.0), (0, 5.0)])
def test_a_rate_that_would_be_noise_is_not_shown(tokens: int, seconds: float) -> None:
    assert words.rate(entry(tokens, seconds)) == ""
    assert not any("/s" in fact for fact in words.footer(entry(tokens, seconds)))


def test_a_reply_without_figures_has_none() -> None:
    assert words.rate(Entry("r", ASSISTANT)) == ""
    assert words.footer(Entry("r", ASSISTANT)) == []
