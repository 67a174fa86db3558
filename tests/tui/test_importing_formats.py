"""The files of each tool, in the shape in which it writes them, and damaged."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hobnob.tui.importing import file, tree
from hobnob.tui.importing.values import Empty, Reading, Ready, Unreadable

NOW = 1_800_000_000_000
HOSTILE = "a\0b\x1b]0;owned\x07 <script>"


def read(tmp_path: Path, content: Any) -> Reading:
    path = tmp_path / "file"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return file.read(path)


def the_one(reading: Reading) -> Ready:
    (found,) = reading.found
    return tree.ready(found, NOW)


def said(ready: Ready) -> list[tuple[str, str]]:
    return [
        (one["role"], "".join(b["text"] for b in one["blocks"] if b["type"] == "text"))
        for one in ready.body["messages"]
    ]


def thoughts(ready: Ready) -> list[str]:
    blocks = [block for one in ready.body["messages"] for block in one["blocks"]]
    return [block["text"] for block in blocks if block["type"] == "reasoning"]


# ---- ChatGPT ------------------------------------------------------------------------------------


def chatgpt_node(
    id: str, parent: str | None, role: str, content: Any, **fields: Any
) -> dict[str, Any]:
    metadata = fields.pop("metadata", {})
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    message = {
        "id": id,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": 1_700_000_000.25,
        "update_time": None,
        "content": content,
        "status": "finished_successfully",
        "end_turn": True,
        "weight": 1.0,
        "metadata": metadata,
        "recipient": "all",
        "channel": None,
        **fields,
    }
    return {"id": id, "message": message, "parent": parent, "children": []}


def chatgpt(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    root = {"id": "client-created-root", "message": None, "parent": None, "children": []}
    return {
        "title": "Tea",
        "create_time": 1_700_000_000.0,
        "update_time": 1_700_000_100.0,
        "mapping": {one["id"]: one for one in (root, *nodes)},
        "moderation_results": [],
        "current_node": nodes[-1]["id"],
        "conversation_id": "6f0c",
        "default_model_slug": "gpt-4o",
        "is_archived": False,
        **fields,
    }


def test_a_conversation_of_chatgpt_with_its_versions(tmp_path: Path) -> None:
    hidden = {"is_visually_hidden_from_conversation": True}
    one = chatgpt(
        chatgpt_node("s", "client-created-root", "system", "", metadata=hidden),
        chatgpt_node("q", "s", "user", "How long?", create_time=1_700_000_001.0),
        chatgpt_node("a", "q", "assistant", "3 minutes", metadata={"model_slug": "gpt-4"}),
        chatgpt_node(
            "b",
            "q",
            "assistant",
            "4 min",
            create_time=1_700_000_050.0,
            metadata={"finish_details": {"type": "max_tokens"}},
        ),
    )
    ready = the_one(read(tmp_path, [one]))
    assert said(ready) == [
        ("user", "How long?"),
        ("assistant", "3 minutes"),
        ("assistant", "4 min"),
    ]
    question, first, second = ready.body["messages"]
    assert first["parent"] == second["parent"] == question["id"]
    assert ready.body["head"] == second["id"]
    assert (first["model"], second["model"], question["model"]) == ("gpt-4", "gpt-4o", None)
    assert (second["status"], second["stop_reason"]) == ("length", "max_tokens")
    assert (ready.title, ready.body["updated_at"]) == ("Tea", 1_700_000_100_000)
    assert question["created_at"] == 1_700_000_001_000 and not ready.left_out


def test_what_chatgpt_did_with_tools_is_counted_and_its_thoughts_are_kept(tmp_path: Path) -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    thought = {"content_type": "thoughts", "thoughts": [{"summary": "Plan", "content": "Look."}]}
    code = {"content_type": "code", "language": "unknown", "text": "search()"}
    one = chatgpt(
        chatgpt_node(
            "q", None, "user", {"content_type": "multimodal_text", "parts": [image, "What is it?"]}
        ),
        chatgpt_node("t", "q", "assistant", thought),
        chatgpt_node("c", "t", "assistant", code, recipient="web.run"),
        chatgpt_node("r", "c", "tool", {"content_type": "execution_output", "text": "found"}),
        chatgpt_node("d", "r", "tool", {"content_type": "multimodal_text", "parts": [image]}),
        chatgpt_node("k", "d", "assistant", {"content_type": "reasoning_recap", "content": "4 s"}),
        chatgpt_node("a", "k", "assistant", "A cat."),
    )
    ready = the_one(read(tmp_path, [one]))
    assert said(ready) == [("user", "What is it?"), ("assistant", "A cat.")]
    assert thoughts(ready) == ["Plan\n\nLook."]
    assert ready.left_out == {"image": 2, "tool call": 1, "tool result": 2}


def test_code_of_chatgpt_stays_in_its_fence_whatever_is_in_it(tmp_path: Path) -> None:
    markdown = {"content_type": "code", "language": "markdown", "text": "```py\nx = 1\n```"}
    odd = {"content_type": "code", "language": "a\n``` b", "text": "y"}
    one = chatgpt(
        chatgpt_node("q", None, "user", markdown), chatgpt_node("a", "q", "assistant", odd)
    )
    assert said(the_one(read(tmp_path, [one]))) == [
        ("user", "````markdown\n```py\nx = 1\n```\n````"),
        ("assistant", "```\ny\n```"),
    ]


def test_an_odd_conversation_of_chatgpt_takes_nothing_from_the_others(tmp_path: Path) -> None:
    odd = chatgpt(chatgpt_node("q", None, "user", "x"), title=7, create_time="x", current_node=[])
    odd["mapping"] |= {"n": None, "m": {"message": {"content": 3, "author": "me"}, "parent": {}}}
    odd["mapping"] |= {"ring": chatgpt_node("ring", "ring", "user", HOSTILE)}
    good = chatgpt(chatgpt_node("q", None, "user", "y"), conversation_id="other")
    reading = read(tmp_path, [odd, "nonsense", good])
    assert reading.unreadable == ["entry 2 is not what the others are"]
    texts = [text for one in reading.found for _, text in said(tree.ready(one, NOW)) if text]
    assert sorted(texts) == sorted(["x", HOSTILE, "y"])


# ---- Claude -------------------------------------------------------------------------------------


def claude_message(uuid: str, sender: str, text: str, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "text": text,
        "content": [{"type": "text", "text": text, "citations": []}],
        "sender": sender,
        "created_at": "2025-01-02T03:04:05.678901Z",
        "updated_at": "2025-01-02T03:04:05.678901Z",
        "attachments": [],
        "files": [],
        **fields,
    }


def claude(*messages: dict[str, Any]) -> dict[str, Any]:
    return {
        "uuid": "c1",
        "name": "Tea",
        "created_at": "2025-01-02T03:04:00.000000Z",
        "updated_at": "2025-01-03T03:04:00.000000Z",
        "account": {"uuid": "me"},
        "chat_messages": list(messages),
    }


def test_a_conversation_of_claude_with_files_and_thoughts(tmp_path: Path) -> None:
    attached = {"file_name": "a.py", "file_size": 9, "file_type": "", "extracted_content": "x = 1"}
    parts = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "name": "web_search", "input": {}},
        {"type": "tool_result", "content": []},
        {"type": "text", "text": "4 minutes."},
    ]
    one = claude(
        claude_message(
            "m1",
            "human",
            "How long?",
            attachments=[attached],
            files=[{"file_name": "a.py"}, {"file_name": "cup.jpg", "file_uuid": "f"}],
            parent_message_uuid="00000000-0000-4000-8000-000000000000",
        ),
        claude_message("m2", "assistant", "unsupported block", content=parts),
    )
    ready = the_one(read(tmp_path, [one]))
    assert said(ready) == [
        ("user", "How long?\n\na.py:\n```py\nx = 1\n```"),
        ("assistant", "Let me look.\n\n4 minutes."),
    ]
    assert thoughts(ready) == ["Hm."]
    assert ready.left_out == {"file": 1, "tool call": 1, "tool result": 1}
    assert ready.body["created_at"] == 1_735_787_040_000


def test_older_exports_of_claude_have_only_a_text_and_newer_ones_are_a_tree(tmp_path: Path) -> None:
    old = [claude_message("m1", "human", "q"), claude_message("m2", "assistant", "a")]
    for one in old:
        del one["content"]
    assert said(the_one(read(tmp_path, [claude(*old)]))) == [("user", "q"), ("assistant", "a")]
    tree_of = claude(
        claude_message("m1", "human", "q"),
        claude_message("m2", "assistant", "a", parent_message_uuid="m1"),
        claude_message("m3", "assistant", "b", parent_message_uuid="m1"),
    )
    question, *replies = the_one(read(tmp_path, [tree_of])).body["messages"]
    assert [one["parent"] for one in replies] == [question["id"]] * 2


def test_an_empty_conversation_of_claude_is_empty(tmp_path: Path) -> None:
    (found,) = read(tmp_path, [claude()]).found
    with pytest.raises(Empty):
        tree.ready(found, NOW)


# ---- llama-server -------------------------------------------------------------------------------


def llama(*messages: dict[str, Any]) -> dict[str, Any]:
    conv = {"id": "c", "name": "Tea", "lastModified": 1_700_000_000_000, "currNode": "m3"}
    root = {"id": "m0", "convId": "c", "type": "root", "role": "system", "content": ""}
    return {"conv": conv, "messages": [{**root, "parent": None, "timestamp": 1}, *messages]}


def llama_message(id: str, parent: str, role: str, content: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": id,
        "convId": "c",
        "type": "text",
        "timestamp": 1_700_000_000_000 + int(id[1:]),
        "role": role,
        "content": content,
        "parent": parent,
        "children": [],
        "toolCalls": "",
        **fields,
    }


@pytest.mark.parametrize("as_list", [True, False])
def test_a_conversation_of_llama_servers_page(tmp_path: Path, as_list: bool) -> None:
    extra = [
        {"type": "TEXT", "name": "a.txt", "content": "tea\n"},
        {"type": "IMAGE", "name": "cup.png", "base64Url": "data:image/png;base64,AAAA"},
        {"type": "AUDIO", "name": "cup.mp3", "base64Data": "AAAA", "mimeType": "audio/mp3"},
    ]
    one = llama(
        llama_message("m1", "m0", "system", "Be brief."),
        llama_message("m2", "m1", "user", "How long?", extra=extra),
        llama_message("m3", "m2", "assistant", "4", thinking="Hm.", model="tiny.gguf"),
        llama_message("m4", "m2", "assistant", "5", reasoningContent="Oh.", toolCalls='[{"id":1}]'),
    )
    ready = the_one(read(tmp_path, [one] if as_list else one))
    assert said(ready) == [
        ("user", "How long?\n\na.txt:\n```txt\ntea\n```"),
        ("assistant", "4"),
        ("assistant", "5"),
    ]
    assert ready.body["system"] == "Be brief." and thoughts(ready) == ["Hm.", "Oh."]
    assert ready.body["head"] == ready.body["messages"][1]["id"]
    assert ready.body["messages"][1]["model"] == "tiny.gguf"
    assert ready.left_out == {"image": 1, "sound": 1, "tool call": 1}


# ---- messages -----------------------------------------------------------------------------------

PLAIN = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
    {"role": "assistant", "content": None, "tool_calls": [{}]},
    {"role": "tool", "content": "found", "tool_call_id": "x"},
    {"role": "assistant", "content": "hello", "reasoning_content": "Hm."},
]


@pytest.mark.parametrize("form", ["list", "object", "lines", "lines of objects", "lists"])
def test_plain_messages_in_all_their_forms(tmp_path: Path, form: str) -> None:
    whole = {"messages": PLAIN}
    content: Any = {
        "list": PLAIN,
        "object": whole,
        "lines": "\n".join(json.dumps(one) for one in PLAIN) + "\n\n",
        "lines of objects": f"{json.dumps(whole)}\n{json.dumps(whole | {'id': '2'})}",
        "lists": [PLAIN, PLAIN[:2]],
    }[form]
    found = read(tmp_path, content).found
    assert len(found) == (2 if form in ("lines of objects", "lists") else 1)
    ready = tree.ready(found[0], NOW)
    assert said(ready) == [("user", "hi"), ("assistant", "hello")]
    assert ready.body["system"] == "Be brief." and thoughts(ready) == ["Hm."]
    assert ready.left_out == {"image": 1, "tool call": 1, "tool result": 1}


# ---- files --------------------------------------------------------------------------------------


def zipped(**files: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("_", "/").replace("~", "."), text)
    return data.getvalue()


def test_an_archive_is_read_as_it_is_downloaded(tmp_path: Path) -> None:
    one = json.dumps([chatgpt(chatgpt_node("q", None, "user", "x"))])
    two = json.dumps([chatgpt(chatgpt_node("q", None, "user", "y"), conversation_id="2")])
    files = {"conversations-000~json": one, "conversations-001~json": two, "chat~html": "<html>"}
    reading = read(tmp_path, zipped(**files))
    assert [tree.ready(found, NOW).title for found in reading.found] == ["Tea", "Tea"]
    with pytest.raises(Unreadable, match="without a conversations.json"):
        read(tmp_path, zipped(**{"chat~html": "x"}))
    with pytest.raises(Unreadable, match="archive cannot be read"):
        read(tmp_path, zipped(**files)[:200])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "It is empty."),
        (b" \n", "It is empty."),
        (b"\xff\xfe\x00", "It is not a text in UTF-8."),
        (b"Dear diary", "It is none of the files"),
        (b"[]", "There are no conversations in it."),
        (b'{"a": 1}', "It is none of the files"),
        (b"[1, 2]", "It is none of the files"),
        (b'[{"mapping": {}}, {"mapping"', "It is not valid JSON, in line 1"),
        (b'[{"mapping": {}} {"mapping": {}}]', "It is not valid JSON, in line 1: a comma"),
        (b'[{"mapping": {}}] x', "It is not valid JSON, in line 1: something follows"),
        (b"[" * 100_000, "It is nested too deeply."),
        (b'{"a":' * 100_000, "It is nested too deeply."),
        (b'[{"mapping": ' + b"9" * 10_000 + b"}]", "It is not valid JSON"),
        (b'{"role": "user", "content": "x"}\nnonsense', "Line 2 is not valid JSON."),
        (b'{"version": 2, "conversations": []}', "It was exported by a newer hobnob"),
        (b'{"version": "x", "conversations": []}', "It says no version"),
    ],
)
def test_what_is_no_such_file_is_said_in_one_sentence(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(Unreadable) as error:
        read(tmp_path, content)
    assert str(error.value).startswith(sentence)


def test_a_file_beyond_the_bound_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "MAX_BYTES", 2 * 2**20)
    one = json.dumps(PLAIN)
    with pytest.raises(Unreadable, match="larger than 2 MiB"):
        read(tmp_path, one + " " * 2 * 2**20)
    with pytest.raises(Unreadable, match="larger than 2 MiB"):
        read(tmp_path, zipped(**{"conversations~json": one + " " * 2 * 2**20}))


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null"), tmp_path / "nothing"):
        with pytest.raises(Unreadable):
            file.read(path)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                "mapping message parent content parts author role conv messages chat_messages "
                "sender text extra type create_time metadata attachments files id uuid "
                "current_node currNode timestamp created_at toolCalls tool_calls model".split()
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(JSON, st.sampled_from(["mapping", "conv", "chat_messages", "messages", "ours"]))
def test_wrong_types_anywhere_are_no_error_of_ours(inner: Any, shape: str) -> None:
    whole: Any = {
        "mapping": {"mapping": {"a": inner, "b": {"message": inner, "parent": "a"}}},
        "conv": {"conv": {"id": inner}, "messages": [inner, {"content": inner, "extra": [inner]}]},
        "chat_messages": {"chat_messages": [inner, {"content": inner, "sender": "human"}]},
        "messages": {"messages": [{"role": "user", "content": inner, "tool_calls": inner}]},
        "ours": {"version": 1, "conversations": [inner, {"id": "x", "messages": [inner]}]},
    }[shape]
    reading = file._of_object(whole)
    for found in reading.found:
        try:
            json.dumps(tree.ready(found, NOW).body)
        except Unreadable:
            pass
    assert isinstance(reading.left_out, Counter)
