"""`hobnob models pull` and `rm`, against a hub on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_hub import COMMIT, FakeHub, git_digest
from support_cli import COMMAND, Cli
from support_gguf import gguf
from support_session import Session
from support_verbs import Said
from support_verbs import run as run_verb

from hobnob import hub, hub_download
from hobnob.exits import Exit
from hobnob.hub import Account
from hobnob.tui import verbs

KV = {"general.architecture": "llama", "llama.context_length": 64}
MODEL = gguf(KV, {"t": 64})
LARGE = MODEL + bytes(range(256)) * 20_000  # what comes behind the tensors does no harm


Models = Callable[..., Said]


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub(files={"nice-Q4_K_M.gguf": LARGE, "nice-Q8_0.gguf": MODEL}).running() as running:
        yield running


@pytest.fixture
def cache(
    fake: FakeHub, hobnob_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The hub's cache of a user who has nothing yet. Returns the folder of the repository."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TRANSFORMERS_OFFLINE", "HF_TOKEN_PATH", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(hub_download, "PAUSES", (0.0,))
    return tmp_path / "hf" / "hub" / f"models--{fake.repo.replace('/', '--')}"


@pytest.fixture
def models(cache: Path, capfd: pytest.CaptureFixture[str]) -> Models:
    def run(*arguments: str) -> Said:
        return run_verb(capfd, "models", *arguments)

    return run


def placed(cache: Path, name: str) -> Path:
    return cache / "snapshots" / COMMIT / name


# ---- pull -------------------------------------------------------------------------------------


def test_a_model_comes_into_the_hubs_cache_and_its_name_is_printed(
    models: Models, cache: Path, fake: FakeHub
) -> None:
    said = models("pull", fake.repo)
    assert (said.code, said.out) == (0, "nice-Q4_K_M\n")
    place = placed(cache, "nice-Q4_K_M.gguf")
    assert place.read_bytes() == LARGE and place.is_symlink()
    assert place.resolve().parent == (cache / "blobs").resolve()
    assert not os.path.isabs(os.readlink(place))
    assert (cache / "refs" / "main").read_text() == COMMIT
    assert [one.name for one in (cache / "blobs").iterdir()] == [place.resolve().name]
    assert "127.0.0.1" in said.err and "\r" not in said.err


def test_what_is_there_is_not_fetched_again(models: Models, fake: FakeHub) -> None:
    assert models("pull", fake.repo).code == 0
    assert models("pull", fake.repo, "-q") == Said(0, "nice-Q4_K_M\n", "")
    assert len(fake.fetched) == 1


def test_as_json_it_says_where_it_lies(models: Models, cache: Path, fake: FakeHub) -> None:
    said = models("pull", f"{fake.repo}:q8_0", "--json")
    place = placed(cache, "nice-Q8_0.gguf")
    assert json.loads(said.out) == {
        "id": "nice-Q8_0",
        "path": str(place),
        "files": 1,
        "size": len(MODEL),
    }


def test_all_files_of_a_split_model_come(models: Models, cache: Path, fake: FakeHub) -> None:
    names = [f"sub/nice-{n:05}-of-00002.gguf" for n in (1, 2)]
    fake.files = {name: MODEL + name.encode() for name in names}
    said = models("pull", fake.repo)
    assert (said.code, said.out) == (0, "nice\n")
    assert [placed(cache, name).read_bytes() for name in names] == list(fake.files.values())
    assert "in 2 files" in said.err


def test_a_file_that_git_keeps_itself_is_checked_by_gits_name(
    models: Models, cache: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [{"rfilename": "a.gguf", "size": len(MODEL), "blobId": git_digest(MODEL)}]
    fake.files = {"a.gguf": MODEL}
    monkeypatch.setattr(fake, "siblings", lambda: plain)
    assert models("pull", fake.repo).code == 0
    assert placed(cache, "a.gguf").resolve().name == git_digest(MODEL)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_is_cut_goes_on_by_itself(
    models: Models, cache: Path, fake: FakeHub, ranges: bool
) -> None:
    fake.cuts, fake.ranges = [100_000, 0, 2_000_000], ranges
    assert models("pull", fake.repo).code == 0
    assert placed(cache, "nice-Q4_K_M.gguf").read_bytes() == LARGE
    starts = [one.start for one in fake.fetched]
    assert starts[0] == 0 and starts[-1] > 0 and len(starts) == 4


def test_a_hub_that_brings_nothing_any_more_is_left_and_the_next_time_goes_on(
    models: Models, cache: Path, fake: FakeHub
) -> None:
    fake.cuts = [100_000, *[0] * 20]
    said = models("pull", fake.repo)
    assert (said.code, said.out) == (Exit.UNREACHABLE, "")
    assert len(fake.fetched) == hub_download.PATIENCE
    assert not placed(cache, "nice-Q4_K_M.gguf").exists()
    fake.cuts = []
    assert models("pull", fake.repo).code == 0
    assert fake.fetched[-1].start == 100_000
    assert placed(cache, "nice-Q4_K_M.gguf").read_bytes() == LARGE


def test_ctrl_c_leaves_what_has_come_and_says_how_to_go_on(
    models: Models, cache: Path, fake: FakeHub
) -> None:
    fake.cuts, fake.stall = [100_000], threading.Event()
    process = subprocess.Popen(
        [*COMMAND, "models", "pull", fake.repo],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        waiting = threading.Event()
        parts: list[Path] = []
        for _ in range(1500):
            parts = list(cache.glob("blobs/*-part"))
            if (
                parts
                and parts[0].stat().st_size >= 100_000 - hub_download.PIECE_BYTES
                and (fake.fetched)
            ):
                break
            waiting.wait(0.02)
        waiting.wait(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
        fake.stall.set()
    assert (process.returncode, out) == (Exit.INTERRUPTED, "")
    assert "the same command goes on from there" in err and "Traceback" not in err
    assert len(list(cache.glob("blobs/*-part"))) == 1
    fake.stall = None
    assert models("pull", fake.repo).code == 0
    assert placed(cache, "nice-Q4_K_M.gguf").read_bytes() == LARGE


def test_what_is_not_the_hubs_file_is_thrown_away(
    models: Models, cache: Path, fake: FakeHub
) -> None:
    fake.forged["nice-Q4_K_M.gguf"] = LARGE[:-1] + b"!"
    said = models("pull", fake.repo)
    assert said.code == Exit.MODEL and "is not what the hub has" in said.err
    assert list(cache.glob("snapshots/*/*")) == []
    del fake.forged["nice-Q4_K_M.gguf"]
    assert models("pull", fake.repo).code == 0
    assert placed(cache, "nice-Q4_K_M.gguf").read_bytes() == LARGE


def test_without_room_nothing_is_begun(models: Models, cache: Path, fake: FakeHub) -> None:
    fake.sizes["nice-Q4_K_M.gguf"] = shutil.disk_usage("/").total * 1000
    said = models("pull", fake.repo)
    assert said.code == Exit.OUTPUT and "There is no room for it" in said.err
    assert fake.fetched == []


def test_two_at_once_do_not_write_one_file(models: Models, cache: Path, fake: FakeHub) -> None:
    file = hub.RemoteFile("nice-Q4_K_M.gguf", len(LARGE), fake.siblings()[0]["lfs"]["sha256"])
    part = hub_download.Cache(cache).part(file)
    part.parent.mkdir(parents=True)
    with hub_download._alone(part, file):
        said = models("pull", fake.repo)
    assert said.code == Exit.TRY_LATER and "by another hobnob" in said.err


def test_several_that_may_be_meant_are_listed(models: Models, fake: FakeHub) -> None:
    fake.files = {"a-Q8_0.gguf": MODEL, "a-Q5_K_M.gguf": MODEL}
    said = models("pull", fake.repo)
    assert (said.code, said.out) == (Exit.USAGE, "")
    assert "Q5_K_M" in said.err and "Q8_0" in said.err and "say which one" in said.err
    assert fake.fetched == []


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("someone/other", Exit.MODEL, "There is no someone/other"),
        ("nonsense", Exit.USAGE, "OWNER/NAME"),
        ("someone/Nice-GGUF:Q2_K", Exit.USAGE, "There is no 'Q2_K'"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    models: Models, name: str, code: Exit, words: str
) -> None:
    said = models("pull", name)
    assert (said.code, said.out) == (code, "") and words in said.err
    assert "Traceback" not in said.err


def test_a_revision_that_there_is_not_is_said(models: Models, fake: FakeHub) -> None:
    said = models("pull", fake.repo, "--revision", "v9")
    assert said.code == Exit.MODEL and "no such revision" in said.err
    assert models("pull", fake.repo, "--revision", "../x").code == Exit.USAGE


def test_a_repository_without_models_is_said(models: Models, fake: FakeHub) -> None:
    fake.files = {"README.md": b"x"}
    said = models("pull", fake.repo)
    assert said.code == Exit.MODEL and "no GGUF file" in said.err


@pytest.mark.parametrize(("status", "code"), [(429, 75), (503, 75), (418, 69)])
def test_a_hub_that_refuses_is_a_code_for_scripts(
    models: Models, fake: FakeHub, status: int, code: int
) -> None:
    fake.status = status
    said = models("pull", fake.repo)
    assert said.code == code and str(status) in said.err


def test_no_network_is_one_sentence(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said = models("pull", "a/b")
    assert said.code == Exit.UNREACHABLE and "127.0.0.1:9 cannot be reached" in said.err
    assert len(said.err.strip().splitlines()) == 1
    monkeypatch.setenv("HF_ENDPOINT", "ftp://x")
    assert models("pull", "a/b").code == Exit.CONFIG


def test_an_answer_that_makes_no_sense_is_refused(
    models: Models, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [{"rfilename": "../../x-Q4_K_M.gguf", "size": 1, "blobId": "0" * 40}, 7, {"size": 1}]
    monkeypatch.setattr(fake, "siblings", lambda: odd)
    assert models("pull", fake.repo).code == Exit.MODEL
    monkeypatch.setattr("fake_hub.COMMIT", "../../../etc")
    said = models("pull", fake.repo)
    assert said.code == Exit.UNREACHABLE and "is odd" in said.err


# ---- who asks ---------------------------------------------------------------------------------


def test_the_token_goes_to_the_hub_and_not_to_where_the_files_are(
    models: Models, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.token = "hf_secret"
    said = models("pull", fake.repo)
    assert said.code == Exit.MODEL and "HF_TOKEN" in said.err
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    said = models("pull", fake.repo)
    assert said.code == Exit.KEY and "does not accept HF_TOKEN" in said.err
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert models("pull", fake.repo).code == 0
    assert fake.asked[-1].token == "Bearer hf_secret"
    assert [one.token for one in fake.fetched] == [None]


def test_a_gated_repository_says_where_to_ask(models: Models, fake: FakeHub) -> None:
    fake.token, fake.gated = "hf_secret", True
    said = models("pull", fake.repo)
    assert said.code == Exit.KEY
    assert f"{fake.url}/{fake.repo}" in said.err and "HF_TOKEN" in said.err


def test_the_token_is_read_where_the_hubs_own_tools_keep_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_kept\n")
    environ = {"HF_HOME": str(tmp_path)}
    assert Account.of(environ).token == "hf_kept"
    assert Account.of(environ | {"HF_TOKEN": "hf_given"}).token == "hf_given"
    assert Account.of(environ | {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token is None
    assert Account.of({"HF_HOME": str(tmp_path / "none")}).endpoint == hub.USUAL_ENDPOINT


def test_offline_nothing_is_asked_and_what_is_there_is_found(
    models: Models, cache: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = models("pull", fake.repo)
    assert said.code == Exit.UNREACHABLE and "HF_HUB_OFFLINE" in said.err
    monkeypatch.delenv("HF_HUB_OFFLINE")
    assert models("pull", fake.repo).code == 0
    fake.asked.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    assert models("pull", fake.repo).out == "nice-Q4_K_M\n"
    assert models("pull", fake.repo, "--revision", COMMIT).out == "nice-Q4_K_M\n"
    assert models("pull", f"{fake.repo}:Q8_0").code == Exit.UNREACHABLE
    assert fake.asked == []


# ---- rm ---------------------------------------------------------------------------------------


@pytest.fixture
def own(hobnob_home: Path, tmp_path: Path) -> Path:
    """A folder of the user's, named in config.toml."""
    folder = tmp_path / "own"
    folder.mkdir()
    (hobnob_home / "config").mkdir(parents=True)
    (hobnob_home / "config" / "config.toml").write_text(f'model_folders = ["{folder}"]\n')
    return folder


def test_a_model_of_the_cache_goes_with_all_its_names(
    models: Models, cache: Path, fake: FakeHub
) -> None:
    models("pull", fake.repo)
    models("pull", f"{fake.repo}:Q8_0")
    place = placed(cache, "nice-Q4_K_M.gguf")
    other = cache / "snapshots" / ("f" * 40) / "nice-Q4_K_M.gguf"
    other.parent.mkdir()
    other.symlink_to(os.readlink(place))
    said = models("rm", "nice-Q4_K_M", "-y")
    assert said.code == 0 and str(place) in said.err and "are free again" in said.err
    assert not place.is_symlink() and not other.parent.exists()
    assert placed(cache, "nice-Q8_0.gguf").read_bytes() == MODEL
    assert models("rm", "nice-Q8_0", "-y").code == 0
    assert not cache.exists()


def test_a_download_that_is_under_way_is_not_taken_away_with_another(
    models: Models, cache: Path, fake: FakeHub
) -> None:
    models("pull", fake.repo)
    part = cache / "blobs" / ("0" * 64 + ".hobnob-part")
    part.write_bytes(b"x")
    assert models("rm", "nice-Q4_K_M", "-y").code == 0
    assert part.exists()


def test_a_file_of_the_users_own_folder_goes(models: Models, own: Path) -> None:
    for number in (1, 2):
        (own / f"mine-{number:05}-of-00002.gguf").write_bytes(MODEL)
    (own / "other.gguf").write_bytes(MODEL)
    said = models("rm", "mine", "-y")
    assert said.code == 0 and [one.name for one in own.iterdir()] == ["other.gguf"]
    assert "mine-00002-of-00002.gguf" in said.err


def test_of_a_link_only_the_link_goes(models: Models, own: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.gguf").write_bytes(MODEL)
    (own / "link.gguf").symlink_to(tmp_path / "elsewhere.gguf")
    said = models("rm", "link", "-y")
    assert said.code == 0 and "0.00 MB" in said.err
    assert (tmp_path / "elsewhere.gguf").exists() and not (own / "link.gguf").is_symlink()


def test_the_model_in_use_stays(models: Models, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "mine.gguf").write_bytes(MODEL)
    monkeypatch.setattr(verbs, "model_in_use", lambda target: own / "mine.gguf")
    said = models("rm", "mine", "-y")
    assert said.code == Exit.USAGE and "is in use" in said.err
    assert (own / "mine.gguf").exists()


def test_what_another_program_keeps_and_the_bundled_model_stay(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama = tmp_path / "llama"
    llama.mkdir()
    (llama / "theirs.gguf").write_bytes(MODEL)
    monkeypatch.setenv("LLAMA_CACHE", str(llama))
    said = models("rm", "theirs", "-y")
    assert said.code == Exit.USAGE and "llama.cpp's: delete it there" in said.err
    monkeypatch.setattr("hobnob.server.models.starter_folder", lambda: llama)
    monkeypatch.delenv("LLAMA_CACHE")
    said = models("rm", "theirs", "-y")
    assert said.code == Exit.USAGE and "the bundled model" in said.err
    assert (llama / "theirs.gguf").exists()


def test_a_name_that_there_is_not_deletes_nothing(models: Models, own: Path) -> None:
    (own / "mine.gguf").write_bytes(MODEL)
    for name in ("other", str(own / "mine.gguf"), "../own/mine", "", "mine\0"):
        assert models("rm", name, "-y").code == Exit.MODEL
    assert (own / "mine.gguf").exists()


def test_without_a_terminal_it_wants_to_be_told_so(models: Models, own: Path) -> None:
    (own / "mine.gguf").write_bytes(MODEL)
    said = models("rm", "mine")
    assert said.code == Exit.USAGE and "needs -y" in said.err


@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("", True), ("y\n", False)])
def test_on_a_terminal_it_asks(
    models: Models, own: Path, monkeypatch: pytest.MonkeyPatch, answer: str, stays: bool
) -> None:
    import io

    (own / "mine.gguf").write_bytes(MODEL)
    monkeypatch.setattr("hobnob.cli_models.on_terminal", lambda output=1: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    said = models("rm", "mine")
    assert said.code == 0 and "Delete mine for good" in said.err
    assert (own / "mine.gguf").exists() == stays


async def test_on_a_terminal_it_shows_how_far_it_is(cache: Path, fake: FakeHub) -> None:
    user = Cli(cache.parents[2] / "home")
    names = ("HOME", "HF_HOME", "HF_ENDPOINT", "NO_PROXY")
    env = {name: os.environ[name] for name in names}
    async with Session(user, "models", "pull", fake.repo, env=env) as session:
        await session.until("of 5.12 MB (")
        await session.until("nice-Q4_K_M\r\n")
        assert await session.ends() == 0
