"""A command run in the test's own process: quicker than another one, with the same output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from support_edge import Edge

from hobnob import cli


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


def run(capfd: pytest.CaptureFixture[str], *words: str) -> Said:
    capfd.readouterr()
    code = cli.run(list(words))
    out, err = capfd.readouterr()
    return Said(code, out, err)


async def replied(edge: Edge, turn: Any) -> Any:
    """The turn, when its reply is complete."""
    await edge.call("GET", f"/runs/{turn['run']['id']}/events")
    return turn
