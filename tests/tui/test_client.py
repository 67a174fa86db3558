"""The client against a server that does everything wrong, one thing at a time."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fake_server import (
    KEY,
    REPLY,
    RUN,
    STREAM_HEAD,
    Act,
    FakeServer,
    Request,
    body_of,
    chunk,
    hangs,
    hangs_up,
    http,
    refusal,
    reply_events,
    says,
    streams,
)

from hobnob import launch
from hobnob.exits import Exit
from hobnob.launch import LaunchError, Server, Target
from hobnob.paths import Paths
from hobnob.server import wire
from hobnob.server.wire import Event
from hobnob.tui import connection, follow
from hobnob.tui.client import Client
from hobnob.tui.connection import Backoff, Connection, Dropped, parse_retry_after
from hobnob.tui.follow import Follow
from hobnob.tui.notice import ClientError, Notice, NoticeKind
from hobnob.tui.records import Plan, build

EVENTS = f"/runs/{RUN}/events"
MESSAGES = "/conversations/new/messages"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays that prove nothing by being long."""
    monkeypatch.setattr(connection, "MAX_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(connection, "MAX_RETRY_AFTER_SECONDS", 0.02)
    monkeypatch.setattr("hobnob.tui.follow.POLL_SECONDS", 0.01)


def client_of(server: FakeServer, tmp_path: Path, **options: float) -> Client:
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY)
    options = {"patience_s": 2.0, "stream_patience_s": 2.0} | options
    return Client(target, **options)  # type: ignore[arg-type]


async def read(client: Client, after: int = 0) -> tuple[str, list[Event], list[Notice]]:
    events: list[Event] = []
    notices: list[Notice] = []
    async for item in client.stream(RUN, after):
        if isinstance(item, Notice):
            notices.append(item)
        else:
            events.append(item)
    text = "".join(e.payload.text for e in events if isinstance(e.payload, wire.BlockDelta))
    return text, events, notices


async def fetch(server: FakeServer, tmp_path: Path, **options: float) -> str:
    async with client_of(server, tmp_path, **options) as client:
        return (await read(client))[0]


# ---- resuming ---------------------------------------------------------------------------------


async def test_an_undisturbed_stream_is_read_in_one_connection(
    server: FakeServer, tmp_path: Path
) -> None:
    async with client_of(server, tmp_path) as client:
        text, events, notices = await read(client)
    assert text == "Hello world."
    assert [event.seq for event in events] == list(range(1, 9))
    assert notices == [] and server.resumed_from == [0]


async def test_a_cut_at_every_byte_loses_and_repeats_nothing(
    server: FakeServer, tmp_path: Path
) -> None:
    server.events = reply_events("Hé\u2028", "llo 😀", " world.")
    whole = server.stream_from(0)

    async with client_of(server, tmp_path) as client:
        for offset in range(0, len(whole), 3):
            server.scripts[EVENTS] = [says(whole[:offset])]
            text, events, _ = await read(client)
            assert text == "Hé\u2028llo 😀 world.", offset
            assert [event.seq for event in events] == list(range(1, 10)), offset


async def test_each_reconnect_asks_for_what_comes_after_the_last_event_read(
    server: FakeServer, tmp_path: Path
) -> None:
    def first(n: int) -> Act:
        async def act(request: Request, writer: asyncio.StreamWriter) -> None:
            after = int(request.headers.get("last-event-id", 0))
            body = "".join(wire.sse(event) for event in server.events[after : after + n])
            writer.write(STREAM_HEAD + chunk(body.encode()))

        return act

    server.scripts[EVENTS] = [first(2), first(1), first(3)]
    async with client_of(server, tmp_path) as client:
        text, _, notices = await read(client)
    assert text == "Hello world."
    assert server.resumed_from == [0, 2, 3, 6]
    assert [n.kind for n in notices][:2] == [NoticeKind.RECONNECTING, NoticeKind.CONNECTED]


async def test_a_stream_that_just_ends_is_not_the_end_of_the_reply(
    server: FakeServer, tmp_path: Path
) -> None:
    cut = body_of(server.events[:5])
    server.scripts[EVENTS] = [streams(cut), streams(cut, complete=False)]
    assert await fetch(server, tmp_path) == "Hello world."


async def test_events_that_are_sent_again_are_not_yielded_again(
    server: FakeServer, tmp_path: Path
) -> None:
    twice = server.body_from(0)
    server.scripts[EVENTS] = [streams(twice[: len(twice) // 2]), streams(twice)]
    async with client_of(server, tmp_path) as client:
        text, events, _ = await read(client)
    assert text == "Hello world." and len(events) == 8


async def test_a_server_that_stops_is_waited_for(server: FakeServer, tmp_path: Path) -> None:
    stopping = wire.sse(Event(None, wire.StreamError("server_stopping", "The server stops.")))
    begin = "".join(wire.sse(event) for event in server.events[:4])
    server.scripts[EVENTS] = [
        streams((begin + stopping).encode()),
        hangs_up,
        says(refusal(503, "server_stopping", Retry_After="1")),
    ]
    async with client_of(server, tmp_path) as client:
        text, _, notices = await read(client)
    assert text == "Hello world."
    assert notices[0].reason == "the server is stopping"


class LocalLine(Connection):
    """To a server that passes for the local one; notes whether it would have been started."""

    local = False  # type: ignore[assignment]

    async def revive(self, *, start: bool = True) -> bool:
        self.starts.append(start)
        return False

    async def __aenter__(self) -> LocalLine:
        await super().__aenter__()
        self.local, self.starts = True, list[bool]()
        return self


def stopping_after(server: FakeServer, events: int) -> Act:
    stop = wire.sse(Event(None, wire.StreamError("server_stopping", "The server stops.")))
    return streams(body_of(server.events[:events]) + stop.encode())


async def test_a_local_server_that_was_told_to_stop_is_waited_for_and_not_started(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts[EVENTS] = [
        stopping_after(server, 4),
        hangs_up,
        hangs_up,
        streams(body_of(server.events[4:5]), complete=False),  # somebody has started it; it dies
    ]
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY)
    async with LocalLine(target) as line:
        items = [item async for item in Follow(line, RUN).items()]
        assert [item for item in items if isinstance(item, Event)] == server.events
        assert line.starts == [False, False, False, True]


async def test_a_reader_hears_of_the_restart_also_where_another_request_found_the_new_server(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = iter(range(1, 9))
    pid = next(pids)

    def ensure(paths: Paths, **_: object) -> Server:
        return Server(pid, "127.0.0.1", 1, server.url, "0", 1, 0, "instance")

    monkeypatch.setattr(launch, "ensure", ensure)
    monkeypatch.setattr(launch, "still_serves", lambda *_: True)
    server.scripts[EVENTS] = [streams(body_of(server.events[:4]), complete=False)]
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), None, KEY)
    told: list[NoticeKind] = []
    async with Connection(target) as line:
        async for item in Follow(line, RUN).items():
            if isinstance(item, Notice):
                told.append(item.kind)
                if item.kind is NoticeKind.RECONNECTING:
                    pid = next(pids)
                    await line.revive()
    assert told == [NoticeKind.RECONNECTING, NoticeKind.RESTARTED, NoticeKind.CONNECTED]


async def test_a_local_server_that_stays_stopped_ends_the_wait_and_says_so(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "STOPPED_PATIENCE_SECONDS", 0.1)
    server.scripts[EVENTS] = [stopping_after(server, 4), *[hangs_up] * 1000]
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY)
    async with LocalLine(target) as line:
        with pytest.raises(ClientError, match="was stopped") as raised:
            async for _ in Follow(line, RUN).items():
                pass
    assert (raised.value.code, raised.value.exit_code) == ("server_stopping", Exit.TRY_LATER)


async def test_an_unknown_error_event_is_believed_when_it_comes_again_and_again(
    server: FakeServer, tmp_path: Path
) -> None:
    odd = wire.sse(Event(None, wire.StreamError("engine_failed", "It broke."))).encode()
    server.scripts[EVENTS] = [streams(odd)] * 20
    with pytest.raises(ClientError, match="It broke") as raised:
        await fetch(server, tmp_path)
    assert raised.value.exit_code is Exit.INTERNAL
    assert len(server.resumed_from) < 6


async def test_progress_events_pass_through_unnumbered(server: FakeServer, tmp_path: Path) -> None:
    server.events.insert(1, Event(None, wire.Queued(2, 1.5)))
    server.scripts[EVENTS] = [streams(body_of(server.events))]
    async with client_of(server, tmp_path) as client:
        _, events, _ = await read(client)
    assert Event(None, wire.Queued(2, 1.5)) in events


# ---- slow, silent, gone -----------------------------------------------------------------------


async def test_keep_alives_are_life_and_silence_is_not(server: FakeServer, tmp_path: Path) -> None:
    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for _ in range(8):  # together longer than the idle bound
            writer.write(chunk(b": ping\n\n"))
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.write(chunk(server.body_from(0)))

    server.scripts[EVENTS] = [slow]
    assert await fetch(server, tmp_path, idle_s=0.4) == "Hello world."
    assert len(server.resumed_from) == 1

    server.scripts[EVENTS] = [hangs]
    assert await fetch(server, tmp_path, idle_s=0.1) == "Hello world."
    assert len(server.resumed_from) == 3


async def test_a_server_that_stays_away_ends_the_wait_with_unreachable(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts[EVENTS] = [hangs_up] * 10_000
    with pytest.raises(ClientError) as raised:
        await fetch(server, tmp_path, stream_patience_s=0.1)
    assert raised.value.exit_code is Exit.UNREACHABLE


async def test_a_server_that_never_answered_is_given_up_soon(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PATIENCE_SECONDS", 0.1)
    server.scripts["/status"] = [hangs_up] * 10_000
    async with client_of(server, tmp_path, patience_s=60) as client:
        with pytest.raises(ClientError, match="cannot be reached"):
            await client.status()


# ---- the log is gone --------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [says(http(204)), says(refusal(410, "gone"))], ids=["204", "410"])
async def test_the_rest_of_a_reply_comes_from_the_store_when_its_log_is_gone(
    server: FakeServer, tmp_path: Path, ended: Act
) -> None:
    begin = body_of(server.events[:4])
    server.scripts[EVENTS] = [streams(begin), ended]
    async with client_of(server, tmp_path) as client:
        text, events, notices = await read(client)
    assert text == "Hello world."
    assert isinstance(events[-1].payload, wire.MessageStop)
    assert events[-1].payload.status == wire.Status.COMPLETED
    assert notices[-1].kind is NoticeKind.STORED


async def test_a_pruned_run_is_read_whole_from_the_store(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts[EVENTS] = [says(refusal(410, "gone"))]
    async with client_of(server, tmp_path) as client:
        text, events, _ = await read(client)
    assert text == "Hello world."
    kinds = [type(event.payload) for event in events]
    assert kinds[:2] == [wire.BlockStart, wire.BlockDelta]


async def test_a_stored_text_that_contradicts_what_was_shown_is_an_error(
    server: FakeServer, tmp_path: Path
) -> None:
    server.text = "Something else."
    begin = body_of(server.events[:4])
    server.scripts[EVENTS] = [streams(begin), says(http(204))]
    with pytest.raises(ClientError) as raised:
        await fetch(server, tmp_path)
    assert raised.value.code == "gone"


async def test_a_hole_in_the_log_is_filled_from_the_store(
    server: FakeServer, tmp_path: Path
) -> None:
    del server.events[3]
    server.text = "Hello world."
    assert await fetch(server, tmp_path) == "Hello world."


# ---- odd servers (C100) -----------------------------------------------------------------------


def delta(text: str) -> str:
    return json.dumps({"index": 0, "text": text})


@pytest.mark.parametrize(
    "body",
    [
        b"event: nonsense\ndata: {}\n\n",
        b"event: content_block_delta\n\n",
        b": ping\n\n: ping\n\n",
        b"\xef\xbb\xbf",
        b"data: [DONE]\n\n",
        b'id: 0\nevent: content_block_delta\ndata: {"index":0,"text":"old"}\n\n',
        b"event: queued\ndata: null\n\n",
    ],
)
async def test_what_is_not_understood_is_skipped(
    server: FakeServer, tmp_path: Path, body: bytes
) -> None:
    server.scripts[EVENTS] = [streams(body + server.body_from(0))]
    assert await fetch(server, tmp_path) == "Hello world."
    assert len(server.resumed_from) == 1


async def test_crlf_and_data_without_a_space_are_read(server: FakeServer, tmp_path: Path) -> None:
    body = server.body_from(0).replace(b"data: ", b"data:").replace(b"\n", b"\r\n")
    server.scripts[EVENTS] = [streams(body)]
    assert await fetch(server, tmp_path) == "Hello world."


@pytest.mark.parametrize(
    "answer",
    [
        http(200, b"<html>hello</html>", Content_Type="text/html"),
        http(200, b'{"text": "hello"}'),
        http(200, gzip.compress(b"x" * 100_000), Content_Encoding="gzip"),
        http(404, b"<html>no</html>", Content_Type="text/html"),
    ],
    ids=["html", "json", "gzip", "404 page"],
)
async def test_what_is_no_event_stream_is_one_clear_error(
    server: FakeServer, tmp_path: Path, answer: bytes
) -> None:
    server.scripts[EVENTS] = [says(answer)]
    with pytest.raises(ClientError, match="not a hobnob server") as raised:
        await fetch(server, tmp_path)
    assert raised.value.exit_code is Exit.UNREACHABLE


async def test_an_event_without_end_is_refused(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while True:
            writer.write(chunk(b"data: " + b"x" * 1_000_000))
            await writer.drain()

    server.scripts[EVENTS] = [endless]
    with pytest.raises(ClientError, match="absurd size"):
        await fetch(server, tmp_path)


async def test_an_answer_without_end_is_refused(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 10_000)
    server.scripts["/status"] = [says(http(200, b" " * 20_000))]
    async with client_of(server, tmp_path) as client:
        with pytest.raises(ClientError, match="too large"):
            await client.status()


async def test_a_content_length_that_is_too_short_is_one_clear_error(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts["/status"] = [says(http(200, b'{"server": {}}', Content_Length="5"))]
    async with client_of(server, tmp_path) as client:
        with pytest.raises(ClientError) as raised:
            await client.status()
    assert raised.value.exit_code is Exit.UNREACHABLE


@pytest.mark.parametrize("how", ["stops", "dies"])
async def test_no_key_is_sent_to_whoever_has_the_address_of_a_local_server_that_is_gone(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    paths = Paths.home({"HOBNOB_HOME": str(tmp_path)})
    paths.make()
    mortal = subprocess.Popen(["sleep", "60"])
    state = {"pid": mortal.pid, "host": server.host, "port": server.port, "url": server.url}
    state |= {"version": "0", "wire": wire.WIRE_VERSION, "started_at": 1, "instance": "fake"}
    paths.state_file.write_text(json.dumps(state))
    named = launch._read_state(paths.state_file)
    monkeypatch.setattr(launch, "find", lambda _: named)
    try:
        target = Target(paths, None, KEY)
        async with Client(target, start=False, patience_s=0.2) as client:
            await client.status()
            known = len(server.requests)
            if how == "stops":
                paths.state_file.unlink()
            else:
                mortal.kill()
                mortal.wait()
            with pytest.raises(ClientError):
                await client.status()
            sent = server.requests[known:]
            assert [one.path for one in sent if "authorization" in one.headers] == []
    finally:
        mortal.kill()
        mortal.wait()


async def test_the_key_does_not_follow_a_redirect(server: FakeServer, tmp_path: Path) -> None:
    async with FakeServer().running() as elsewhere:
        server.scripts["/status"] = [says(http(302, Location=elsewhere.url))]
        async with client_of(server, tmp_path) as client:
            with pytest.raises(ClientError, match="redirects"):
                await client.status()
        assert elsewhere.requests == []


# ---- requests ---------------------------------------------------------------------------------


async def test_a_message_that_is_posted_again_has_the_same_key(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts[MESSAGES] = [
        hangs_up,
        says(refusal(503, "server_overloaded", Retry_After="3600")),
        says(http(529)),
    ]
    notices: list[Notice] = []
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY)
    async with Client(target, on_notice=notices.append) as client:
        turn = await client.send(None, "hi", options={"seed": 1}, system="Be brief.")
    posts = server.asked("POST", MESSAGES)
    assert turn.run.id == RUN and turn.reply.id == REPLY
    assert len(posts) == 4 and len({post.headers["idempotency-key"] for post in posts}) == 1
    assert posts[0].json == {"text": "hi", "options": {"seed": 1}, "system": "Be brief."}
    assert [notice.kind for notice in notices] == [
        NoticeKind.RECONNECTING,
        NoticeKind.BUSY,
        NoticeKind.BUSY,
    ]


async def test_a_reply_is_gone_on_with_under_a_key(server: FakeServer, tmp_path: Path) -> None:
    async with client_of(server, tmp_path) as client:
        turn = await client.go_on("abcd", "r1")
    (asked,) = server.asked("POST", "/conversations/abcd/replies")
    assert asked.json == {"continue": "r1"}
    assert asked.headers["idempotency-key"]
    assert turn.run.id == RUN


async def test_two_messages_have_two_keys(server: FakeServer, tmp_path: Path) -> None:
    async with client_of(server, tmp_path) as client:
        await client.send(None, "one")
        await client.send(None, "two")
    keys = {post.headers["idempotency-key"] for post in server.asked("POST", MESSAGES)}
    assert len(keys) == 2


async def test_a_refusal_is_not_tried_again(server: FakeServer, tmp_path: Path) -> None:
    server.scripts[MESSAGES] = [says(refusal(400, "context_length_exceeded", "Too long."))]
    async with client_of(server, tmp_path) as client:
        with pytest.raises(ClientError, match="Too long") as raised:
            await client.send(None, "hi")
    assert (raised.value.status, raised.value.exit_code) == (400, Exit.USAGE)
    assert len(server.asked("POST", MESSAGES)) == 1


async def test_a_request_that_would_act_twice_is_not_sent_twice(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts["/conversations"] = [hangs_up]
    async with client_of(server, tmp_path) as client:
        with pytest.raises(ClientError, match="cannot be reached"):
            await client.create_conversation(title="x")
    assert len(server.asked("POST", "/conversations")) == 1


async def test_waiting_for_a_busy_server_can_be_cancelled_at_once(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_RETRY_AFTER_SECONDS", 20.0)
    server.scripts[MESSAGES] = [says(refusal(503, "server_overloaded", Retry_After="15"))]
    began = time.monotonic()
    async with client_of(server, tmp_path, patience_s=60) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.send(None, "hi"), 0.2)
    assert time.monotonic() - began < 10


async def test_a_lone_surrogate_reaches_the_server_as_its_escape(
    server: FakeServer, tmp_path: Path
) -> None:
    async with client_of(server, tmp_path) as client:
        await client.send(None, "half \ud83d emoji")
    assert b"half \\ud83d emoji" in server.asked("POST", MESSAGES)[0].body


async def test_a_wrong_key_is_said_and_exits_as_such(server: FakeServer, tmp_path: Path) -> None:
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, "wrong")
    async with Client(target) as client:
        with pytest.raises(ClientError) as raised:
            await client.status()
    assert raised.value.exit_code is Exit.KEY


@pytest.mark.parametrize(
    "name", ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"]
)
@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5h://127.0.0.1:9", "socks://x"])
async def test_loopback_never_goes_through_a_proxy(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, proxy: str
) -> None:
    monkeypatch.setenv(name, proxy)
    monkeypatch.setenv("NO_PROXY", "[::1],bad entry")
    assert await fetch(server, tmp_path) == "Hello world."


async def test_a_proxy_that_cannot_be_used_is_one_clear_error_for_a_remote_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9")
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), "http://192.0.2.1", KEY)
    with pytest.raises(ClientError, match="proxy settings"):
        async with Client(target):
            pass


def _errors(base: type[httpx.TransportError]) -> list[type[httpx.TransportError]]:
    return [base, *(one for sub in base.__subclasses__() for one in _errors(sub))]


@pytest.mark.parametrize("kind", _errors(httpx.TransportError))
async def test_every_transport_error_means_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[httpx.TransportError]
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise kind("no")

    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), "http://127.0.0.1:1", KEY)
    async with Connection(target) as line:
        monkeypatch.setattr(httpx.AsyncClient, "stream", fail)
        with pytest.raises(Dropped):
            async with line.stream("/x", {}):
                pass


# ---- waiting ----------------------------------------------------------------------------------


def test_delays_grow_stay_bounded_and_end() -> None:
    now = [0.0]
    waits = Backoff(10.0, clock=lambda: now[0])
    delays: list[float] = []
    while (delay := waits.next()) is not None:
        delays.append(delay)
        now[0] += delay + 0.01
    assert 0.05 <= sum(delays) <= 10.0 and len(delays) > 3
    waits.reset()
    assert waits.next() is not None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0.0), ("7", 7.0), ("-1", None), ("soon", None), (None, None), ("9" * 400, 999999999.0)],
)
def test_retry_after_is_seconds_or_nothing(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value) == seconds


def test_a_server_cannot_make_us_wait_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_RETRY_AFTER_SECONDS", 20.0)
    assert Backoff(60.0).next(3600.0) == 20.0


async def test_who_was_told_that_the_local_server_starts_is_told_when_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(1, "127.0.0.1", 1, "http://127.0.0.1:1", "0", 1, 0, "i")

    def ensure(*_: object, progress: Callable[[str], None], **__: object) -> Server:
        progress("Starting the server.")
        return server

    monkeypatch.setattr(launch, "ensure", ensure)
    monkeypatch.setattr(launch, "read_key", lambda paths: "key")
    heard: list[NoticeKind] = []
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}))
    async with Connection(target, on_notice=lambda notice: heard.append(notice.kind)):
        assert heard == [NoticeKind.STARTING, NoticeKind.CONNECTED]


# ---- a glance ---------------------------------------------------------------------------------


async def test_a_glance_is_tried_once_tells_nobody_and_starts_no_server(
    server: FakeServer, tmp_path: Path
) -> None:
    server.scripts["/status"] = [hangs_up, says(refusal(503, "server_overloaded", Retry_After="1"))]
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY)
    notices: list[Notice] = []
    async with LocalLine(target, on_notice=notices.append) as line:
        for code in ("unreachable", "server_overloaded"):
            with pytest.raises(ClientError) as error:
                await line.json("GET", "/status", once=True)
            assert error.value.code == code
        assert line.starts == [False] and notices == []
        assert isinstance(await line.json("GET", "/status", once=True), dict)
    asked = [request for request in server.requests if request.path == "/status"]
    assert len(asked) == 3


async def test_a_glance_is_the_status(server: FakeServer, tmp_path: Path) -> None:
    async with client_of(server, tmp_path) as client:
        assert await client.glance() == await client.status()


# ---- plans and counts -------------------------------------------------------------------------


async def test_a_plan_is_asked_with_what_the_message_would_be_sent_with(
    server: FakeServer, tmp_path: Path
) -> None:
    plan = {"text_tokens": 2, "prompt_tokens": 9, "cached_tokens": None, "n_ctx": 64, "later": 1}
    server.scripts["/conversations/new/plan"] = [says(http(200, json.dumps(plan).encode()))]
    server.scripts["/conversations/c1/plan"] = [says(http(200, json.dumps(plan).encode()))]
    server.scripts["/count"] = [says(http(200, b'{"tokens": 5}'))]
    async with client_of(server, tmp_path) as client:
        made = await client.plan(None, "hi", system="S", options={"seed": 1})
        await client.plan("c1", "hi", parent="m1")
        assert await client.count("x" * 100_000) == 5
    assert build(Plan, made) == Plan(2, 9, None, 64)
    new, old, counted = server.requests[-3:]
    assert new.json == {"text": "hi", "system": "S", "options": {"seed": 1}}
    assert old.json == {"text": "hi", "parent": "m1"}
    assert counted.method == "POST" and len(counted.json["text"]) == 100_000


# ---- another model ----------------------------------------------------------------------------


async def test_another_model_is_a_server_started_again_with_it(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    found = Server(1, "127.0.0.1", 1, server.url, "0", 1, 0, "instance")
    monkeypatch.setattr(launch, "stop", lambda paths, *, restarting: done.append(restarting))
    monkeypatch.setattr(launch, "ensure", lambda paths, *, args, **_: done.append(args) or found)
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), None, KEY)
    notices: list[Notice] = []
    async with Connection(target, server_args=["--model", "a"], on_notice=notices.append) as line:
        await line.restart(["--model", "b"])
        await line.revive()
        assert done == [["--model", "a"], True, ["--model", "b"], ["--model", "b"]]
        assert [notice.kind for notice in notices] == [NoticeKind.RESTARTED]

        def fails(paths: Paths, *, args: list[str], **_: object) -> Server:
            raise LaunchError("The server did not start.")

        monkeypatch.setattr(launch, "ensure", fails)
        with pytest.raises(ClientError, match="did not start"):
            await line.restart(["--model", "broken"])
        monkeypatch.setattr(
            launch, "ensure", lambda paths, *, args, **_: done.append(args) or found
        )
        await line.revive()
        assert done[-1] == ["--model", "b"], "the one before, not the one that did not start"


async def test_a_server_elsewhere_is_not_started_again(server: FakeServer, tmp_path: Path) -> None:
    target = Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, KEY)
    async with Connection(target) as line:
        with pytest.raises(ClientError, match="not started from here"):
            await line.restart(["--model", "b"])


async def test_a_key_that_another_server_does_not_take_is_said_as_the_command_line_says_it(
    server: FakeServer, tmp_path: Path
) -> None:
    client = Client(Target(Paths.home({"HOBNOB_HOME": str(tmp_path)}), server.url, "not-the-key"))
    async with client:
        with pytest.raises(ClientError) as raised:
            await client.conversations()
    assert raised.value.code == "unauthorized"
    assert raised.value.message == (
        f"The server at {server.url} needs another key: put it in HOBNOB_KEY "
        "(`hobnob key` on its machine prints it)."
    )
