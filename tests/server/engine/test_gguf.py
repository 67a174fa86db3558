from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support_gguf import bpe_vocab, string, write
from support_gguf import gguf as written

from hobnob.server.engine import gguf
from hobnob.server.engine.gguf import GGUFError, Split

MODEL = {"general.architecture": "llama", "general.name": "Tiny", "llama.context_length": 2048}
TENSORS = {"a": 100, "b": 7}


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def complaint(path: Path, *, whole: bool = True) -> str:
    with pytest.raises(GGUFError) as caught:
        gguf.read(path, whole=whole)
    return str(caught.value)


def test_values_are_read_with_their_types(tmp_path: Path) -> None:
    kv = MODEL | {
        "t.bool": True,
        "t.float": 0.5,
        "t.big": 2**40,
        "t.texts": ["a", "é"],
        "t.numbers": [1, -2],
        "t.none": [],
    }
    header = gguf.read(write(tmp_path / "m.gguf", kv, TENSORS))
    assert header.values == kv
    assert (header.name, header.architecture, header.n_ctx_train) == ("Tiny", "llama", 2048)
    assert (header.version, header.n_tensors, header.n_parameters) == (3, 2, 107)
    assert header.is_chat_model


def test_long_arrays_are_passed_over(tmp_path: Path) -> None:
    kv = {"a": ["x" * n for n in range(2000)], "b": list(range(5000)), "c": 1}
    assert gguf.read(write(tmp_path / "m.gguf", kv)).values == {"c": 1}


def test_a_quick_reading_stops_before_the_vocabulary(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", bpe_vocab({"<|end|>": 3}), TENSORS)
    cut = put(tmp_path / "cut.gguf", path.read_bytes()[:600])
    assert gguf.read(cut, whole=False).name == "tiny"
    assert complaint(cut).startswith("cut.gguf is not complete")


def test_a_part_of_a_split_model_says_so(tmp_path: Path) -> None:
    kv = MODEL | {"split.no": 1, "split.count": 3}
    assert gguf.read(write(tmp_path / "m.gguf", kv, TENSORS)).split == Split(1, 3)
    assert gguf.read(write(tmp_path / "n.gguf", MODEL, TENSORS)).split is None


@pytest.mark.parametrize(
    "kv",
    [
        MODEL | {"general.type": "adapter"},
        MODEL | {"general.architecture": "clip"},
        {"general.name": "no architecture"},
    ],
)
def test_adapters_and_image_encoders_are_not_chat_models(
    tmp_path: Path, kv: dict[str, object]
) -> None:
    assert not gguf.read(write(tmp_path / "m.gguf", kv, TENSORS)).is_chat_model


def test_a_vocabulary_alone_is_not_a_chat_model(tmp_path: Path) -> None:
    assert not gguf.read(write(tmp_path / "m.gguf", MODEL)).is_chat_model


@pytest.mark.parametrize("left_out", [1, 4, 28, 300])
def test_a_file_cut_in_its_tensors_says_how_much_is_missing(tmp_path: Path, left_out: int) -> None:
    data = written(MODEL, TENSORS)
    path = put(tmp_path / "m.gguf", data[:-left_out])
    assert complaint(path) == (
        f"m.gguf is not complete: {left_out} of {len(data)} bytes are missing."
    )


def test_a_file_cut_anywhere_is_never_taken_for_whole(tmp_path: Path) -> None:
    data = written(MODEL | {"l": ["a"] * 70, "n": list(range(70))}, TENSORS)
    for length in range(len(data)):
        assert complaint(put(tmp_path / "m.gguf", data[:length]))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"GG", "text file"),
        (b"GGUF", "not complete"),
        (b"Just some notes\n" * 100, "text file"),
        (b"\n <!DOCTYPE html><html>404</html>", "web page"),
        (b"<html><head></head></html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git lfs pull"),
        (b"PK\x03\x04\0\0\0\0", "PyTorch"),
        (struct.pack("<Q", 90) + b'{"__metadata__":{}}\0', "safetensors"),
        (b"lmgg\0\0\0\0", "older than GGUF"),
        (b"\x7fELF\0\0\0", "not a GGUF file"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(16), "version 1"),
        (b"GGUF" + struct.pack("<I", 9) + bytes(16), "version 9"),
        (written(MODEL, n_tensors=2**63), "9223372036854775808 tensors"),
        (written(MODEL, n_kv=2**63), "9223372036854775808 values"),
        (written(MODEL, n_tensors=999_999), "not complete"),
        (written({}, n_kv=1) + struct.pack("<Q", 2**63), "not complete"),
        (written({}, n_kv=1) + string("k") + struct.pack("<IQ", 8, 2**62), "not complete"),
        (written({}, n_kv=1) + string("k") + struct.pack("<IIQ", 9, 4, 2**62), "not complete"),
        (written({}, n_kv=1) + string("k") + struct.pack("<IIQ", 9, 8, 2**61), "not complete"),
        (written({}, n_kv=1) + string("k") + struct.pack("<IIQ", 9, 9, 1), "unknown kind 9"),
        (written({}, n_kv=1) + string("k") + struct.pack("<I", 77), "unknown kind 77"),
        (written({}, n_kv=1) + string("k" * 5000) + bytes(9), "5000 bytes"),
        (written(MODEL | {"general.alignment": 3}, TENSORS), "alignment"),
        (written({}, n_tensors=1) + string("t") + struct.pack("<I", 99), "99 dimensions"),
        (
            written({}, n_tensors=1) + string("t") + struct.pack("<IQQIQ", 2, 2**40, 9, 0, 0),
            "bytes are missing",
        ),
        (
            written({}, n_tensors=1) + string("t") + struct.pack("<IQIQ", 1, 1, 0, 2**60),
            "bytes are missing",
        ),
    ],
)
def test_what_is_not_a_whole_model_is_told_in_a_sentence(
    tmp_path: Path, data: bytes, said: str
) -> None:
    tracemalloc.start()
    try:
        message = complaint(put(tmp_path / "m.gguf", data))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said in message and message.endswith((".", "`."))
    assert str(tmp_path) not in message and "\n" not in message
    assert most < 4 * 1024 * 1024


def test_odd_places_are_told_in_a_sentence(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.gguf") == "There is no file none.gguf."
    assert complaint(tmp_path) == f"{tmp_path.name} is a folder."
    os.mkfifo(tmp_path / "pipe.gguf")
    assert complaint(tmp_path / "pipe.gguf") == "pipe.gguf is not a regular file."
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    assert "symbolic links" in complaint(tmp_path / "loop.gguf")
    assert complaint(Path("a\0b.gguf")) == "The file's name is not valid."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", MODEL, TENSORS)
    path.chmod(0)
    assert complaint(path) == "m.gguf cannot be read: Permission denied."


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_header_raises_nothing_but_the_one_error(
    tmp_path: Path, data: st.DataObject
) -> None:
    raw = bytearray(written(MODEL | {"l": ["a", "b"], "n": [1, 2, 3]}, TENSORS))
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, 400))] = data.draw(st.integers(0, 255))
    path = put(tmp_path / "m.gguf", bytes(raw))
    for whole in (True, False):
        try:
            gguf.read(path, whole=whole)
        except GGUFError as error:
            assert error.args[0]
