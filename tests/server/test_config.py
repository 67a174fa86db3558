from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hobnob.server import config
from hobnob.server.config import Config, ConfigError


def load(tmp_path: Path, text: str | bytes = "", environ: Any = None, **flags: Any) -> Config:
    file = tmp_path / "config.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return config.load(file, environ or {}, flags)


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    loaded = config.load(tmp_path / "none.toml", {}, {})
    assert (loaded.host, loaded.port, loaded.capacity.streams) == ("127.0.0.1", None, 8)


def test_a_flag_wins_over_a_variable_and_that_over_the_file(tmp_path: Path) -> None:
    text = "threads = 1\nport = 1001\nctx = 512\n"
    loaded = load(tmp_path, text, {"HOBNOB_THREADS": "2", "HOBNOB_PORT": "1002"}, threads="3")
    assert (loaded.threads, loaded.port, loaded.ctx) == (3, 1002, 512)


def test_a_section_is_set_in_the_file_and_by_a_variable(tmp_path: Path) -> None:
    text = "[capacity]\nstreams = 3\nreply_tokens = 99\n"
    loaded = load(tmp_path, text, {"HOBNOB_CAPACITY__STREAMS": "5"})
    assert (loaded.capacity.streams, loaded.capacity.reply_tokens) == (5, 99)


def test_the_process_environment_plays_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOBNOB_THREADS", "7")
    assert load(tmp_path).threads == 0


def test_variables_that_are_not_settings_of_the_server_are_passed_over(tmp_path: Path) -> None:
    load(tmp_path, "", {"HOBNOB_HOME": "/x", "HOBNOB_URL": "http://x", "HOBNOB_THREADS": ""})


def test_a_byte_order_mark_and_windows_line_ends_are_taken(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbfthreads = 2\r\nport = 9\r\n").port == 9


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("prot = 1", "did you mean port?"),
        ("port = 'abc'", "port"),
        ("port = 70000", "port"),
        ("[capacity]\nstreams = 0", "capacity.streams"),
        ("[capacity]\nstream = 1", "did you mean streams?"),
        ("[snapshots]\ndisk = 1", "did you mean disk_mb?"),
        ("[snapshots]\nram_mb = -1", "snapshots.ram_mb"),
        ("[sampling]\ntemperature = 99", "temperature must be between"),
        ("[sampling]\ncolour = 1", "There is no option"),
        ("a = ", "not valid TOML"),
        (b"a = '\xff'", "not UTF-8"),
        ("kv_type = 'f64'", "kv_type"),
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("idle_stop_s = inf", "idle_stop_s"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence_that_names_it(
    text: str | bytes, part: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert part.lower() in str(caught.value).lower()
    assert "config.toml" in str(caught.value)
    assert "\n" not in str(caught.value).split("not valid TOML")[0]


def test_a_wrong_variable_is_said_to_come_from_the_environment(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"port \(the environment\)"):
        load(tmp_path, "port = 1", {"HOBNOB_PORT": "x"})


def test_a_list_given_wrongly_in_a_variable_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HOBNOB"):
        load(tmp_path, "", {"HOBNOB_ALLOWED_HOSTS": "not json"})


def test_a_variable_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(tmp_path, "", {"HOBNOB_CAPACITY": "[" * 50_000})


def test_gpu_layers_may_be_auto(tmp_path: Path) -> None:
    assert load(tmp_path, gpu_layers="auto").gpu_layers == -1
    assert load(tmp_path, gpu_layers="12").gpu_layers == 12


def test_the_key_is_not_shown_when_the_config_is(tmp_path: Path) -> None:
    assert "s3cret-key" not in repr(load(tmp_path, "key = 's3cret-key'"))


def test_the_config_cannot_be_changed(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        loaded.port = 1


def test_every_key_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    names = [*Config.model_fields, *config.CapacityConfig.model_fields]
    names += config.SnapshotsConfig.model_fields
    assert [name for name in names if f"`{name}`" not in page] == []
