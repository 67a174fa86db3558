"""The soak of the engine's steps runs, and finds what does not add up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STEPS = 1500

PINS = """
from hobnob.server.engine.snapshots import Snapshots
Snapshots.unpin = lambda self, links: None
"""
REPLIES = """
from hobnob.server.engine.sampling import Sampler
draw, drawn = Sampler.draw, 0
def late(self, row, at):
    global drawn
    drawn += 1
    return draw(self, row, at + drawn // 100)
Sampler.draw = late
"""


def soak(model: Path, fault: str = "") -> tuple[int, str]:
    run = f"import sys\nfrom bench import soak_steps\n{fault}\nsys.exit(soak_steps.main())"
    options = ["--steps", str(STEPS), "--seed", "5", "--ram-mib", "0.4", "--model", str(model)]
    done = subprocess.run(
        [sys.executable, "-c", run, *options], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr + done.stdout


def test_after_each_of_many_random_steps_everything_adds_up(tiny: Path) -> None:
    code, said = soak(tiny)
    assert code == 0, said
    assert "everything added up after each; resident after a quarter" in said.splitlines()[-1]
    assert "put-aside" in said and "forget" in said


@pytest.mark.parametrize(
    ("fault", "found"),
    [(PINS, "a state is held for nobody"), (REPLIES, "an exact reply is another one")],
)
def test_a_fault_ends_it_with_what_was_done_before(tiny: Path, fault: str, found: str) -> None:
    code, said = soak(tiny, fault)
    assert code == 1 and found in said
    assert said.splitlines()[-1].startswith("BROKEN at step")
    assert "exact r" in said
