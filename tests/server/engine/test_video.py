"""The driver is asked for its memory once a second at most."""

from __future__ import annotations

from hobnob.server.engine.devices import Device
from hobnob.server.engine.video import VideoMemory


def test_what_is_free_is_looked_up_again_after_a_second_and_not_before() -> None:
    now, free, asked = [0.0], [40], [0]

    def gpus() -> list[Device]:
        asked[0] += 1
        return [Device("a", free[0], 100), Device("b", 5, 10)]

    video = VideoMemory(gpus, lambda: now[0])
    assert video() == (45, 110)
    free[0], now[0] = 20, 0.9
    assert (video(), asked) == ((45, 110), [1])
    now[0] = 1.0
    assert (video(), asked) == ((25, 110), [2])


def test_without_a_gpu_there_is_none() -> None:
    assert VideoMemory(list, lambda: 0.0)() == (0, 0)
