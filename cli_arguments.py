"""What the commands' arguments have in common: options, groups, and what they mean.

Like cli.py it imports nothing heavy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hobnob.launch import Target

VERBS = frozenset(
    "ask chat serve stop status history models roles key paths doctor completion shell".split()
)
SUBVERBS = frozenset(
    "backup export import list path pin pull rename restore rm search show unpin".split()
)
_SAMPLED = frozenset({"ask", "chat"})  # where -o is a sampling option
_NAMED = {f"--{name.replace('_', '-')}": name for name in ("temperature", "seed", "max_tokens")}
"""Sampling options that are looked for under names of their own."""
_ROOT_OPTIONS = frozenset({"-h", "--help", "--version", "-v"})
_NAME = re.compile(r"[A-Za-z_]+")

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
ConversationIds = Annotated[
    list[str],
    typer.Argument(metavar="ID…", help="Ids, or the first four characters or more of each."),
]

Continue = Annotated[
    bool,
    typer.Option(
        "-c", "--continue", help="Go on with this terminal's last conversation, or the newest."
    ),
]
System = Annotated[str | None, typer.Option("-s", "--system", help="The system prompt.")]
ModelName = Annotated[
    str | None,
    typer.Option("-m", "--model", metavar="NAME|PATH", help="See `hobnob models list`."),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--option",
        metavar="NAME VALUE",
        help="A sampling option; repeatable. Also --temperature, --seed, --max-tokens.",
    ),
]

Plain = Annotated[
    bool,
    typer.Option("--plain", help="The chat as lines of text, for screen readers (ACCESSIBLE=1)."),
]
Inline = Annotated[
    bool,
    typer.Option("--inline", help="The chat below its text, which the terminal itself scrolls."),
]
File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]


RoleName = Annotated[
    str | None,
    typer.Option("-r", "--role", metavar="NAME", help="A role of yours: `hobnob roles list`."),
]


class Usage(typer.BadParameter):
    """A whole sentence of ours, which needs no “Invalid value” before it."""

    def format_message(self) -> str:
        return self.message


def usage(sentence: str) -> Usage:
    return Usage(sentence)


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


def rewrite(arguments: Sequence[str]) -> list[str]:
    """The arguments as Typer can read them: `ask` in front of a bare prompt, `-o A B` as `A=B`,
    and `--seed B` as `-o seed=B`."""
    given = list(arguments)
    first = given[0] if given else ""
    if first not in VERBS and first not in _ROOT_OPTIONS:
        given = ["ask", "--bare", *given]
    end = given.index("--") if "--" in given else len(given)
    joined: list[str] = []
    rest = iter(given[:end])
    for one in rest:
        option, equals, value = one.partition("=")
        if given[0] in _SAMPLED and option in _NAMED:
            found = value if equals else next(rest, None)
            joined += ["-o"] if found is None else ["-o", f"{_NAMED[option]}={found}"]
            continue
        joined.append(one)
        if given[0] in _SAMPLED and one in ("-o", "--option"):
            name = next(rest, None)
            second = next(rest, None) if name is not None and _NAME.fullmatch(name) else None
            joined += [f"{name}={second}"] if second is not None else [name] if name else []
    return joined + given[end:]


def check_verb(arguments: Sequence[str]) -> None:
    """A command mistyped by hand must not become a question to the model: one that stands alone,
    or before what only groups of commands have."""
    alone = len(arguments) == 1 or (len(arguments) > 1 and arguments[1] in SUBVERBS)
    if not alone or not arguments[0].isalpha() or not os.isatty(0):
        return
    from difflib import get_close_matches

    word = arguments[0].lower()
    close = get_close_matches(word, sorted(VERBS), 1, 0.81)  # hello is no shell
    if close and arguments[0] not in VERBS:
        raise usage(
            f"There is no command {arguments[0]!r}. Did you mean `hobnob {close[0]}`? "
            f"(To ask about it: `hobnob ask {' '.join(arguments)}`)"
        )
