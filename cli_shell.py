"""`hobnob shell SHELL`: a key of the user's shell that turns a wish into a command.

The scripts give the line to `hobnob shell SHELL --line` on stdin (it is in no list of processes)
and put what comes back in its place. They change the line only after success, and never run it.
"""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

from hobnob.cli_arguments import ModelName, Url, target_of, usage
from hobnob.exits import Exit

# While the model is asked, Ctrl+C is for hobnob alone: a shell that gets it as well would throw the
# line away, or draw it before hobnob has ended. bash waits, and a trap of the user's own comes
# back; zsh ignores it; fish gives the terminal to a job that is no substitution. After Ctrl+C fish
# ends the function and does not repaint: the cursor, saved before, goes back to where fish left it.
BASH = r"""
__hobnob_line() {
    [[ $READLINE_LINE == *[![:space:]]* ]] || return 0
    local found trapped
    trapped=$(trap -p INT)
    trap : INT
    if found=$(printf '%s' "$READLINE_LINE" | command hobnob shell bash --line) &&
            [[ -n $found ]]; then
        READLINE_LINE=$found
        READLINE_POINT=${#found}
    fi
    eval "${trapped:-trap - INT}"
}
if [[ $- != *i* ]]; then
    :
elif (( BASH_VERSINFO[0] < 4 )); then
    echo 'hobnob: The key needs bash 4 or newer.' >&2
else
    for __hobnob_map in emacs vi-insert; do
        bind -m "$__hobnob_map" -x '"@KEY@": __hobnob_line'
    done
    unset __hobnob_map
fi
"""

ZSH = r"""
__hobnob_line() {
    emulate -L zsh
    setopt local_traps
    [[ $BUFFER == *[^[:space:]]* ]] || return 0
    local found
    trap '' INT
    zle -I
    if found=$(printf '%s' "$BUFFER" | command hobnob shell zsh --line) && [[ -n $found ]]; then
        BUFFER=$found
        CURSOR=${#BUFFER}
    fi
}
if [[ -o interactive ]]; then
    zle -N __hobnob_line
    bindkey -M emacs '@KEY@' __hobnob_line
    bindkey -M viins '@KEY@' __hobnob_line
fi
"""

FISH = r"""
function __hobnob_line
    set -l line (commandline -b | string collect)
    string match -qr '\S' -- "$line"; or return 0
    printf '\eD\eM\e7\r\n' >&2
    printf '%s' "$line" | command hobnob shell fish --line | read -l found
    if test "$pipestatus[2]" = 0; and test -n "$found"
        commandline -r -- $found
    end
    commandline -f repaint
end
if status is-interactive
    bind @KEY@ __hobnob_line
    bind -M insert @KEY@ __hobnob_line
end
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
NOTATIONS = {
    "bash": {"alt": r"\e{}", "ctrl": r"\C-{}"},
    "zsh": {"alt": "^[{}", "ctrl": "^{}"},
    "fish": {"alt": r"\e{}", "ctrl": r"\c{}"},
}
RESTORE_CURSOR = b"\x1b8"
WAITING = "hobnob: a command is asked for (Ctrl+C leaves the line as it was)"
KEY = "alt+e"
_KEY = re.compile(r"(alt)\+([a-z0-9])|(ctrl)\+([a-z])")
_NEEDED = frozenset("cdijmqsz")
"""With Ctrl: the terminal's own, and those that are Tab and Enter."""


def shell(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", show_default=False)],
    key: Annotated[
        str, typer.Option("--key", metavar="KEY", help="alt+ and a letter or digit, or ctrl+ one.")
    ] = KEY,
    line: Annotated[bool, typer.Option("--line", hidden=True)] = False,
    model: ModelName = None,
    url: Url = None,
) -> int:
    """Print a script for your shell that binds a key.

    The key turns the words on the command line into a command, and runs nothing.
    """
    if shell not in SCRIPTS:
        raise usage(f"There is no script for {shell!r}: only for {', '.join(SCRIPTS)}.")
    if line:
        return _replace_line(shell, model, url)
    if model is not None or url is not None:
        raise usage(
            "The key asks the server and the model of your settings: config.toml, HOBNOB_*."
        )
    print(SCRIPTS[shell].strip().replace("@KEY@", _notation(shell, key)))
    return Exit.OK


def _notation(shell: str, key: str) -> str:
    """The key as the shell's own command for binding writes it."""
    found = _KEY.fullmatch(key.lower())
    if found is None:
        raise usage(
            f"{key!r} is no key for this: alt+ and a letter or digit, or ctrl+ and a letter."
        )
    modifier, letter = found[1] or found[3], found[2] or found[4]
    if modifier == "ctrl" and letter in _NEEDED:
        raise usage(f"{key!r} is needed by the shell or the terminal.")
    return NOTATIONS[shell][modifier].format(letter)


def _replace_line(shell: str, model: str | None, url: str | None) -> int:
    """Stdin is the line; stdout the command that is to stand there, and nothing else."""
    import signal

    from hobnob.tui import ask, shell_line, stdin
    from hobnob.tui.plain import Notes
    from hobnob.tui.question import Question

    signal.signal(signal.SIGINT, signal.default_int_handler)  # zsh has us begin without one
    prompt = stdin.join([], stdin.read_stdin(Notes().say))
    system = shell_line.system_prompt(_system(), shell)
    question = Question(prompt, system=system, model=model, temporary=True, fail_on_truncation=True)
    code, reply = ask.gather(target_of(url), question, WAITING)
    if code is Exit.INTERRUPTED and shell == "fish" and os.isatty(2):
        os.write(2, RESTORE_CURSOR)
    if code is not Exit.OK:
        return code
    print(shell_line.command(reply))
    return Exit.OK


def _system() -> str:
    """The operating system's name: the distribution's, where there is one."""
    import platform

    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        name = platform.system()
        return "macOS" if name == "Darwin" else name
