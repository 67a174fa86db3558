"""Conversations by id, beginning or name, and the message that a prompt follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_server import KEY, FakeServer, refusal, says

from hobnob.launch import Target
from hobnob.paths import Paths
from hobnob.tui import meant
from hobnob.tui.client import Client
from hobnob.tui.meant import Place
from hobnob.tui.notice import ClientError
from hobnob.tui.question import Question

WHOLE = "0123456789abcdef0123"


def client(server: FakeServer, home: Path) -> Client:
    return Client(Target(Paths.home({"HOBNOB_HOME": str(home)}), server.url, KEY))


async def found(server: FakeServer, home: Path, given: str) -> str:
    async with client(server, home) as opened:
        return (await meant.conversation(opened, given)).id


async def place(server: FakeServer, home: Path, **fields: str) -> Place:
    async with client(server, home) as opened:
        return await meant.place(opened, Question(**fields), home)  # type: ignore[arg-type]


async def test_a_conversation_is_known_by_its_id_its_beginning_and_its_name(
    server: FakeServer, tmp_path: Path
) -> None:
    server.conversations = [{"id": WHOLE, "title": "My notes/2"}, {"id": "ffff0000", "title": ""}]
    server.scripts["/conversations/Name"] = [says(refusal(404, "not_found"))]
    assert await found(server, tmp_path, WHOLE) == WHOLE
    assert not server.asked("GET", "/conversations")  # a whole id is no name
    assert await found(server, tmp_path, "0123") == WHOLE
    assert await found(server, tmp_path, "My notes/2") == WHOLE


async def test_a_name_that_is_not_there_is_not_found(server: FakeServer, tmp_path: Path) -> None:
    for given in ("My notes", "", "notes"):
        server.scripts[f"/conversations/{given}"] = [says(refusal(404, "not_found"))]
        with pytest.raises(ClientError) as raised:
            await found(server, tmp_path, given)
        assert raised.value.code == "not_found"


async def test_a_name_of_two_and_one_that_begins_anothers_id_are_refused(
    server: FakeServer, tmp_path: Path
) -> None:
    server.conversations = [{"id": "aaaa", "title": "The one"}, {"id": "bbbb", "title": "The one"}]
    with pytest.raises(ClientError, match="More than one conversation is called 'The one'"):
        await found(server, tmp_path, "The one")
    server.conversations = [{"id": "beef0", "title": "x"}, {"id": "cccc", "title": "beef"}]
    with pytest.raises(ClientError, match="begins another's id"):
        await found(server, tmp_path, "beef")
    server.conversations[0]["title"] = server.conversations[1].pop("title")
    assert await found(server, tmp_path, "beef") == "beef0"


async def test_a_prompt_follows_a_reply_in_the_conversation_that_has_it(
    server: FakeServer, tmp_path: Path
) -> None:
    server.messages = [{"id": "reply7", "role": "assistant", "conversation": "place9"}]
    assert await place(server, tmp_path, after="reply7") == Place("place9", "reply7")
    server.conversations = [{"id": WHOLE, "title": "x"}]
    given = await place(server, tmp_path, after="reply7", conversation=WHOLE)
    assert given == Place(WHOLE, "reply7")  # whether it is in there is the server's to say


async def test_no_prompt_follows_a_message_of_the_user(server: FakeServer, tmp_path: Path) -> None:
    message = {"id": "m2", "role": "user", "conversation": "place9", "parent": "reply1"}
    server.messages = [message, {**message, "id": "m1", "parent": None}]
    with pytest.raises(ClientError, match="takes a reply, .*, such as reply1"):
        await place(server, tmp_path, after="m2")
    with pytest.raises(ClientError, match=r"which the prompt follows\."):
        await place(server, tmp_path, after="m1")
    for id in ("nope", "../x", ""):
        with pytest.raises(ClientError) as raised:
            await place(server, tmp_path, after=id)
        assert raised.value.code == "not_found"


async def test_without_any_of_it_a_new_conversation_is_meant(
    server: FakeServer, tmp_path: Path
) -> None:
    assert await place(server, tmp_path) == Place() and not server.requests
