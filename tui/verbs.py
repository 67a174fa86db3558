"""The short commands: ask the server once, print what it says as text or as JSON.

Text is for people and may change; the JSON is a contract (docs/scripting.md).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar

from hobnob.exits import Exit, ExitError
from hobnob.launch import Target
from hobnob.tui import exchange, here, meant
from hobnob.tui.client import Client
from hobnob.tui.moment import moment
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.options import model_argument, require_model
from hobnob.tui.plain import Notes, Output, print_json
from hobnob.tui.question import Question
from hobnob.tui.records import Conversation, Hit, Message
from hobnob.tui.whole_file import replacing

T = TypeVar("T")

SHORT_ID = 8
PAGE = 500
"""Conversations asked for at once where all are wanted: the most that the server gives."""

SHOWN_BEFORE_DELETING = 20

_NONE_SO_OLD = "No conversation is as old as that"
_SPEAKERS = {"user": "You", "assistant": "Assistant"}
_MARKS = str.maketrans("", "", "\x02\x03")


def status(target: Target, *, as_json: bool) -> Exit:
    found = once(target, Client.status, start=False)
    if as_json:
        print_json(found)
    else:
        _print("\n".join(_status_lines(found)))
    return Exit.OK


def models(target: Target, *, as_json: bool) -> Exit:
    found = once(target, Client.models)
    if as_json:
        print_json(found)
    else:
        _print("\n".join(_model_line(one) for one in found))
    return Exit.OK


def list_conversations(target: Target, *, limit: int, pinned: bool, as_json: bool) -> Exit:
    wanted = True if pinned else None
    found = once(target, lambda client: client.conversations(limit=limit, pinned=wanted))
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        _print("\n".join(conversation_line(one) for one in found))
    return Exit.OK


def show(target: Target, id: str, *, as_json: bool) -> Exit:
    branch = once(target, lambda client: client.branch(id))
    if as_json:
        messages = [asdict(one) for one in branch.messages]
        print_json({**asdict(branch.conversation), "messages": messages})
    else:
        _print("\n\n".join(_message_text(one) for one in branch.messages))
    return Exit.OK


def count(target: Target, question: Question) -> Exit:
    """What `ask` would send, without sending it."""
    if question.model is not None:
        check_model(target, question.model)

    async def work(client: Client) -> dict[str, Any]:
        place = await meant.place(client, question, target.paths.terminals_dir)
        return await client.plan(
            place.conversation,
            question.prompt,
            parent=place.parent,
            options=question.sent_options,
            system=question.system,
            history=question.history,
        )

    found = once(target, work, model=question.model)
    if question.as_json:
        print_json(found)
    else:
        _print("\n".join(_plan_lines(found)))
    return Exit.OK


def newest(target: Target, model: str | None = None) -> str:
    """The id of the conversation that this terminal talked in last, or that changed last. Raises
    ClientError if there is none. A server that has to be started for it gets the model."""
    return once(target, lambda c: here.newest(c, target.paths.terminals_dir), model=model)


def check_model(target: Target, wanted: str) -> None:
    """Raises ClientError if a server runs already and has another model."""
    try:
        found = once(target, Client.status, start=False)
    except ClientError as error:
        if error.code in ("not_running", "unreachable"):
            return  # it will be started with this model
        raise
    require_model(found.get("model") or {}, wanted)


def model_in_use(target: Target) -> Path | None:
    """The file that a running server answers with; None where none runs."""
    try:
        found = once(target, Client.status, start=False)
    except ClientError as error:
        if error.code in ("not_running", "unreachable"):
            return None
        raise
    path = _part(found, "model").get("path")
    return Path(path) if isinstance(path, str) and path else None


def search(target: Target, query: str, *, limit: int, as_json: bool) -> Exit:
    hits = once(target, lambda client: client.search(query, limit=limit))
    if as_json:
        print_json([asdict(one) | {"snippet": one.snippet.translate(_MARKS)} for one in hits])
    else:
        _print("\n".join(_hit_line(one) for one in hits))
    return Exit.OK


def remove(target: Target, ids: Sequence[str], *, confirm: bool) -> Exit:
    async def work(client: Client) -> None:
        # All are looked up before any is deleted: a wrong id deletes nothing.
        found = [await client.conversation(id) for id in ids]
        for one in found:
            if not confirm or await asyncio.to_thread(_confirmed, one):
                await client.delete_conversation(one.id)

    once(target, work)
    return Exit.OK


def remove_old(target: Target, ids: Sequence[str], *, age_ms: int, confirm: bool) -> Exit:
    """Those named, and all that nobody has changed for so long but the pinned ones."""
    notes = Notes()

    async def work(client: Client) -> None:
        named = [await client.conversation(id) for id in ids]
        since = time.time() * 1000 - age_ms
        old = [one for one in await every_conversation(client) if one.updated_at < since]
        free = [one for one in old if not one.pinned]
        chosen = list({one.id: one for one in [*named, *free]}.values())
        spared = [one for one in old if one.pinned and one not in named]
        if spared:
            notes.say(f"Pinned, and therefore kept: {_number(spared)}")
        if not chosen:
            notes.say("No other conversation is as old as that" if spared else _NONE_SO_OLD)
            return
        for line in _lines_of(chosen):
            notes.say(line)
        if confirm and not await asyncio.to_thread(agreed, f"Delete {_number(chosen)} for good?"):
            return
        for one in chosen:
            with _passing_over_deleted(True):
                await client.delete_conversation(one.id)
        notes.say(f"Deleted: {_number(chosen)}")

    once(target, work)
    return Exit.OK


def pin(target: Target, ids: Sequence[str], *, pinned: bool) -> Exit:
    async def work(client: Client) -> None:
        # All are looked up before any is changed: a wrong id changes nothing.
        for one in [await client.conversation(id) for id in ids]:
            if one.pinned != pinned:
                await client.update_conversation(one.id, pinned=pinned)

    once(target, work)
    return Exit.OK


def rename(target: Target, id: str, title: str) -> Exit:
    async def work(client: Client) -> None:
        found = await client.conversation(id)
        await client.update_conversation(found.id, title=title)

    once(target, work)
    return Exit.OK


def export(
    target: Target,
    ids: Sequence[str] | None,
    *,
    form: Literal["markdown", "json", "html"],
    branches: bool,
    file: Path | None,
) -> Exit:
    """The conversations, or with None all of them, on stdout or in a file."""
    writer: exchange.Writer
    if form == "html":
        from hobnob.tui.web_page import WebPage  # markdown-it and Pygments, for this alone

        writer = WebPage(every=branches)
    else:
        writer = exchange.Json() if form == "json" else exchange.Markdown(branches=branches)

    async def work(client: Client) -> None:
        if ids is None:
            chosen = [one.id for one in await every_conversation(client)]
        else:  # all are looked up before any is written
            chosen = [(await client.conversation(id)).id for id in ids]
        with _output(file) as output:
            output.write_now(writer.begin())
            for id in dict.fromkeys(chosen):
                with _passing_over_deleted(ids is None):
                    output.write_now(writer.conversation(await client.tree(id)))
            output.write_now(writer.end())

    once(target, work)
    return Exit.OK


def backup(target: Target, file: Path) -> Exit:
    """One file, in its place when it is complete; replaces an earlier one."""
    if target.url is None and _is_same(file, target.paths.database):
        raise ExitError("A backup cannot go into the database itself.", Exit.USAGE, "usage")
    with replacing(file, "The backup") as out:
        once(target, lambda client: client.backup(out.write), start=False)
    return Exit.OK


def problems(target: Target) -> list[str]:
    """What is wrong with the server's database, a sentence each."""
    return once(target, Client.check, start=False)


def once(
    target: Target,
    work: Callable[[Client], Awaitable[T]],
    *,
    start: bool = True,
    model: str | None = None,
) -> T:
    notes = Notes()
    args = [] if model is None else ["--model", model_argument(model)]

    def heard(notice: Notice) -> None:
        if notice.kind is not NoticeKind.CONNECTED:
            notes.say(notice.reason)

    async def run() -> T:
        async with Client(target, start=start, server_args=args, on_notice=heard) as client:
            return await work(client)

    return asyncio.run(run())


async def every_conversation(client: Client) -> list[Conversation]:
    """Newest change first."""
    found: list[Conversation] = []
    while True:
        before = found[-1].change if found else None
        page = await client.conversations(limit=PAGE, before=before)
        found += page
        if len(page) < PAGE:
            return found


@contextmanager
def _passing_over_deleted(allowed: bool) -> Iterator[None]:
    """Whoever asks for all conversations does not miss one that was deleted meanwhile."""
    try:
        yield
    except ClientError as error:
        if not (allowed and error.code == "not_found"):
            raise


@contextmanager
def _output(file: Path | None) -> Iterator[Output]:
    if file is None or str(file) == "-":
        yield Output.stdout()
    else:
        with replacing(file, "The export") as out:
            yield Output(out.fileno(), terminal=out.isatty())


def _is_same(file: Path, other: Path) -> bool:
    try:
        return file.samefile(other)
    except OSError:
        return False  # one of them is not there


def _print(text: str) -> None:
    if text:
        output = Output.stdout()
        output.write_now(text)
        output.end_now()


def _confirmed(conversation: Conversation) -> bool:
    return agreed(f"Delete {conversation_line(conversation)}?")


def agreed(question: str) -> bool:
    Notes().question(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# ---- text -------------------------------------------------------------------------------------


def conversation_line(one: Conversation) -> str:
    when = _time(one.updated_at)
    mark = "  (pinned)" if one.pinned else ""
    return f"{one.id[:SHORT_ID]}  {when}  {_flat(one.title) or '(no title)'}{mark}"


def _lines_of(some: Sequence[Conversation]) -> list[str]:
    """Not more than one looks at before saying yes."""
    lines = [conversation_line(one) for one in some[:SHOWN_BEFORE_DELETING]]
    more = len(some) - len(lines)
    return [*lines, f"and {more} more"] if more else lines


def _number(some: Sequence[Conversation]) -> str:
    return "1 conversation" if len(some) == 1 else f"{len(some)} conversations"


def _message_text(one: Message) -> str:
    speaker = _SPEAKERS.get(one.role, one.role)
    mark = "" if one.status == "completed" else f" ({one.status}{_run_hint(one)})"
    return f"{speaker}{mark}:\n{one.text}"


def _run_hint(one: Message) -> str:
    return f", run {one.run}" if one.status in ("queued", "running") and one.run else ""


def _hit_line(one: Hit) -> str:
    snippet = _flat(one.snippet.replace("\x02", "[").replace("\x03", "]"))
    return f"{one.conversation[:SHORT_ID]}  {_flat(one.title)}: {snippet}"


def _model_line(one: dict[str, Any]) -> str:
    problem = one.get("problem")
    mark = "!" if problem else "*" if one.get("loaded") or one.get("current") else " "
    line = (
        f"{mark} {_flat(str(one.get('id', '')))}  {_size(one.get('size'))}  {one.get('path', '')}"
    )
    return f"{line}  (cannot be loaded: {_flat(str(problem))})" if problem else line


def _status_lines(found: dict[str, Any]) -> list[str]:
    server, engine, model = (_part(found, name) for name in ("server", "engine", "model"))
    sequences, cells = _part(found, "sequences"), _part(found, "cells")
    speed, kept = _part(found, "throughput"), _part(found, "snapshots")
    lines = [
        f"server      {server.get('url')}, pid {server.get('pid')}, "
        f"hobnob {server.get('version')}, up {float(server.get('uptime_s') or 0):.0f} s",
        f"engine      {engine.get('state')}, pid {engine.get('pid')}, "
        f"restarted {engine.get('restarts')} times",
        f"model       {model.get('id')}, window {model.get('n_ctx')} tokens, {model.get('path')}",
        f"sequences   {sequences.get('running')} running, {sequences.get('waiting')} waiting, "
        f"{sequences.get('max')} at most",
        f"cells       {cells.get('used')} used, {cells.get('cached')} cached, "
        f"{cells.get('total')} in all",
        f"throughput  {speed.get('prefill_tps')} tokens/s read, "
        f"{speed.get('decode_tps')} tokens/s written",
        f"snapshots   {_megabytes(kept.get('ram_bytes'))} in memory, "
        f"{_megabytes(kept.get('disk_bytes'))} on disk, "
        f"{kept.get('restored_tokens') or 0} tokens not read again",
    ]
    guesses = _part(found, "speculation")
    if drafted := int(guesses.get("drafted") or 0):
        accepted = int(guesses.get("accepted") or 0)
        share = f"{accepted / drafted:.0%}"
        lines.append(f"guesses     {accepted} of {drafted} tokens right ({share})")
    memory, video = _part(found, "memory"), _part(found, "video")
    lines.append(
        f"memory      {_megabytes(memory.get('engine_bytes'))} the engine, "
        f"{_megabytes(memory.get('server_bytes'))} the server, "
        f"{_megabytes(memory.get('available_bytes'))} free"
    )
    if video:
        lines.append(
            f"video       {_megabytes(video.get('free_bytes'))} free of "
            f"{_megabytes(video.get('total_bytes'))}"
        )
    failure = engine.get("failure")
    if isinstance(failure, dict):
        lines.append(f"failure     {failure.get('message')}")
    capacity = found.get("capacity")
    if isinstance(capacity, list):
        lines += [f"capacity    {line}" for line in capacity]
    return lines


def _plan_lines(found: dict[str, Any]) -> list[str]:
    tokens, window = int(found["prompt_tokens"]), int(found["n_ctx"])
    lines = [
        f"prompt    {tokens} tokens in {_messages(int(found['included']))}",
        f"window    {window} tokens, {window - tokens} left for the reply",
    ]
    if found["left_out"]:
        lines.append(f"left out  the oldest {_messages(len(found['left_out']))}")
    return lines


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"


def _part(found: dict[str, Any], name: str) -> dict[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _megabytes(size: object) -> str:
    return f"{size / 2**20:.0f} MB" if isinstance(size, int) else "0 MB"


def _size(size: object) -> str:
    return f"{size / 1e9:.2f} GB" if isinstance(size, int) else ""


def _time(milliseconds: int) -> str:
    when = moment(milliseconds)
    return when.isoformat(" ", "minutes") if when else "????-??-?? ??:??"


def _flat(text: str) -> str:
    return " ".join(text.split())
