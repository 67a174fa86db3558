"""The commands: parse, call, print, exit code.

What a command needs is imported inside it, so that `hobnob --help` costs nothing but Typer.
`hobnob WORDS…` is `hobnob ask WORDS…` unless the first word is a command; without a prompt, in
a terminal, the chat opens.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, NoReturn

import typer

from hobnob import __version__
from hobnob.cli_arguments import (
    Continue,
    Inline,
    Json,
    ModelName,
    Options,
    Plain,
    RoleName,
    System,
    Url,
    check_verb,
    group,
    on_terminal,
    rewrite,
    sampling,
    serves,
    target_of,
    text_of,
    usage,
)
from hobnob.cli_ask import ask
from hobnob.cli_completion import completion
from hobnob.cli_history import history
from hobnob.cli_models import models
from hobnob.cli_paths import paths
from hobnob.cli_roles import in_role, roles
from hobnob.cli_shell import shell
from hobnob.exits import Exit, ExitError

HELP = """Chat with a local model.

\b
hobnob                 open the chat (--plain: as lines of text, --inline: in the scrollback)
hobnob "PROMPT"        ask one question (the same as: hobnob ask "PROMPT")
command | hobnob "…"   the data first, then the question

\b
hobnob -c, -m, -s, -r, -o and more: hobnob chat --help, hobnob ask --help

\b
A prompt that begins with a dash needs --:   hobnob -- "-5 + 3 = ?"
A prompt that is a command's name needs ask: hobnob ask history
"""

app = group(HELP)
app.add_typer(history, name="history")
app.add_typer(models, name="models")
app.add_typer(roles, name="roles")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("-v", "--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"hobnob {__version__}")
        raise typer.Exit()


app.command()(ask)


@app.command()
def chat(
    continue_last: Continue = False,
    conversation: Annotated[str | None, typer.Option("--conversation", metavar="ID")] = None,
    system: System = None,
    role: RoleName = None,
    model: ModelName = None,
    option: Options = None,
    plain: Plain = False,
    inline: Inline = False,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="Begin a conversation of which nothing is kept.")
    ] = False,
    url: Url = None,
) -> int:
    """Open the chat, as `hobnob` alone does."""
    system, model, option = in_role(role, system, model, option)
    given = url, continue_last, conversation, system, model, option
    return open_chat(*given, plain=plain, inline=inline, temporary=temporary)


def open_chat(
    url: str | None,
    continue_last: bool,
    conversation: str | None,
    system: str | None,
    model: str | None,
    option: list[str] | None,
    *,
    plain: bool,
    inline: bool,
    temporary: bool,
) -> int:
    if temporary and (continue_last or conversation):
        raise usage("--temporary begins a conversation of its own.")
    if plain and inline:
        raise usage("--plain and --inline are two ways to chat: choose one.")
    if not on_terminal():
        raise usage("The chat needs a terminal; `hobnob ask` reads a pipe and does without.")
    from hobnob.launch import Target
    from hobnob.tui import modes

    target = Target.choose(url)
    if model is not None or continue_last:
        from hobnob.tui import verbs  # httpx; the app alone paints without it

        if model is not None:
            verbs.check_model(target, model)
        if continue_last and conversation is None:
            conversation = verbs.newest(target, model)
    mode = modes.choose(os.environ, plain=plain, inline=inline)
    run: Callable[..., int]
    if mode is modes.Mode.PLAIN:
        from hobnob.tui.linear_start import run
    else:
        from hobnob.tui.start import run

        run = partial(run, inline=mode is modes.Mode.INLINE)
    return run(
        target,
        conversation=conversation,
        system=text_of(system),
        model=model,
        options=sampling(option),
        temporary=temporary,
    )


@app.command()
def serve(
    model: ModelName = None,
    draft_model: Annotated[
        str | None,
        typer.Option("--draft-model", metavar="NAME", help="A small model that drafts for it."),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Where to listen.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535)] = None,
    ctx: Annotated[
        int | None, typer.Option("--ctx", min=0, help="Context window of a conversation, tokens.")
    ] = None,
    sequences: Annotated[
        int | None, typer.Option("--sequences", min=1, help="Replies generated at once.")
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=0, help="0: choose.")] = None,
    gpu_layers: Annotated[
        str | None, typer.Option("--gpu-layers", metavar="N|auto", help="auto: all that fit.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="For requests that give none.")
    ] = None,
) -> NoReturn:
    """Run the server in this terminal until Ctrl+C. Also set by config.toml and HOBNOB_*."""
    from hobnob.launch import SERVER_COMMAND
    from hobnob.tui.options import model_argument

    given = {
        "--model": None if model is None else model_argument(model),
        "--draft-model": None if draft_model is None else model_argument(draft_model),
        "--host": host,
        "--port": port,
        "--ctx": ctx,
        "--sequences": sequences,
        "--threads": threads,
        "--gpu-layers": gpu_layers,
        "--seed": seed,
    }
    arguments = [f"{name}={value}" for name, value in given.items() if value is not None]
    # In our place: signals, exit code and terminal are the server's own.
    command = [*SERVER_COMMAND, *arguments]
    os.execv(command[0], command)


@app.command()
def stop() -> int:
    """Stop the local server.

    Replies under way go on when it is next started.
    """
    from hobnob import launch
    from hobnob.paths import Paths

    running = launch.stop(Paths.home())
    print("The server was stopped." if running else "No server was running.", file=sys.stderr)
    return Exit.OK


@app.command()
def status(as_json: Json = False, url: Url = None) -> int:
    """Show the server, its engine and its model. Never starts one."""
    from hobnob.tui import verbs

    return verbs.status(target_of(url), as_json=as_json)


@app.command()
def key() -> int:
    """Print the key of the local server, and nothing else."""
    from hobnob import launch
    from hobnob.paths import Paths

    # HOBNOB_KEY may be another machine's; it is asked for only where there is no file.
    secret = launch.read_key(Paths.home()) or os.environ.get("HOBNOB_KEY", "").strip()
    if not secret:
        raise launch.LaunchError(
            "There is no key yet: the server makes one when it first starts.", Exit.KEY
        )
    print(secret)
    return Exit.OK


@app.command()
def doctor(
    check_db: Annotated[
        bool, typer.Option("--check-db", help="The database: all that is looked at so far.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
) -> int:
    """Look for what is wrong: one sentence each, and exit code 1.

    In the database: its pages, its references, and the index against the messages.
    """
    from hobnob.tui.plain import print_json

    del check_db  # there is nothing else to leave out
    target = target_of(url)
    if serves(target):
        from hobnob.tui import verbs

        problems = verbs.problems(target)
    else:
        from hobnob import offline

        problems = offline.check(target.paths)
    if as_json:
        print_json({"problems": problems})
    else:
        print("\n".join(problems or ["The database is sound."]))
    return Exit.INTERNAL if problems else Exit.OK


app.command()(completion)
app.command()(paths)
app.command()(shell)


# ---- running ----------------------------------------------------------------------------------

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Typer carries its own click or uses the real one, by version; this finds its UsageError."""


def run(arguments: Sequence[str]) -> int:
    """Parse and call; every expected failure is one line on stderr and a code of exits.py."""
    given = rewrite(arguments)
    try:
        check_verb(arguments)
        return int(app(args=given, prog_name="hobnob", standalone_mode=False) or Exit.OK)
    except (typer.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except ExitError as error:
        return _fail(error, given)
    except OSError as error:  # `print` and Typer's help, on a full disk or a closed pipe
        if error.errno == errno.EPIPE:
            return Exit.CLOSED_OUTPUT
        if error.errno != errno.ENOSPC:
            raise
        print(f"hobnob: The output cannot be written: {error.strerror}.", file=sys.stderr)
        return Exit.OUTPUT
    except _UsageError as error:
        sentence = str(getattr(error, "format_message", error.__str__)())
        if type(error).__name__ == "NoArgsIsHelpError":  # the click of `_UsageError` has it
            from hobnob.tui.plain import Notes

            Notes().text(sentence)
            return Exit.USAGE
        if "No such option" in sentence:
            sentence += " (a prompt that begins with a dash needs `--` before it)"
        return _fail(ExitError(sentence, Exit.USAGE, "usage"), given)


def _fail(error: ExitError, arguments: Sequence[str]) -> int:
    """Say it on stderr; with --json or --events stdout has JSON even now."""
    from hobnob.tui.plain import Notes, print_json

    if error.message:
        Notes().error(error.message)
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    asked = arguments[0] == "ask"
    as_event = asked and "--events" in options
    writable = error.exit_code not in (Exit.CLOSED_OUTPUT, Exit.OUTPUT)
    if writable and (as_event or "--json" in options):
        try:
            print_json(_failure_event(error) if as_event else _failure(error, asked=asked))
        except ExitError:
            pass  # the first failure is the one to tell
    return error.exit_code


def _failure(error: ExitError, *, asked: bool) -> dict[str, object]:
    """What failed, as JSON; for `ask` in the shape that its replies have."""
    from hobnob.tui.ask import Reply

    reply = Reply()
    reply.fail(error.code, error.message)
    return asdict(reply) if asked else {"error": reply.error}


def _failure_event(error: ExitError) -> dict[str, object]:
    """What failed, as the one line of `ask --events`."""
    return {"type": "error", "seq": None, "code": error.code, "message": error.message}


def _open_standard_descriptors() -> None:
    """Started with one closed (`>&-`), the next file or socket opened would take its place."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _flush(code: int) -> int:
    """Write what `print` left behind, so that the interpreter has nothing to complain about."""
    if sys.stdout is None:
        return code
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            return Exit.CLOSED_OUTPUT
        if code != Exit.OUTPUT:  # else it has been said: what failed to go out is still there
            print(f"hobnob: The output cannot be written: {error.strerror}.", file=sys.stderr)
        return Exit.OUTPUT
    return code


def main() -> NoReturn:
    _open_standard_descriptors()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # help, in a locale without its characters
    sys.exit(_flush(run(sys.argv[1:])))
