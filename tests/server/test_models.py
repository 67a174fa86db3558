from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support_gguf import write

from hobnob.server import models
from hobnob.server.errors import ModelNotFound, ModelUnavailable
from hobnob.server.models import Model, Place

KV = {"general.architecture": "llama", "llama.context_length": 64}
TENSORS = {"t": 64}


def put(path: Path, **kv: object) -> Path:
    return write(path, KV | kv, TENSORS)


def found(folder: Path, source: str = "folder") -> list[Model]:
    return models.find([Place(source, folder)])


def ids(listed: Sequence[Model]) -> list[str]:
    return [model.id for model in listed]


def put_ollama(folder: Path, manifest: str, layers: object) -> None:
    path = folder / "manifests" / manifest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"layers": layers}))


# ---- finding ----------------------------------------------------------------------------------


def test_files_below_a_configured_folder_are_found_without_their_suffix(tmp_path: Path) -> None:
    first = put(tmp_path / "b.gguf")
    put(tmp_path / "deep" / "er" / "A.GGUF")
    (tmp_path / "notes.txt").write_text("x")
    listed = found(tmp_path)
    assert ids(listed) == ["A", "b"]
    assert listed[1] == Model(
        "b", first, "folder", first.stat().st_size, first.stat().st_mtime, None, (first,)
    )


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "none") == []


def test_what_is_not_a_chat_model_is_not_listed(tmp_path: Path) -> None:
    put(tmp_path / "lora.gguf", **{"general.type": "adapter"})
    put(tmp_path / "eye.gguf", **{"general.architecture": "clip"})
    put(tmp_path / "mmproj-model.gguf")
    write(tmp_path / "vocab.gguf", KV)
    assert found(tmp_path) == []


def test_a_file_that_is_no_model_is_listed_with_its_problem(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<!doctype html>")
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "gone.gguf").symlink_to("nowhere")
    problems = {model.id: model.problem for model in found(tmp_path)}
    assert "web page" in str(problems["page"]) and "empty" in str(problems["empty"])
    assert "regular" in str(problems["pipe"]) and "No such file" in str(problems["gone"])


def test_the_hugging_face_cache_is_read_through_its_links(tmp_path: Path) -> None:
    repo = tmp_path / "models--someone--Nice-GGUF"
    blob = put(repo / "blobs" / "0123")
    for revision in ("aaa", "bbb"):
        link = repo / "snapshots" / revision / "q4" / "nice-q4.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    (listed,) = found(tmp_path, "huggingface")
    assert (listed.id, listed.source, listed.size) == (
        "nice-q4", "huggingface", blob.stat().st_size,
    )  # fmt: skip


def test_a_link_out_of_the_known_folders_is_not_opened(tmp_path: Path) -> None:
    outside = put(tmp_path / "outside" / "secret.gguf")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.gguf").symlink_to(outside)
    (listed,) = found(inside)
    assert listed.problem == "link.gguf is a link out of the models' folders."
    with pytest.raises(ModelUnavailable):
        listed.require()
    both = models.find([Place("folder", inside), Place("folder", outside.parent)])
    assert [m.problem for m in both] == [None]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.gguf")
    (tmp_path / "in" / "round").symlink_to(tmp_path / "in")
    assert ids(found(tmp_path / "in")) == ["a"]


def test_two_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    put(tmp_path / "a" / "m.gguf", x=1)
    put(tmp_path / "b" / "M.gguf", x=2)
    put(tmp_path / "c" / "b" / "m.gguf", x=3)
    assert ids(found(tmp_path)) == ["b/M", "b/m#2", "m"]
    for model in found(tmp_path):
        assert models.by_name(model.id, found(tmp_path)) == model


def test_the_number_of_entries_looked_at_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "MAX_ENTRIES", 3)
    for n in range(6):
        put(tmp_path / f"m{n}.gguf")
    assert ids(found(tmp_path)) == ["m0", "m1", "m2"]


# ---- split models -----------------------------------------------------------------------------


def put_parts(folder: Path, numbers: Sequence[int], count: int = 3) -> int:
    paths = [put(folder / f"big-{n:05}-of-{count:05}.gguf") for n in numbers]
    return sum(path.stat().st_size for path in paths)


def test_a_model_in_parts_is_listed_once_with_the_size_of_all(tmp_path: Path) -> None:
    size = put_parts(tmp_path, [1, 2, 3])
    (listed,) = found(tmp_path)
    assert (listed.id, listed.size, listed.problem) == ("big", size, None)
    assert listed.path.name == "big-00001-of-00003.gguf"
    assert listed.require() is listed


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    put_parts(tmp_path, [1, 2])
    (listed,) = found(tmp_path)
    assert listed.problem == "Part 3 of 3 is missing: big-00003-of-00003.gguf."
    put_parts(tmp_path, [7], count=99999)
    assert any("and 998 more" in str(m.problem) for m in found(tmp_path))


def test_the_path_of_any_part_means_the_whole_model(tmp_path: Path) -> None:
    put_parts(tmp_path, [1, 2, 3])
    model = models.by_path(tmp_path / "big-00002-of-00003.gguf")
    assert (model.id, model.path.name) == ("big", "big-00001-of-00003.gguf")
    (tmp_path / "big-00001-of-00003.gguf").unlink()
    with pytest.raises(ModelUnavailable, match="Part 1 of 3 is missing"):
        models.by_path(tmp_path / "big-00002-of-00003.gguf").require()


def test_a_damaged_part_keeps_the_model_from_being_loaded(tmp_path: Path) -> None:
    put_parts(tmp_path, [1, 2])
    (tmp_path / "big-00003-of-00003.gguf").write_bytes(b"GGUF")
    (listed,) = found(tmp_path)
    with pytest.raises(ModelUnavailable, match="big-00003-of-00003.gguf is not complete"):
        listed.require()


# ---- ollama -----------------------------------------------------------------------------------

LAYER = "application/vnd.ollama.image.model"


def test_ollama_s_models_are_found_through_its_manifests(tmp_path: Path) -> None:
    hexes = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(3)]
    for n, digest in enumerate(hexes):
        put(tmp_path / "blobs" / f"sha256-{digest}", n=n)
    hosts = ["registry.ollama.ai/library/llama3.2/1b", "registry.ollama.ai/me/own/latest",
             "hf.co/someone/Nice-GGUF/Q4_K_M"]  # fmt: skip
    for host, digest in zip(hosts, hexes, strict=True):
        layers = [
            {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:00"},
            {"mediaType": LAYER, "digest": f"sha256:{digest}"},
        ]
        put_ollama(tmp_path, host, layers)
    listed = found(tmp_path, "ollama")
    assert ids(listed) == ["hf.co/someone/Nice-GGUF:Q4_K_M", "llama3.2:1b", "me/own:latest"]
    assert {m.source for m in listed} == {"ollama"} and not any(m.problem for m in listed)
    assert models.by_name("llama3.2:1b", listed).path.name == f"sha256-{hexes[0]}"


@pytest.mark.parametrize(
    "layers",
    [
        [{"mediaType": LAYER, "digest": "sha256:../../../etc/passwd"}],
        [{"mediaType": LAYER, "digest": "sha256:" + "0" * 63 + "/"}],
        [{"mediaType": LAYER, "digest": 5}],
        [{"mediaType": LAYER}],
        ["x", None],
        {"a": 1},
        None,
    ],
)
def test_a_manifest_cannot_point_anywhere_else(tmp_path: Path, layers: object) -> None:
    put_ollama(tmp_path, "registry.ollama.ai/library/m/1b", layers)
    assert found(tmp_path, "ollama") == []


def test_a_manifest_that_is_not_json_is_passed_over(tmp_path: Path) -> None:
    put_ollama(tmp_path, "registry.ollama.ai/library/m/1b", [])
    (tmp_path / "manifests/registry.ollama.ai/library/m/1b").write_text("[" * 100_000)
    os.mkfifo(tmp_path / "manifests/registry.ollama.ai/library/m/pipe")
    assert found(tmp_path, "ollama") == []


# ---- places -----------------------------------------------------------------------------------


def test_the_places_follow_the_variables_of_the_other_programs(tmp_path: Path) -> None:
    def folders(source: str, environ: dict[str, str]) -> list[str]:
        places = models.places({"HOME": "/h"} | environ, ["~nobody-here/x", "/mine"])
        return [str(p.folder) for p in places if p.source == source]

    assert folders("huggingface", {}) == ["/h/.cache/huggingface/hub"]
    assert folders("huggingface", {"XDG_CACHE_HOME": "/c"}) == ["/c/huggingface/hub"]
    assert folders("huggingface", {"HF_HOME": "/f"}) == ["/f/hub"]
    assert folders("huggingface", {"HF_HOME": "/f", "HF_HUB_CACHE": "/g"}) == ["/g"]
    assert folders("ollama", {})[0] == "/h/.ollama/models"
    assert folders("ollama", {"OLLAMA_MODELS": "/o"})[0] == "/o"
    assert folders("llama.cpp", {"LLAMA_CACHE": "/l"})[0] == "/l"
    assert "/h/.lmstudio/models" in folders("lmstudio", {})
    assert folders("folder", {})[-1] == "/mine"


def test_the_starter_model_is_found_without_importing_its_package() -> None:
    folder = models.starter_folder()
    if folder is None:
        pytest.skip("the starter model is not installed")
    (listed,) = models.find([Place("starter", folder)])
    assert listed.source == "starter" and listed.require() is listed
    assert models.STARTER_PACKAGE not in sys.modules


def test_without_the_starter_package_there_is_no_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "STARTER_PACKAGE", "hobnob_has_no_such_package")
    assert models.starter_folder() is None
    assert "starter" not in {place.source for place in models.places({"HOME": "/h"})}


# ---- names ------------------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path: Path) -> list[Model]:
    put(tmp_path / "shelf" / "Nice-Q4.gguf")
    put(tmp_path / "elsewhere.gguf")
    return found(tmp_path / "shelf")


@pytest.mark.parametrize("name", ["Nice-Q4", "Nice-Q4.gguf", "nice-q4"])
def test_a_name_is_found_with_and_without_its_suffix(shelf: list[Model], name: str) -> None:
    assert models.by_name(name, shelf) is shelf[0]


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd", "/etc/passwd", "..\\x", "a/b", "%2e%2e%2f", "C:\\x", "a\0b",
        "x" * 10_000, "con.gguf", "", ".", "..", "../elsewhere", "../elsewhere.gguf", "nice",
        "\x1b[2J\n",
    ],
)  # fmt: skip
def test_a_name_never_becomes_a_path(shelf: list[Model], name: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        models.by_name(name, shelf)
    assert caught.value.message.isprintable() and len(caught.value.message) < 200
    assert str(shelf[0].path.parent) not in caught.value.message


def test_the_local_user_may_name_a_model_or_a_file(shelf: list[Model], tmp_path: Path) -> None:
    assert models.resolve("nice-q4", shelf) is shelf[0]
    model = models.resolve(str(tmp_path / "elsewhere.gguf"), shelf)
    assert (model.id, model.source) == ("elsewhere", "path")
    with pytest.raises(ModelNotFound, match="hobnob models list"):
        models.resolve("other", shelf)
    with pytest.raises(ModelNotFound, match="There is no file '/none/x.gguf'"):
        models.resolve("/none/x.gguf", shelf)
    with pytest.raises(ModelNotFound):
        models.resolve("a\0b", shelf)
    with pytest.raises(ModelUnavailable, match="is a folder"):
        models.resolve(str(tmp_path), shelf).require()


# ---- the default ------------------------------------------------------------------------------


def test_the_default_is_the_configured_model_else_the_last_used_else_the_starter(
    tmp_path: Path,
) -> None:
    put(tmp_path / "s" / "starter.gguf")
    last = put(tmp_path / "f" / "last.gguf")
    put(tmp_path / "f" / "new.gguf")
    os.utime(last, (1, 1))
    places = [Place("folder", tmp_path / "f"), Place("starter", tmp_path / "s")]
    listed = models.find(places)
    assert models.choose("new", listed, last).id == "new"
    assert models.choose(None, listed, last).id == "last"
    assert models.choose(None, listed, None).id == "starter"
    assert models.choose(None, listed, tmp_path / "gone.gguf").id == "starter"
    assert models.choose(None, models.find(places[:1]), None).id == "new"


def test_a_last_model_that_lies_nowhere_known_is_still_the_last(tmp_path: Path) -> None:
    path = put(tmp_path / "own.gguf")
    assert models.choose(None, [], path).path == path


def test_a_model_with_a_problem_is_chosen_only_when_it_is_configured(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").touch()
    listed = found(tmp_path)
    assert models.choose("bad", listed, None).problem is not None
    with pytest.raises(ModelNotFound, match="no model on this machine"):
        models.choose(None, listed, None)


def test_the_last_model_is_remembered(tmp_path: Path) -> None:
    state = tmp_path / "last-model"
    assert models.last_used(state) is None
    model = models.by_path(put(tmp_path / "naïve 日本.gguf"))
    models.remember(state, model)
    models.remember(state, model)
    assert models.last_used(state) == model.path
    assert sorted(p.name for p in tmp_path.iterdir()) == ["last-model", "naïve 日本.gguf"]


@pytest.mark.parametrize("content", [b"", b"relative", b"/a\0b", b"\xff" * 9000])
def test_a_spoilt_memory_of_the_last_model_counts_as_none(tmp_path: Path, content: bytes) -> None:
    state = tmp_path / "last-model"
    state.write_bytes(content)
    assert models.last_used(state) is None


def test_where_nothing_can_be_written_the_last_model_is_just_not_remembered(
    tmp_path: Path,
) -> None:
    model = models.by_path(put(tmp_path / "m.gguf"))
    models.remember(tmp_path / "no-such-folder" / "last-model", model)
