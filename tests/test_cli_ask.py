"""`hobnob ask` with a form, a past, a name and a place: what is sent, and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, http, refusal, reply_events, says
from support_cli import Cli

from hobnob.exits import Exit
from hobnob.server import wire

MESSAGES = "/conversations/new/messages"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PAST = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
SENT_PAST = [{"role": one["role"], "text": one["content"]} for one in PAST]
LAST = {"role": "user", "content": "sure?"}


def sent(server: FakeServer, path: str = MESSAGES) -> dict[str, Any]:
    return dict(server.asked("POST", path)[-1].json)


# ---- a schema ---------------------------------------------------------------------------------


async def test_a_schema_travels_with_the_options_as_the_api_has_it(
    server: FakeServer, hobnob: Cli
) -> None:
    server.events = reply_events('{"a":', " 1}")
    result = await hobnob.run("ask", "--schema", json.dumps(SCHEMA), "-o", "seed", "1", "hi")
    assert (result.code, result.out, result.err) == (0, b'{"a": 1}\n', "")
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA}}
    assert sent(server)["options"] == {"seed": 1, "response_format": form}
    await hobnob.run("ask", "--schema", "a int", "hi")
    form = sent(server)["options"]["response_format"]
    assert form["json_schema"]["schema"]["required"] == ["a"]


@pytest.mark.parametrize(
    ("events", "arguments", "code"),
    [
        (reply_events('{"a": 1', status=wire.Status.LENGTH), [], Exit.SCHEMA),
        (
            reply_events('{"a": 1', status=wire.Status.LENGTH),
            ["--fail-on-truncation"],
            Exit.TRUNCATED,
        ),
        (reply_events('{"a": 1}', status=wire.Status.LENGTH), [], Exit.OK),
        (reply_events('{"a": 1'), [], Exit.SCHEMA),
        (reply_events('{"a": 1', status=wire.Status.CANCELLED), [], Exit.CANCELLED),
    ],
)
async def test_a_part_of_the_json_is_not_taken_for_the_whole(
    server: FakeServer, hobnob: Cli, events: Any, arguments: list[str], code: Exit
) -> None:
    server.events = events
    for form in ([], ["--json"], ["--events"]):
        result = await hobnob.run("ask", "--schema", "a int", *arguments, *form, "hi")
        assert result.code == code and result.out
        assert ("not the whole JSON" in result.err) is (code is Exit.SCHEMA)


async def test_a_schema_that_the_server_cannot_hold_to_is_wrong_use(
    server: FakeServer, hobnob: Cli
) -> None:
    refused = refusal(400, "invalid_request", "response_format: no such type.")
    server.scripts[MESSAGES] = [says(refused)]
    result = await hobnob.run("ask", "--schema", '{"type": "bogus"}', "hi")
    assert (result.code, result.out) == (Exit.USAGE, b"")
    assert result.err == "hobnob: response_format: no such type.\n"


# ---- a past -----------------------------------------------------------------------------------


async def test_the_messages_of_a_file_are_what_a_new_conversation_begins_with(
    server: FakeServer, hobnob: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "system", "content": "Be brief."}, *PAST, LAST]))
    result = await hobnob.run("ask", "--messages", str(file), stdin=b"not read")
    assert (result.code, result.out) == (0, b"Hello world.\n")
    body = {"text": "sure?", "options": {}, "system": "Be brief.", "history": SENT_PAST}
    assert sent(server) == body
    await hobnob.run("--messages", str(file), "-s", "Be rude.", "--name", "Sums")
    assert sent(server) == {**body, "system": "Be rude.", "title": "Sums"}
    file.write_text("\n".join(json.dumps(one) for one in PAST))
    await hobnob.run("ask", "--messages", str(file), "and", "3?", stdin=b"data")
    assert sent(server) == {"text": "data\n\nand 3?", "options": {}, "history": SENT_PAST}


async def test_a_dash_is_stdin_and_the_prompt_is_the_arguments_alone(
    server: FakeServer, hobnob: Cli
) -> None:
    await hobnob.run("ask", "--messages", "-", stdin=json.dumps([*PAST, LAST]).encode())
    assert sent(server) == {"text": "sure?", "options": {}, "history": SENT_PAST}
    await hobnob.run("ask", "--messages", "-", "why?", stdin=json.dumps(PAST).encode())
    assert sent(server) == {"text": "why?", "options": {}, "history": SENT_PAST}


async def test_what_history_show_prints_can_be_gone_on_with(
    server: FakeServer, hobnob: Cli
) -> None:
    server.messages = [{"id": "m", **one} for one in SENT_PAST]
    shown = await hobnob.run("history", "show", "abcd", "--json")
    result = await hobnob.run("ask", "--messages", "-", "why?", stdin=shown.out)
    assert (result.code, sent(server)["history"]) == (0, SENT_PAST), result.err


async def test_a_temporary_past_is_deleted_with_its_reply(server: FakeServer, hobnob: Cli) -> None:
    data = json.dumps([*PAST, LAST]).encode()
    result = await hobnob.run("ask", "--temporary", "--messages", "-", stdin=data)
    assert (result.code, result.out, len(server.deleted)) == (0, b"Hello world.\n", 1)
    assert sent(server)["temporary"] is True and sent(server)["history"] == SENT_PAST


async def test_a_past_is_counted_too(server: FakeServer, hobnob: Cli) -> None:
    plan = {"prompt_tokens": 9, "n_ctx": 99, "included": 3, "left_out": []}
    server.scripts["/conversations/new/plan"] = [says(http(200, json.dumps(plan).encode()))]
    data = json.dumps([*PAST, LAST]).encode()
    result = await hobnob.run("ask", "--count", "--messages", "-", stdin=data)
    assert (result.code, result.out.splitlines()[0]) == (0, b"prompt    9 tokens in 3 messages")
    assert sent(server, "/conversations/new/plan")["history"] == SENT_PAST


# ---- a name and a place -----------------------------------------------------------------------


async def test_a_conversation_gets_a_name_and_is_gone_on_with_by_it(
    server: FakeServer, hobnob: Cli
) -> None:
    await hobnob.run("ask", "--name", "My sums", "2 + 2?")
    assert sent(server) == {"text": "2 + 2?", "options": {}, "title": "My sums"}
    server.conversations = [{"id": "other000"}, {"id": "sums0000", "title": "My sums"}]
    result = await hobnob.run("ask", "--conversation", "My sums", "3 + 3?")
    assert result.code == 0 and sent(server, "/conversations/sums0000/messages")


async def test_a_branch_goes_on_from_an_earlier_reply(server: FakeServer, hobnob: Cli) -> None:
    server.messages = [{"id": "reply7", "role": "assistant", "conversation": "place9"}]
    result = await hobnob.run("ask", "--from", "reply7", "again")
    body = {"text": "again", "options": {}, "parent": "reply7"}
    assert (result.code, sent(server, "/conversations/place9/messages")) == (0, body)
    missing = await hobnob.run("ask", "--from", "nope", "again")
    assert (missing.code, missing.out) == (Exit.NOT_FOUND, b"")


# ---- wrong use --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["--schema", "nowhere.json", "hi"], b"", "There is no file 'nowhere.json'"),
        (["--schema", "{", "hi"], b"", "The schema is no JSON"),
        (["--schema", "a int", "--code", "hi"], b"", "no code blocks"),
        (["--schema", "a int", "--render", "hi"], b"", "is not drawn"),
        (["--schema", "a int", "--resume", "run1"], b"", "--resume takes no prompt"),
        (["--messages", "-", "-c"], b"[]", "of its own"),
        (["--messages", "-", "--conversation", "abcd"], b"[]", "of its own"),
        (["--messages", "-", "--from", "abcd"], b"[]", "of its own"),
        (["--messages", "-", "--resume", "run1"], b"[]", "--resume takes no prompt"),
        (["--messages", "-"], b"[]", "There are no messages in stdin"),
        (["--messages", "-"], b"", "There are no messages in stdin"),
        (["--messages", "-"], b"\xff", "not UTF-8"),
        (["--messages", "/nowhere"], b"", "/nowhere cannot be read: No such file"),
        (["--messages", "/"], b"", "/ cannot be read: Is a directory"),
        (["--name", " ", "hi"], b"", "The name is empty"),
        (["--name", "x", "-c", "hi"], b"", "is for a new conversation"),
        (["--name", "x", "--temporary", "hi"], b"", "Nothing is kept"),
        (["--name", "x", "--count", "hi"], b"", "Nothing is kept"),
        (["--name", "x", "--resume", "run1"], b"", "--resume takes no prompt"),
        (["--from", "x", "--resume", "run1"], b"", "--resume takes no prompt"),
        (["--from", "x", "--temporary", "hi"], b"", "of its own"),
        (["--from", "x", "--count", "-s", "x", "hi"], b"", "for a new conversation only"),
        (["--name", "x"], b"", "There is no prompt"),
    ],
)
async def test_wrong_use_is_one_line_and_code_2_and_nothing_is_sent(
    server: FakeServer, hobnob: Cli, arguments: list[str], stdin: bytes, words: str
) -> None:
    result = await hobnob.run("ask", *arguments, stdin=stdin)
    assert (result.code, result.out) == (Exit.USAGE, b""), result.err
    assert words in result.err and result.err.count("\n") == 1
    assert server.requests == []


async def test_messages_on_a_terminal_are_not_waited_for(server: FakeServer, hobnob: Cli) -> None:
    ours, theirs = os.openpty()
    try:
        process = await hobnob.start("--messages", "-", stdin=theirs)
        result = await hobnob.finish(process)
    finally:
        os.close(ours)
        os.close(theirs)
    assert result.code == Exit.USAGE and "Stdin is a terminal" in result.err
