"""What the commands' arguments have in common: options, groups, and what they mean.

Like cli.py it imports nothing heavy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hobnob.launch import Target

_SETTINGS = {"help_option_names": ["-h", "--help"]}


def group(help: str) -> typer.Typer:
    return typer.Typer(
        help=help,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=_SETTINGS,
        no_args_is_help=True,
    )


Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Another server, with its key in HOBNOB_KEY."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (docs/scripting.md).")]
ConversationId = Annotated[
    str, typer.Argument(metavar="ID", help="Its id, or the first four characters or more.")
]

File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]


def usage(sentence: str) -> typer.BadParameter:
    return typer.BadParameter(sentence)


def target_of(url: str | None) -> Target:
    from hobnob.launch import Target

    return Target.choose(url)


def serves(target: Target) -> bool:
    """Whether there is a server to ask; else the files are ours."""
    from hobnob import launch

    return target.url is not None or launch.find(target.paths) is not None


def on_terminal(output: int = 1) -> bool:
    return os.isatty(0) and os.isatty(output)


def text_of(value: str | None) -> str | None:
    from hobnob.tui.stdin import argument

    return None if value is None else argument(value)


def sampling(pairs: list[str] | None) -> dict[str, object]:
    from hobnob.tui.options import parse

    return parse(pairs or [])
