"""Ended runs in memory: how many, how large, and for how long."""

from __future__ import annotations

import weakref

from hobnob.server import wire
from hobnob.server.engine.protocol import Sampling
from hobnob.server.finished import Finished, Followable
from hobnob.server.live import Job, LiveRun
from hobnob.server.log import LogEntry


def ended(id_: str, text: str = "x", conversation: str = "c") -> Followable:
    job = Job(id_, "local", conversation, "m", "model", [1], Sampling(1), "v", False, True, 0.0)
    live = LiveRun(job, stored=True)
    live.log.publish([LogEntry(1, wire.BlockDelta(0, text))], ended=True)
    return Followable.of(live)


def test_the_oldest_make_room() -> None:
    finished = Finished(2, 10_000_000)
    for name in "abc":
        finished.keep(ended(name))
    assert finished.find("a") is None
    assert finished.find("b") and finished.find("c")


def test_bytes_are_bounded_too_and_one_that_is_too_large_is_not_kept() -> None:
    finished = Finished(10, 5_000)
    finished.keep(ended("a"))
    finished.keep(ended("b", "x" * 1_000))
    assert finished.find("a") and finished.find("b")
    finished.keep(ended("c", "x" * 2_000))
    assert not any(finished.find(name) for name in "abc")
    finished.keep(ended("d"))
    assert finished.find("d")


def test_a_deleted_conversation_is_forgotten() -> None:
    finished = Finished(10, 10_000)
    finished.keep(ended("a", conversation="c1"))
    finished.keep(ended("b", conversation="c2"))
    finished.drop_conversation("local", "c1")
    assert finished.find("a") is None and finished.find("b")


class Prompt(list[int]):
    """Unlike a plain list, it can be watched."""


def test_the_prompt_of_an_ended_run_is_let_go() -> None:
    prompt = Prompt([1])
    job = Job("a", "local", "c", "m", "model", prompt, Sampling(1), "v", False, True, 0.0)
    live = LiveRun(job, stored=True)
    live.log.publish([], ended=True)
    finished = Finished(10, 10_000)
    finished.keep(Followable.of(live))
    watched = weakref.ref(prompt)
    del prompt, job, live
    assert finished.find("a") is not None
    assert watched() is None
