"""What the server does at this moment, in words: the rows of the panel. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hobnob.tui.clean import one_line
from hobnob.tui.transcript import Entry
from hobnob.tui.words import count, duration, state

OLD_SECONDS = 3.0
"""An answer older than this is said to be."""

BAR_CELLS = 20


class Row(NamedTuple):
    name: str
    words: str
    filled: float | None = None
    """Of a bar under it, 0 to 1."""


class Section(NamedTuple):
    title: str
    rows: list[Row]


def sections(
    status: Mapping[str, Any] | None,
    *,
    reply: Entry | None,
    connection: str,
    trouble: str = "",
    age_s: float = 0.0,
) -> list[Section]:
    """`status` as the server told it `age_s` ago, None before it has; `trouble`: why the last
    question had no answer; `connection`: what the client is doing about it."""
    found = [Section("This reply", _reply(reply))] if reply is not None else []
    found.append(Section("Connection", _connection(status, connection, trouble, age_s)))
    if status is not None:
        found += [
            Section("Model", _model(status)),
            Section("Work", _work(status)),
            Section("Context cells", _cells(_part(status, "cells"))),
            Section("Memory", _memory(status)),
            Section("Kept conversations", _kept(_part(status, "snapshots"))),
        ]
    return [section for section in found if section.rows]


def _reply(reply: Entry) -> list[Row]:
    words = state(reply) or "writing"
    rows = [Row("", words)]
    if reply.prefill is not None and reply.prefill.total and not reply.chars:
        rows = [Row("", words, reply.prefill.done / reply.prefill.total)]
    if reply.context is not None:
        context = reply.context
        rows.append(
            Row("prompt", f"{count(context.prompt_tokens)} of {count(context.n_ctx)} tokens")
        )
        if context.left_out:
            rows.append(Row("left out", _number(len(context.left_out), "message")))
    if reply.prefill is not None and reply.prefill.cached:
        rows.append(Row("cached", f"{count(reply.prefill.cached)} tokens"))
    return rows


def _connection(
    status: Mapping[str, Any] | None, connection: str, trouble: str, age_s: float
) -> list[Row]:
    rows = []
    if connection:
        rows.append(Row("", one_line(connection)))
    if trouble:
        rows.append(Row("", one_line(trouble)))
    if status is None:
        return rows or [Row("", "asking the server…")]
    server = _part(status, "server")
    if age_s >= OLD_SECONDS:
        rows.append(Row("", f"what follows is {duration(age_s)} old"))
    elif not rows:
        rows.append(Row("", "connected"))
    rows.append(Row("server", one_line(str(server.get("url", "")))))
    uptime = server.get("uptime_s")
    if isinstance(uptime, int | float):
        rows.append(Row("up for", duration(uptime)))
    if server.get("stopping"):
        rows.append(Row("", "it is stopping"))
    return rows


def _model(status: Mapping[str, Any]) -> list[Row]:
    model, engine = _part(status, "model"), _part(status, "engine")
    rows = [Row("", one_line(str(model.get("id") or "none")))]
    word = str(engine.get("state", ""))
    done = engine.get("load_done")
    if word == "loading" and isinstance(done, int | float):
        rows.append(Row("engine", f"loading, {done:.0%}", float(done)))
    elif word:
        rows.append(Row("engine", word))
    failure = _part(engine, "failure").get("message")
    if failure:
        rows.append(Row("", one_line(str(failure))))
    layers, device = model.get("gpu_layers"), model.get("device")
    if device:
        rows.append(Row("on", f"{device}, {layers} layers" if layers else str(device)))
    if model.get("n_ctx"):
        rows.append(Row("window", f"{count(int(model['n_ctx']))} tokens"))
    if engine.get("restarts"):
        rows.append(Row("restarted", _number(int(engine["restarts"]), "time")))
    return rows


def _work(status: Mapping[str, Any]) -> list[Row]:
    sequences, speed = _part(status, "sequences"), _part(status, "throughput")
    running, most = _int(sequences, "running"), _int(sequences, "max")
    rows = [Row("running", f"{running} of {most}" if most else str(running))]
    rows.append(Row("waiting", str(_int(sequences, "waiting"))))
    rows.append(Row("reading", f"{float(speed.get('prefill_tps') or 0):.0f} tokens/s"))
    rows.append(Row("writing", f"{float(speed.get('decode_tps') or 0):.1f} tokens/s"))
    if _part(status, "runs").get("saving") is False:
        rows.append(Row("", "replies are not being saved"))
    return rows


def _cells(cells: Mapping[str, Any]) -> list[Row]:
    used, cached, total = (_int(cells, name) for name in ("used", "cached", "total"))
    if not total:
        return []
    return [
        Row("used", f"{count(used)} of {count(total)}", used / total),
        Row("cached", f"{count(cached)} of these"),
    ]


def _memory(status: Mapping[str, Any]) -> list[Row]:
    memory, video = _part(status, "memory"), _part(status, "video")
    rows = []
    for name, words in (("engine", "engine_bytes"), ("server", "server_bytes")):
        if isinstance(memory.get(words), int):
            rows.append(Row(name, size(memory[words])))
    if isinstance(memory.get("available_bytes"), int):
        rows.append(Row("free", size(memory["available_bytes"])))
    total = _int(video, "total_bytes")
    if total:
        used = total - _int(video, "free_bytes")
        rows.append(Row("video", f"{size(used)} of {size(total)}", used / total))
    return rows


def _kept(kept: Mapping[str, Any]) -> list[Row]:
    rows = []
    for name, used, most in (
        ("in RAM", "ram_bytes", "ram_max"),
        ("on disk", "disk_bytes", "disk_max"),
    ):
        budget = _int(kept, most)
        if budget:
            share = _int(kept, used) / budget
            rows.append(Row(name, f"{size(_int(kept, used))} of {size(budget)}", share))
    if kept.get("restored_tokens"):
        rows.append(Row("not read again", f"{count(_int(kept, 'restored_tokens'))} tokens"))
    return rows


def size(number: int) -> str:
    """Bytes for a person."""
    if number >= 10 * 2**30:
        return f"{number / 2**30:.0f} GB"
    if number >= 2**30:
        return f"{number / 2**30:.1f} GB"
    return f"{number / 2**20:.0f} MB"


def bar(filled: float) -> str:
    full = round(max(0.0, min(1.0, filled)) * BAR_CELLS)
    return "━" * full + "─" * (BAR_CELLS - full)


def _number(n: int, word: str) -> str:
    return f"1 {word}" if n == 1 else f"{count(n)} {word}s"


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}


def _int(part: Mapping[str, Any], name: str) -> int:
    value = part.get(name)
    return int(value) if isinstance(value, int | float) else 0
