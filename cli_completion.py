"""`hobnob completion SHELL`: what a shell needs to complete our commands.

The scripts ask `hobnob completion words` at each Tab, so that they never grow old. Conversations
and models are those of a server that runs; completing starts none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from hobnob.cli_arguments import usage
from hobnob.exits import Exit, ExitError

ANSWER_SECONDS = 1.0
MAX_ANSWER_BYTES = 4 * 1024 * 1024
CONVERSATIONS = 50

Candidate = tuple[str, str]
"""A word, and what it stands for."""

# Whatever is offered may come from a file's name or a model: bash is given it quoted, zsh and
# fish quote by themselves.
BASH = r"""
_hobnob() {
    local word about
    COMPREPLY=()
    while IFS=$'\t' read -r word about; do
        printf -v word %q "$word"
        COMPREPLY+=("$word")
    done < <("$1" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _hobnob hobnob
"""

ZSH = r"""
#compdef hobnob
_hobnob() {
    local word about
    local -a found shown
    while IFS=$'\t' read -r word about; do
        found+=("$word")
        shown+=("$word${about:+  $about}")
    done < <("${words[1]}" completion words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#found} )); then
        compadd -l -d shown -- "${found[@]}"
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _hobnob ]]; then _hobnob "$@"; else compdef _hobnob hobnob; fi
"""

FISH = r"""
function __hobnob_words
    set -l typed (commandline -opc)
    set -l last (commandline -ct)
    set -l found ($typed[1] completion words -- $typed[2..-1] "$last" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$last"
    end
end
complete -c hobnob -f -a '(__hobnob_words)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
WORDS = "words"
"""In place of a shell: the candidates for the last of some words, a line each, a tab before
what it stands for."""


def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", show_default=False)],
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> int:
    """Print a script for your shell to complete by.

    It completes commands, options, conversations and models.
    """
    if shell == WORDS:
        for word, about in candidates(context.find_root().command, words or [""]):
            print(f"{word}\t{about}")
    elif shell in SCRIPTS:
        print(SCRIPTS[shell].strip())
    else:
        raise usage(f"There is no script for {shell!r}: only for {', '.join(SCRIPTS)}.")
    return Exit.OK


def candidates(root: Any, words: Sequence[str]) -> list[Candidate]:
    """What the last word may become, after those before it. `root` is the tree of commands."""
    *before, typed = words
    command, rest = _descend(root, before)
    if "--" in rest:
        return []
    if command is None:
        found = []
    elif hasattr(command, "commands"):
        found = [(name, _line(one.help)) for name, one in command.commands.items()]
        if command is root and typed.startswith("-"):
            found = _options(root) + _options(root.commands["ask"])
    elif typed.startswith("-"):
        found = _options(command)
    else:
        source = SOURCES.get(_next_parameter(command, rest) or "")
        found = source() if source is not None else []
    return list(dict.fromkeys(one for one in found if one[0].startswith(typed)))


def _descend(root: Any, before: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that the words lead to, and those that are its own."""
    command, rest = root, list(before)
    while rest and hasattr(command, "commands"):
        if rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        elif command is root:
            return root.commands["ask"], rest  # a prompt, or one of its options
        else:
            return None, rest
    return command, rest


def _options(command: Any) -> list[Candidate]:
    found = [("--help", "Show this message and exit."), ("-h", "Show this message and exit.")]
    for one in command.params:
        if one.param_type_name == "option" and not one.hidden:
            found += [(name, _line(one.help)) for name in one.opts]
    return found


def _next_parameter(command: Any, words: Sequence[str]) -> str | None:
    """The name of what comes after these words: an option's value, or an argument."""
    options = {
        name: one for one in command.params if one.param_type_name == "option" for name in one.opts
    }
    waiting: str | None = None
    taken = 0
    for word in words:
        if waiting is not None:
            waiting = None
        elif word in options:
            waiting = None if options[word].is_flag else options[word].name
        elif not word.startswith("-"):
            taken += 1
    if waiting is not None:
        return waiting
    for one in command.params:
        if one.param_type_name == "argument":
            if taken == 0 or one.nargs == -1:
                return str(one.name)
            taken -= 1
    return None


# ---- what a server knows ----------------------------------------------------------------------


def _conversations() -> list[Candidate]:
    found = _ask(f"/conversations?limit={CONVERSATIONS}", "conversations")
    return [(_line(one.get("id"))[:8], _line(one.get("title"))) for one in found]


def _models() -> list[Candidate]:
    return [(_line(one.get("id")), _line(one.get("path"))) for one in _ask("/models", "models")]


def _roles() -> list[Candidate]:
    from hobnob.tui.roles import Roles

    return [(name, "") for name in Roles.home().names()]


def _shells() -> list[Candidate]:
    return [(name, "") for name in SCRIPTS]


SOURCES: dict[str, Callable[[], list[Candidate]]] = {
    "id": _conversations,
    "ids": _conversations,
    "conversation": _conversations,
    "model": _models,
    "draft_model": _models,
    "role": _roles,
    "shell": _shells,
}
"""Which values are known, by the name of their parameter."""


def _ask(path: str, name: str) -> list[dict[str, Any]]:
    """A list of what the server has; empty where none answers at once. Without httpx, which
    takes longer to import than all of this."""
    import http.client
    from urllib.parse import urlsplit

    from hobnob import launch
    from hobnob.server.wire import API

    try:
        target = launch.Target.choose()
        server = launch.find(target.paths) if target.url is None else None
        if target.url is None and server is None:
            return []
        url = target.url or (server.url if server is not None else "")
        key = target.key or launch.read_key(target.paths) or ""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        connection = kind(parts.netloc, timeout=ANSWER_SECONDS)
        try:
            headers = {"Authorization": f"Bearer {key}"}
            connection.request("GET", f"{parts.path}{API}{path}", headers=headers)
            found = json.loads(connection.getresponse().read(MAX_ANSWER_BYTES))[name]
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, ExitError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _line(text: object) -> str:
    """The first line of a text, harmless for the terminal that it is shown on."""
    from hobnob.tui.clean import one_line

    return one_line(str(text or "").strip().partition("\n")[0])
