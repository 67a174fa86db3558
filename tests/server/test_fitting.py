"""Whether a model would fit, for people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fake_engine import READY, FakeEngine
from support_gguf import write

from hobnob.server import fitting
from hobnob.server.engine.fit import MIB, Need
from hobnob.server.engine.protocol import Stats
from hobnob.server.fitting import GB, Fittings, Room, judge

EIGHT_B = Need(  # Q4: 4.6 GiB of weights; 128 KiB of keys and values a token
    layers=(130 * MIB,) * 32, output=410 * MIB, cell=4096, row=4 * (128_256 + 16 * 4096)
)
SIZE = 4_700 * MIB


def test_without_a_gpu_the_free_memory_decides() -> None:
    fits = judge(SIZE, EIGHT_B, Room(16 * GB))
    assert fits.verdict == "fits"
    assert fits.words == "needs about 5.9 GB of 16.0 GB free memory"
    assert judge(SIZE, EIGHT_B, Room(6 * GB)).verdict == "tight"
    assert judge(SIZE, EIGHT_B, Room(5 * GB)).verdict == "too_large"


def test_more_memory_never_makes_it_fit_worse() -> None:
    order = ["too_large", "tight", "fits"]
    verdicts = [order.index(judge(SIZE, EIGHT_B, Room(n * GB // 2)).verdict) for n in range(60)]
    assert verdicts == sorted(verdicts) and set(verdicts) == {0, 1, 2}


def test_where_the_header_does_not_tell_the_size_of_the_files_does() -> None:
    assert judge(10 * GB, None, Room(16 * GB)).words == (
        "needs about 11.5 GB of 16.0 GB free memory"
    )
    assert judge(10 * GB, None, Room(16 * GB, 80 * GB, 80 * GB)).verdict == "fits"


def test_on_a_gpu_the_layers_that_fit_are_named() -> None:
    whole = judge(SIZE, EIGHT_B, Room(16 * GB, 24 * GB, 24 * GB))
    assert (whole.verdict, whole.words) == (
        "fits",
        "needs about 5.3 GB of 24.0 GB free video memory",
    )
    part = judge(SIZE, EIGHT_B, Room(16 * GB, 4 * GB, 24 * GB))
    assert part.verdict == "part" and " of 33 layers on the GPU, about " in part.words
    assert judge(SIZE, EIGHT_B, Room(1 * GB, 2 * GB, 24 * GB)).verdict == "too_large"


def test_the_model_that_is_loaded_would_make_room() -> None:
    status = FakeEngine().status
    on_gpu = replace(
        status,
        ready=type(READY)(4096, 8192, 8, 512, 2, 33, "GPU", 63),
        stats=Stats(video_free=2 * GB, video_total=10 * GB),
    )
    assert Room.of(on_gpu, 5 * GB).video == 7 * GB
    assert Room.of(on_gpu, 50 * GB).video == 10 * GB
    assert Room.of(replace(status, stats=Stats()), 5 * GB).video_total == 0


def model(path: Path, **more: Any) -> dict[str, Any]:
    return {
        "id": path.stem,
        "path": str(path),
        "size": path.stat().st_size,
        "problem": None,
        **more,
    }


def test_every_model_is_judged_and_its_header_read_once(tmp_path: Path, monkeypatch) -> None:
    kv = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
    }
    tensors = {"blk.0.a.weight": 32, "blk.1.a.weight": 32, "token_embd.weight": 32}
    good = write(tmp_path / "good.gguf", kv, tensors)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF, no")
    gone = model(good) | {"path": str(tmp_path / "gone.gguf")}
    listed = [
        model(good),
        model(bad),
        model(bad, problem="It is no GGUF file."),
        gone,
        {"id": "odd"},
    ]
    read: list[Path] = []
    real = fitting.gguf.read
    monkeypatch.setattr(fitting.gguf, "read", lambda path: read.append(path) or real(path))
    fittings, status = Fittings(), FakeEngine().status
    for _ in range(2):
        judged = fittings.judged(listed, status)
        assert [one["fit"] and one["fit"]["verdict"] for one in judged] == [
            "fits",
            None,
            None,
            None,
            None,
        ]
        assert [one["id"] for one in judged] == ["good", "bad", "bad", "good", "odd"]
    assert read.count(good) == 1
