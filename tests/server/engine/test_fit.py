"""The layers that fit are chosen from the header, and the choice is explained."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from support_gguf import write

from hobnob.server.engine import gguf, llama, loading
from hobnob.server.engine.devices import Device
from hobnob.server.engine.fit import LEAST_CELLS, MIB, Fit, Need, choose
from hobnob.server.engine.protocol import Configure

GIB = 1024 * MIB
EIGHT_B = Need(  # Q4: 4.6 GiB of weights; 128 KiB of keys and values a token
    layers=(130 * MIB,) * 32, output=410 * MIB, cell=4096, row=4 * (128_256 + 16 * 4096)
)
LAYER = 130 * MIB + LEAST_CELLS * 4096


def fitting(free: float, need: Need = EIGHT_B, *, gpus: int = 1, cells: int = 0) -> Fit:
    return choose(need, [int(free * GIB) // gpus] * gpus, cells=cells, n_ubatch=512)


def test_a_model_that_fits_is_there_as_a_whole() -> None:
    for free in (6.5, 8, 24, 80):
        fit = fitting(free)
        assert fit.n_layers == 33
        assert fit.explain.startswith("33 of 33 layers on the GPU")


def test_as_many_layers_as_there_is_memory_for_and_not_one_more() -> None:
    edge = GIB + 410 * MIB + 10 * LAYER  # a step's buffers, the output, ten layers
    assert choose(EIGHT_B, [edge], cells=0, n_ubatch=512).n_layers == 11
    assert choose(EIGHT_B, [edge - 1], cells=0, n_ubatch=512).n_layers == 10


def test_more_memory_never_means_fewer_layers_and_what_is_taken_is_free() -> None:
    before = 0
    for tenths in range(800):
        free = tenths * GIB // 10
        n = choose(EIGHT_B, [free], cells=0, n_ubatch=512).n_layers
        assert n >= before
        assert not n or GIB + 410 * MIB + (n - 1) * LAYER <= free
        before = n
    assert before == 33


def test_one_layer_is_better_than_none() -> None:
    edge = GIB + 410 * MIB + LAYER
    assert choose(EIGHT_B, [edge], cells=0, n_ubatch=512).n_layers == 2  # the output is one


@pytest.mark.parametrize("free", [0, 0.5, 1, 1.5])
def test_where_not_one_layer_fits_the_cpu_does_all(free: float) -> None:
    fit = fitting(free)
    assert fit.n_layers == 0
    assert "no layers on the GPU" in fit.explain and f"{int(free * 1024)} MiB" in fit.explain


def test_cells_that_were_asked_for_take_the_place_of_layers() -> None:
    assert fitting(8).n_layers == 33
    assert 2 < fitting(8, cells=32_768).n_layers < 33


def test_every_gpu_keeps_room_for_buffers() -> None:
    assert fitting(7, gpus=4).n_layers < fitting(7).n_layers


def test_long_steps_of_a_large_vocabulary_need_more_room() -> None:
    few = choose(EIGHT_B, [5 * GIB], cells=0, n_ubatch=4096).n_layers
    assert few < choose(EIGHT_B, [5 * GIB], cells=0, n_ubatch=512).n_layers


VALUES = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}
TENSORS = {
    "token_embd.weight": 640,
    "blk.0.attn_q.weight": 100,
    "blk.0.ffn_up.weight": 50,
    "blk.1.attn_q.weight": 70,
    "output_norm.weight": 5,
}


def needed(path: Path, values: dict[str, object], tensors: dict[str, int]) -> Need | None:
    return Need.of(gguf.read(write(path / "m.gguf", values, tensors)), 2.0)


def test_the_header_tells_what_a_model_needs(tmp_path: Path) -> None:
    need = needed(tmp_path, VALUES, {**TENSORS, "output.weight": 640})
    assert need is not None
    assert need.layers == (600, 280)
    assert need.output == 4 * 645
    assert need.cell == 2 * (16 + 16) * 2


def test_an_output_that_is_the_embedding_is_there_twice(tmp_path: Path) -> None:
    need = needed(tmp_path, VALUES, TENSORS)
    assert need is not None and need.output == 4 * 645


def test_heads_of_another_length_and_numbers_by_layer_are_seen(tmp_path: Path) -> None:
    values = {
        **VALUES,
        "llama.attention.head_count_kv": [1, 3],
        "llama.attention.key_length": 20,
        "llama.attention.value_length": 10,
    }
    need = needed(tmp_path, values, TENSORS)
    assert need is not None and need.cell == 3 * 30 * 2


def test_a_part_of_a_model_in_several_files_tells_nothing(tmp_path: Path) -> None:
    assert needed(tmp_path, {**VALUES, "split.no": 0, "split.count": 2}, TENSORS) is None
    assert needed(tmp_path, {"general.architecture": "llama"}, TENSORS) is None


# ---- the attempts ------------------------------------------------------------------------------


def attempts(
    monkeypatch: pytest.MonkeyPatch, model: Path, free: int, loads: int
) -> tuple[list[int], list[str]]:
    """The numbers of layers that were tried where only `loads` of them load, and what is said."""
    tried: list[int] = []

    def attempt(_asked: Configure, layers: int, _progress: object) -> object:
        tried.append(layers)
        if layers > loads:
            raise llama.LoadError("no memory")
        return SimpleNamespace(n_layer=2), None, None

    monkeypatch.setattr(llama, "supports_gpu", lambda: True)
    monkeypatch.setattr(llama, "gpus", lambda: [Device("GPU", free, free)])
    monkeypatch.setattr(llama, "amx_is_broken", lambda: None)
    monkeypatch.setattr(loading, "_attempt", attempt)
    *_, explain = loading._fitting(Configure(str(model)), lambda _: None)
    return tried, explain


def test_the_estimate_is_tried_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = write(tmp_path / "m.gguf", VALUES, TENSORS)
    tried, explain = attempts(monkeypatch, model, 2 * GIB, loads=3)
    assert tried == [3]
    assert len(explain) == 1 and explain[0].startswith("3 of 3 layers")
    tried, explain = attempts(monkeypatch, model, GIB, loads=3)
    assert tried == [0]
    assert explain[0].startswith("no layers on the GPU")


def test_where_the_estimate_does_not_load_fewer_are_tried_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = write(tmp_path / "m.gguf", VALUES, TENSORS)
    tried, explain = attempts(monkeypatch, model, 2 * GIB, loads=0)
    assert tried == [3, 0]
    assert explain[-1] == "0 of 3 layers on the GPU: more did not load"


def test_of_a_file_whose_header_tells_nothing_all_layers_are_tried_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried, explain = attempts(monkeypatch, tmp_path / "none.gguf", 2 * GIB, loads=4)
    assert tried[0] == loading.ALL_LAYERS and tried[-1] == 4
    assert explain[0].startswith("as many layers on the GPU as load")
    part = {**VALUES, "llama.block_count": 8, "split.no": 0, "split.count": 2}
    model = write(tmp_path / "m.gguf", part, TENSORS)
    assert attempts(monkeypatch, model, 2 * GIB, loads=6)[0] == [9, 6]
