"""The log of the llm tool, of its older and its newer versions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hobnob.tui.importing import file, llm_logs, tree
from hobnob.tui.importing.values import Reading, Unreadable

NOW = 1_800_000_000_000

OLD = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
    options_json TEXT, response TEXT, response_json TEXT, conversation_id TEXT,
    duration_ms INTEGER, datetime_utc TEXT, input_tokens INTEGER, output_tokens INTEGER);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER);
CREATE TABLE fragments (id INTEGER PRIMARY KEY, hash TEXT, content TEXT, datetime_utc TEXT,
    source TEXT);
CREATE TABLE prompt_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
CREATE TABLE system_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
"""
NEW = """
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT,
    tool_name TEXT, text TEXT, payload TEXT);
CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT,
    datetime_utc TEXT);
CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT,
    tip_message_hash TEXT, model TEXT, resolved_model TEXT, options_json TEXT, schema_id TEXT,
    input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, duration_ms INTEGER,
    datetime_utc TEXT);
"""

Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(*scripts: str) -> Path:
        path = tmp_path / "logs.db"
        with closing(sqlite3.connect(path)) as conn:
            for script in scripts:
                conn.executescript(script)
            conn.commit()
        return path

    return make


def lines(reading: Reading) -> list[list[str]]:
    """The texts of each conversation, its title first."""
    whole = []
    for found in reading.found:
        ready = tree.ready(found, NOW)
        texts = [[b["text"] for b in one["blocks"]] for one in ready.body["messages"]]
        whole.append([ready.title, *(" / ".join(some) for some in texts)])
    return whole


ROWS = """
INSERT INTO conversations VALUES ('c1', 'Tea', 'gpt-4o'), ('c2', NULL, 'tiny');
INSERT INTO responses (id, model, prompt, system, response, conversation_id, datetime_utc) VALUES
    ('r2', 'gpt-4o', 'and green?', 'Be brief.', '2 minutes', 'c1', '2025-01-02T03:05:00.123456'),
    ('r1', 'gpt-4o', 'how long?', 'Be brief.', '4 minutes', 'c1', '2025-01-02T03:04:00.123456'),
    ('r3', 'tiny', 'look', NULL, 'a cup', 'c2', '2025-01-01T03:04:00');
INSERT INTO fragments (id, content) VALUES (1, 'a whole novel');
INSERT INTO prompt_fragments VALUES ('r3', 1, 0);
INSERT INTO prompt_attachments VALUES ('r3', 'x', 0);
"""


def test_the_log_of_older_versions(made: Made) -> None:
    reading = file.read(made(OLD, ROWS))
    assert lines(reading) == [
        ["a whole novel look", "a whole novel\n\nlook", "a cup"],
        ["Tea", "how long?", "4 minutes", "and green?", "2 minutes"],
    ]
    old, newer = (tree.ready(found, NOW) for found in reading.found)
    assert old.left_out == {"file": 1} and not newer.left_out
    assert newer.body["system"] == "Be brief."
    assert [one["model"] for one in newer.body["messages"]] == [None, "gpt-4o", None, "gpt-4o"]
    assert newer.body["messages"][0]["created_at"] == 1_735_787_040_123
    assert newer.body["head"] == newer.body["messages"][-1]["id"]


def test_the_log_of_newer_versions_is_a_tree(made: Made) -> None:
    ref = json.dumps({"text_ref": [{"literal": "of "}, {"fragment": 2}]})
    script = f"""
    INSERT INTO fragments (id, content) VALUES (2, 'a novel');
    INSERT INTO messages (hash, parent_hash, role) VALUES ('s', NULL, 'system'),
        ('q', 's', 'user'), ('a', 'q', 'assistant'), ('b', 'q', 'assistant'),
        ('t', 'a', 'tool'), ('a2', 't', 'assistant');
    INSERT INTO parts (message_hash, position, type, text, payload) VALUES
        ('s', 0, 'text', 'Be brief.', NULL), ('q', 0, 'text', NULL, '{ref}'),
        ('a', 0, 'reasoning', 'Hm.', NULL), ('a', 1, 'text', 'long', NULL),
        ('a', 2, 'tool_call', NULL, '{{}}'), ('t', 0, 'tool_result', NULL, 'not json'),
        ('a2', 0, 'text', 'longer', NULL), ('b', 0, 'text', 'short', NULL);
    INSERT INTO threads (id, name, tip_message_hash) VALUES ('c1', 'Books', 'b');
    INSERT INTO turns (id, thread_id, tip_message_hash, model, datetime_utc) VALUES
        ('t1', 'c1', 'a2', 'tiny', '2026-08-16T08:41:02.123456+00:00'),
        ('t2', 'c1', 'b', 'tiny', '2026-08-16T08:42:02+00:00'),
        ('t3', NULL, 'b', 'tiny', '2026-08-16T08:43:02+00:00');
    """
    reading = file.read(made(OLD, NEW, ROWS.replace("'c1'", "'c0'"), script))
    assert [row[0] for row in lines(reading)][1:] == ["Tea", "Books", "of a novel"]
    books = tree.ready(reading.found[2], NOW)
    assert lines(reading)[2] == ["Books", "of a novel", "Hm. / long / \n\nlonger", "short"]
    assert books.body["system"] == "Be brief."
    assert books.body["head"] == books.body["messages"][2]["id"]
    assert books.left_out == {"tool call": 1, "tool result": 1}


def test_a_conversation_that_went_on_in_the_newer_tables_is_there_once(made: Made) -> None:
    script = """
    INSERT INTO messages (hash, parent_hash, role) VALUES ('q', NULL, 'user');
    INSERT INTO parts (message_hash, position, type, text) VALUES ('q', 0, 'text', 'how long?');
    INSERT INTO turns (id, thread_id, tip_message_hash) VALUES ('t', 'c1', 'q');
    """
    reading = file.read(made(OLD, NEW, ROWS, script))
    assert sorted(found.id for found in reading.found) == ["c1", "c2"]


def test_the_log_is_not_written(made: Made) -> None:
    path = made(OLD, ROWS)
    before = path.read_bytes()
    path.chmod(0o400)
    file.read(path)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["logs.db"]


def test_other_databases_and_damaged_ones_are_said(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreadable, match="not one of the llm tool"):
        file.read(made("CREATE TABLE other (id TEXT);"))
    with pytest.raises(Unreadable, match="hobnob history restore"):
        file.read(made("PRAGMA application_id = 0x686F626E;"))
    (tmp_path / "broken").write_bytes(b"SQLite format 3\0" + b"\xff" * 2000)
    with pytest.raises(Unreadable, match="database cannot be read"):
        file.read(tmp_path / "broken")


def test_a_log_that_computes_for_ever_or_is_endless_is_bounded(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(OLD, ROWS)
    monkeypatch.setattr(llm_logs, "MAX_ROWS", 2)
    with pytest.raises(Unreadable, match="more than 2 rows"):
        file.read(path)
    monkeypatch.setattr(llm_logs, "MAX_ROWS", 100)
    monkeypatch.setattr(llm_logs, "MAX_CHARS", 10)
    with pytest.raises(Unreadable, match="characters"):
        file.read(path)
    monkeypatch.setattr(llm_logs, "SECONDS", -1.0)
    monkeypatch.setattr(llm_logs, "_STEPS_BETWEEN_LOOKS", 1)
    with pytest.raises(Unreadable, match="interrupted"):
        file.read(path)
