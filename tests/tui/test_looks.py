"""Themes, the clipboard's ways, the model's state in words, settings and keys."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from fake_client import FakeClient
from support_app import running
from support_documents import HOSTILE
from textual.binding import Binding

from hobnob.tui import clipboard, settings, themes
from hobnob.tui.app import HobnobApp
from hobnob.tui.chat import Chat
from hobnob.tui.column_form import ColumnForm
from hobnob.tui.column_view import ColumnView
from hobnob.tui.comparing import ComparingApp
from hobnob.tui.comparisons import ComparisonsScreen
from hobnob.tui.composer import Composer
from hobnob.tui.editor import edit
from hobnob.tui.help import table
from hobnob.tui.help_parts import help_parts
from hobnob.tui.key_names import key_name
from hobnob.tui.message import MessageView
from hobnob.tui.model_watch import describe
from hobnob.tui.playground import Playground
from hobnob.tui.reading import Reading
from hobnob.tui.screens import one_line
from hobnob.tui.sidebar import ConversationList


@pytest.mark.parametrize(
    ("answer", "dark"),
    [
        (b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\", True),
        (b"\x1b]11;rgb:ffff/ffff/f0f0\x07", False),
        (b"\x1b]11;rgba:00/00/00/ff\x07", True),
        (b"\x1b[?62;c", None),
        (b"", None),
        (b"\x1b]11;rgb:zz/zz/zz\x07", None),
    ],
)
def test_the_terminals_answer_says_dark_or_light(answer: bytes, dark: bool | None) -> None:
    assert themes.is_dark(answer) is dark


@pytest.mark.parametrize(
    ("answer", "keys"),
    [
        (b"hi \x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\the\x1b[?62;4cre\n", "hi there\r"),
        (b"\x1b]11;rgb:ffff/ffff/f0f0\x07\x1b[?6c", ""),
        ("süß".encode(), "süß"),
        (b"", ""),
    ],
)
def test_what_was_typed_into_the_terminals_answer_is_kept(answer: bytes, keys: str) -> None:
    assert themes.typed(answer) == keys


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"HOBNOB_THEME": "light"}, "hobnob-light"),
        ({"HOBNOB_THEME": "ansi-dark"}, "ansi-dark"),
        ({"COLORFGBG": "0;15"}, "hobnob-light"),
        ({"COLORFGBG": "15;0"}, "hobnob-dark"),
        ({"COLORFGBG": "default;default"}, "hobnob-dark"),
    ],
)
def test_the_theme_is_as_said_or_as_the_background(environ: dict[str, str], name: str) -> None:
    assert themes.choose(environ) == themes.Choice(name)


def test_copying_asks_the_terminal_also_through_tmux_and_screen() -> None:
    plain = clipboard.sequence("héllo", {})
    assert (
        base64.b64decode(plain.removeprefix("\x1b]52;c;").removesuffix("\x07")) == "héllo".encode()
    )
    wrapped = clipboard.sequence("x", {"TMUX": "/tmp/s"})
    assert wrapped.startswith("\x1bPtmux;\x1b\x1b]52;c;")
    assert wrapped.endswith("\x1b\\")
    assert clipboard.sequence("x", {"TERM": "screen-256color"}).startswith("\x1bP\x1b]52")


def test_what_no_terminal_would_take_is_not_sent() -> None:
    assert clipboard.sequence("x" * 100_000, {}) == ""


def test_a_remote_session_does_not_copy_on_the_far_side() -> None:
    assert clipboard.tool({"SSH_CONNECTION": "1", "DISPLAY": ":0"}) is None


async def test_a_local_tool_gets_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "xclip"
    tool.write_text(f"#!/bin/sh\ncat > {tmp_path}/copied\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    for name in ("SSH_CONNECTION", "SSH_TTY", "WAYLAND_DISPLAY", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    written: list[str] = []
    assert await clipboard.copy("text [/]", written.append) == "the terminal and xclip"
    assert (tmp_path / "copied").read_text() == "text [/]"


async def test_how_much_was_copied_and_by_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipboard, "tool", lambda environ: None)
    written: list[str] = []
    said = await clipboard.copy_and_say("text", written.append)
    assert said == "Copied 4 characters (the terminal)." and len(written) == 1


async def test_a_tool_that_fails_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "xclip"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("SSH_TTY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert await clipboard.copy("x", lambda _: None) == "the terminal"


@pytest.mark.parametrize(
    ("status", "words", "settled"),
    [
        ({"engine": {"state": "loading", "load_done": 0.5}, "model": {"id": "M"}}, "50%", False),
        ({"engine": {"state": "restarting"}, "model": {"id": "M"}}, "restarting M…", False),
        ({"engine": {"state": "ready"}, "model": {"id": "M"}}, "M", True),
        ({"engine": {"state": "ready"}, "model": {"id": "M", "starter": True}}, "starter", True),
        ({"engine": {"state": "failed", "failure": {"message": "Cut short."}}}, "Cut short.", True),
        ({"engine": {"state": "failed", "failure": None}}, "could not be loaded", True),
        ({}, "model", True),
        ({"engine": "odd", "model": 3}, "model", True),
    ],
)
def test_the_models_state_is_said(status: dict[str, object], words: str, settled: bool) -> None:
    state = describe(status)
    assert words in state.words
    assert state.settled is settled


def test_a_models_name_is_only_text() -> None:
    words = describe({"engine": {"state": "ready"}, "model": {"id": HOSTILE}}).words
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in words)


def test_settings_are_read_and_a_broken_file_costs_only_itself(tmp_path: Path) -> None:
    assert settings.read(tmp_path) == settings.Settings()
    path = tmp_path / settings.FILE_NAME
    path.write_text('theme = "light"\n[keys]\n"chat.find" = "ctrl+g"\n')
    assert settings.read(tmp_path) == settings.Settings("light", {"chat.find": "ctrl+g"})
    path.write_text("vi = true\n")
    assert settings.read(tmp_path).vi
    path.write_text('nonsense = 1\n[keys]\n"chat.find" = 3\n')
    assert "nonsense, chat.find" in settings.read(tmp_path).problem
    for broken in ("theme = ", "theme = 3", 'keys = "x"', "vi = 1", "\x00"):
        path.write_text(broken)
        assert settings.read(tmp_path).problem


def test_every_key_of_ours_can_be_remapped_by_a_name_that_is_unique() -> None:
    bindings = [
        binding
        for owner in (
            HobnobApp,
            ComparingApp,
            Chat,
            Reading,
            Composer,
            MessageView,
            ConversationList,
            Playground,
            ColumnView,
            ColumnForm,
            ComparisonsScreen,
        )
        for binding in owner.BINDINGS
    ]
    names = [binding.id for binding in bindings if isinstance(binding, Binding)]
    assert len(names) == len(bindings)
    assert None not in names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ctrl+pageup", "Ctrl+PgUp"),
        ("y", "y"),
        ("escape", "Esc"),
        ("slash", "/"),
        ("f1", "F1"),
        ("ctrl+underscore", "Ctrl+_"),
    ],
)
def test_keys_are_named_as_on_the_keyboard(key: str, name: str) -> None:
    assert key_name(key) == name


def test_no_part_of_the_help_repeats_its_heading() -> None:
    for title, about, _ in help_parts(None, ()):
        first_sentence = about.partition(".")[0].lower().split()
        assert not about or set(first_sentence) - set(title.lower().split())


def test_the_users_editor_edits_the_text(tmp_path: Path) -> None:
    editor = tmp_path / "ed"
    editor.write_text("#!/bin/sh\nprintf 'and more\\n' >> \"$2\"\n")
    editor.chmod(0o755)
    assert edit("text\n", {"EDITOR": f"{editor} --wait"}) == "text\nand more"
    editor.write_text("#!/bin/sh\nexit 3\n")
    assert edit("text", {"EDITOR": f"{editor} --wait"}) is None
    with pytest.raises(OSError):
        edit("text", {"EDITOR": str(tmp_path / "missing")})


@pytest.mark.parametrize("keys", ["u", "ctrl+alt+shift+f10,ctrl+alt+shift+f11"])
def test_the_columns_of_the_help_keep_apart(keys: str) -> None:
    for _, _, bindings in help_parts(None, HobnobApp.BINDINGS):
        named = [one for one in bindings if isinstance(one, Binding) and one.id]
        remapped = {one.id: keys for one in named[:1] if one.id}
        rows = table(bindings, remapped).plain.split("\n")
        for one, row in zip(named, rows, strict=True):
            assert re.fullmatch(rf"\S.*  {re.escape(one.description)} {{2,}}{one.id}", row)


def test_a_row_of_a_list_is_one_line() -> None:
    assert one_line("a\n\tb\x1b[2J") == "a b␛[2J"
    assert one_line(" a b ", ends=True) == " a b "
    assert (one_line(" \n", ends=True), one_line("", ends=True)) == (" ", "")


def test_themes_of_ones_own_are_read_and_a_broken_one_costs_only_itself(tmp_path: Path) -> None:
    assert themes.read(tmp_path) == ([], "")
    path = tmp_path / themes.FILE_NAME
    path.write_text(
        '[evening]\nprimary = "#e0a060"\nmuted = "rgb(90, 90, 90)"\n'
        '[paper]\ndark = false\nprimary = "blue"\n'
        '[a]\nprimary = "no colour"\n[b]\nprimary = "red"\nbakground = "red"\n'
        '[c]\nsecondary = "red"\n[d]\nprimary = "red"\ndark = 1\n'
    )
    made, problem = themes.read(tmp_path)
    assert [(one.name, one.primary, one.dark) for one in made] == [
        ("evening", "#e0a060", True),
        ("paper", "blue", False),
    ]
    assert made[0].background == themes.DARK.background
    assert made[1].background == themes.LIGHT.background
    assert made[0].variables["muted"] == "rgb(90, 90, 90)"
    for wrong in ("a: primary is not a colour", "b: bakground", "c: primary is missing", "d: dark"):
        assert wrong in problem
    path.write_text("x = ")
    assert "not valid TOML" in themes.read(tmp_path)[1]


async def test_a_theme_of_ones_own_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / themes.FILE_NAME).write_text('[evening]\nprimary = "#e0a060"\n')
    own, _ = themes.read(tmp_path)
    async with running(FakeClient(), tmp_path, theme="evening", own_themes=own) as pilot:
        assert pilot.app.current_theme.primary == "#e0a060"
