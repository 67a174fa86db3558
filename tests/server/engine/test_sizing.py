"""Zeros become sensible numbers, and every choice is explained."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from hobnob.server.engine import llama
from hobnob.server.engine.devices import broken_amx, gpus
from hobnob.server.engine.protocol import Configure
from hobnob.server.engine.sizing import CELLS_MIN, CHOSEN_CTX_MAX_TOKENS, Facts, choose

GIB = 1024**3
STARTER = Facts(8192, 23_040, 16 * GIB, 0, 2)
LARGE = Facts(131_072, 131_072, 16 * GIB, 0, 8)  # an 8B model


def test_the_starter_gets_its_trained_window_and_cells_for_several() -> None:
    sizes = choose(Configure("m"), STARTER)
    assert sizes.n_ctx == 8192
    assert 2 * 8192 <= sizes.n_cells <= 8 * 8192
    assert sizes.n_threads == 2 and sizes.n_running == 8 < sizes.n_seqs
    assert len(sizes.explain) == 3


def test_a_large_model_gets_one_window_and_no_more_than_a_share_of_the_memory() -> None:
    sizes = choose(Configure("m"), LARGE)
    assert sizes.n_ctx == sizes.n_cells == CHOSEN_CTX_MAX_TOKENS
    assert sizes.n_cells * LARGE.cell_bytes <= 4 * GIB


def test_little_memory_means_a_smaller_window_that_is_explained() -> None:
    sizes = choose(Configure("m"), Facts(8192, 131_072, GIB, 0, 2))
    assert sizes.n_ctx == sizes.n_cells == 2048
    assert any("window of 2048" in line for line in sizes.explain)


def test_video_memory_is_filled_but_for_a_reserve() -> None:
    sizes = choose(Configure("m", n_seq_max=32), Facts(131_072, 131_072, 16 * GIB, 20 * GIB, 8))
    assert 18 * GIB < sizes.n_cells * 131_072 <= 19 * GIB


def test_cells_of_layers_that_are_not_on_the_gpu_take_no_video_memory() -> None:
    def cells(share: float, memory: int = 64 * GIB) -> int:
        facts = Facts(131_072, 131_072, memory, 3 * GIB, 8, video_share=share)
        return choose(Configure("m", n_seq_max=32), facts).n_cells

    assert cells(1.0) == 2 * GIB // 131_072
    assert cells(0.5) == 2 * cells(1.0)
    assert cells(0.5, 4 * GIB) * 131_072 // 2 <= GIB  # but other memory
    assert cells(0.0) > cells(0.5)


def test_what_was_asked_for_is_kept() -> None:
    asked = Configure("m", n_ctx=1000, n_cells=2048, n_seq_max=3, n_ubatch=64, n_threads=5)
    sizes = choose(asked, STARTER)
    assert (sizes.n_ctx, sizes.n_cells, sizes.n_running) == (1000, 2048, 3)
    assert (sizes.n_ubatch, sizes.n_threads, sizes.explain) == (64, 5, [])


@pytest.mark.parametrize(
    "facts", [STARTER, LARGE, Facts(0, 0, 0, 0, 1), Facts(100, 10**9, 1, 1, 1)]
)
@pytest.mark.parametrize("n_ctx", [0, 1, 10**6])
@pytest.mark.parametrize("n_cells", [0, 1, 5000])
@pytest.mark.parametrize("n_seq_max", [0, 1, 10**6])
def test_the_numbers_always_fit_together(
    facts: Facts, n_ctx: int, n_cells: int, n_seq_max: int
) -> None:
    sizes = choose(Configure("m", n_ctx=n_ctx, n_cells=n_cells, n_seq_max=n_seq_max), facts)
    assert 1 <= sizes.n_ctx <= sizes.n_cells >= CELLS_MIN
    assert 1 <= sizes.n_running < sizes.n_seqs <= 254
    assert sizes.n_running <= sizes.n_ubatch <= sizes.n_cells
    assert sizes.n_threads >= 1


def test_models_that_cannot_be_cut_keep_few_sequences() -> None:
    facts = Facts(8192, 1000, 16 * GIB, 0, 2, can_cut=False)
    assert choose(Configure("m"), facts).n_seqs < 16


def test_the_devices_of_this_build_can_be_asked_for() -> None:
    for device in llama.gpus():
        assert device.name and 0 <= device.free_bytes <= device.total_bytes


def test_a_gpu_is_described_by_ggml() -> None:
    class Ggml:
        """Three devices, the second a GPU."""

        class _Function:
            def __init__(self, answer: object) -> None:
                self.answer = answer

            def __call__(self, *args: object) -> object:
                return self.answer(*args) if callable(self.answer) else self.answer

        def __init__(self) -> None:
            self.ggml_backend_dev_count = self._Function(3)
            self.ggml_backend_dev_get = self._Function(lambda n: n)
            self.ggml_backend_dev_type = self._Function(lambda n: int(n == 1))
            self.ggml_backend_dev_description = self._Function(b"A GPU")
            self.ggml_backend_dev_memory = self._Function(self._memory)

        @staticmethod
        def _memory(_device: object, free: object, total: object) -> None:
            size = ctypes.POINTER(ctypes.c_size_t)
            ctypes.cast(free, size)[0], ctypes.cast(total, size)[0] = 3, 4  # type: ignore[arg-type]

    (device,) = gpus(Ggml())  # type: ignore[arg-type]
    assert (device.name, device.free_bytes, device.total_bytes) == ("A GPU", 3, 4)


@pytest.mark.parametrize(
    ("info", "comment", "broken"),
    [
        (b"AMX_INT8 = 1 |", b"GCC: (Debian 12.2.0-14) 12.2.0\0", "GCC 12.2"),
        (b"AMX_INT8 = 1 |", b"GCC: (GNU) 10.2.1\0", "GCC 10.2"),
        (b"AMX_INT8 = 1 |", b"GCC: (Debian) 12.4.0\0", None),
        (b"AMX_INT8 = 1 |", b"GCC: (Debian) 14.2.0\0", None),
        (b"AMX_INT8 = 1 |", b"clang version 18\0", None),
        (b"AVX2 = 1 |", b"GCC: (Debian 12.2.0-14) 12.2.0\0", None),
    ],
)
def test_builds_whose_amx_code_would_end_the_process_are_recognised(
    tmp_path: Path, info: bytes, comment: bytes, broken: str | None
) -> None:
    (tmp_path / "libggml-cpu.so").write_bytes(b"\x7fELF..." + comment)
    assert broken_amx(info, tmp_path) == broken
