"""`hobnob history`: conversations read, searched, exported, imported, changed, backed up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from hobnob.cli_arguments import (
    ConversationId,
    ConversationIds,
    File,
    Json,
    Url,
    group,
    on_terminal,
    serves,
    target_of,
    usage,
)
from hobnob.exits import Exit, ExitError

history = group("Read, search, export, import, rename, pin and delete conversations.")


@history.command("list")
def history_list(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500)] = 50,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only those that are pinned.")] = False,
    as_json: Json = False,
    url: Url = None,
) -> int:
    """Conversations, newest first."""
    from hobnob.tui import verbs

    return verbs.list_conversations(target_of(url), limit=limit, pinned=pinned, as_json=as_json)


@history.command("show")
def history_show(id: ConversationId, as_json: Json = False, url: Url = None) -> int:
    """The messages of a conversation."""
    from hobnob.tui import verbs

    return verbs.show(target_of(url), id, as_json=as_json)


@history.command("search")
def history_search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS…")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500)] = 20,
    as_json: Json = False,
    url: Url = None,
) -> int:
    """Find messages by their words, best first."""
    from hobnob.tui import verbs
    from hobnob.tui.stdin import argument

    query = " ".join(argument(word) for word in words)
    return verbs.search(target_of(url), query, limit=limit, as_json=as_json)


@history.command("export")
def history_export(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Every conversation.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="To read; what happens without a choice.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything, all branches (docs/scripting.md).")
    ] = False,
    as_html: Annotated[
        bool, typer.Option("--html", help="One page for a browser, which fetches nothing.")
    ] = False,
    branches: Annotated[
        bool, typer.Option("--branches", help="All branches in the Markdown or the page too.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Instead of stdout.")
    ] = None,
    url: Url = None,
) -> int:
    """Write conversations as Markdown, JSON or HTML."""
    if bool(ids) == every:
        raise usage("Say which conversations: their ids, or --all.")
    if as_markdown + as_json + as_html > 1:
        raise usage("--markdown, --json and --html are three forms: choose one.")
    from hobnob.tui import verbs

    chosen = None if every else ids
    form: Literal["markdown", "json", "html"]
    form = "json" if as_json else "html" if as_html else "markdown"
    return verbs.export(target_of(url), chosen, form=form, branches=branches, file=file)


@history.command("import")
def history_import(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", show_default=False)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be imported, and change nothing.")
    ] = False,
    as_json: Json = False,
    url: Url = None,
) -> int:
    """Take in conversations: hobnob's JSON export, and files of ChatGPT, Claude, llm, llama-server.

    Also messages as a list or one a line. What is here already stays as it is.
    """
    from hobnob.tui.importing import verb

    return verb.bring(target_of(url), files, dry_run=dry_run, as_json=as_json)


@history.command("rename")
def history_rename(
    id: ConversationId,
    words: Annotated[list[str], typer.Argument(metavar="TITLE…")],
    url: Url = None,
) -> int:
    """Give a conversation another title."""
    from hobnob.tui import verbs
    from hobnob.tui.stdin import argument

    return verbs.rename(target_of(url), id, " ".join(argument(word) for word in words))


@history.command("pin")
def history_pin(ids: ConversationIds, url: Url = None) -> int:
    """Keep conversations at the top of the list, and out of `rm --older-than`."""
    from hobnob.tui import verbs

    return verbs.pin(target_of(url), ids, pinned=True)


@history.command("unpin")
def history_unpin(ids: ConversationIds, url: Url = None) -> int:
    """Put conversations back among the others."""
    from hobnob.tui import verbs

    return verbs.pin(target_of(url), ids, pinned=False)


@history.command("rm")
def history_rm(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]…", show_default=False)] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="All unchanged for 30d, 12h, 2w; pins stay."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask.")] = False,
    url: Url = None,
) -> int:
    """Delete conversations for good."""
    if not ids and older_than is None:
        raise usage("Say which conversations: their ids, or --older-than 30d.")
    if not yes and not on_terminal(2):
        raise usage("Without a terminal to ask on, deleting needs -y.")
    from hobnob.tui import verbs

    if older_than is None:
        return verbs.remove(target_of(url), ids or [], confirm=not yes)
    from hobnob.tui.options import parse_age

    age_ms = parse_age(older_than)
    return verbs.remove_old(target_of(url), ids or [], age_ms=age_ms, confirm=not yes)


@history.command("backup")
def history_backup(file: File, url: Url = None) -> int:
    """Copy the whole history into FILE, also while the server runs."""
    if file.exists() and not file.is_file():
        sentence = f"A backup goes into a file: {file} is something else."
        raise ExitError(sentence, Exit.OUTPUT, "output_failed")
    for ending in ("-wal", "-journal"):
        beside = file.with_name(f"{file.name}{ending}")
        if beside.exists() and beside.stat().st_size:  # SQLite would apply it to the copy
            sentence = f"{beside} belongs to another database: move it away, or use another name."
            raise ExitError(sentence, Exit.OUTPUT, "output_failed")
    target = target_of(url)
    if file.resolve() in {own.resolve() for own in target.paths.own_files}:
        sentence = f"{file} is one of hobnob's own files: a backup needs a name of its own."
        raise ExitError(sentence, Exit.USAGE, "usage")
    if serves(target):
        from hobnob.tui import verbs

        verbs.backup(target, file)
    else:
        from hobnob import offline

        offline.back_up(target.paths, file)
    print(f"The history was copied to {file}.", file=sys.stderr)
    return Exit.OK


@history.command("restore")
def history_restore(file: File) -> int:
    """Put a backup in the place of the history; the old one is kept beside it."""
    from hobnob import offline
    from hobnob.paths import Paths

    paths = Paths.home()
    kept = offline.restore(paths, file)
    print("The history was restored.", file=sys.stderr)
    if kept is not None:
        print(f"The one before is kept as {kept}.", file=sys.stderr)
    for line in offline.odd_rows(paths):
        print(f"It is usable, but not all of it is sound: {line}", file=sys.stderr)
    return Exit.OK
