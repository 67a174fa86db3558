"""The schema, as migrations that are only ever appended (names also go to schema.py).

Every table but the log has `n INTEGER PRIMARY KEY`, which gives the order and the full-text row,
and a random public `id`. Times are UTC milliseconds and decide no order.
"""

from __future__ import annotations

import secrets
import sqlite3

from sqlite_utils import Database, Migrations

from hobnob.store import schema

migrations = Migrations(schema.MIGRATION_SET)

_INITIAL = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE conversations (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    title TEXT NOT NULL,
    system TEXT,
    head INTEGER REFERENCES messages (n) ON DELETE SET NULL,
    settings TEXT NOT NULL,             -- JSON object
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    change INTEGER NOT NULL             -- from meta's counter, new on every write
) STRICT;
CREATE INDEX conversations_by_change ON conversations (owner, change);
CREATE INDEX conversations_by_head ON conversations (head);

-- No cascade along `parent`: SQLite recurses for each level and gives up at 1,000. Messages go
-- with their conversation, and the constraint is looked at when all of them are gone.
CREATE TABLE messages (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    conversation INTEGER NOT NULL REFERENCES conversations (n) ON DELETE CASCADE,
    parent INTEGER REFERENCES messages (n) DEFERRABLE INITIALLY DEFERRED,
    role TEXT NOT NULL,
    status TEXT NOT NULL,
    model TEXT,
    stop_reason TEXT,
    error TEXT,
    usage TEXT,                         -- JSON object
    timings TEXT,                       -- JSON object
    created_at INTEGER NOT NULL,
    text TEXT NOT NULL,                 -- what is searched: rows.searchable() of the blocks' text
    blocks TEXT NOT NULL,               -- JSON array; the exact text is here
    vocab_hash TEXT,
    tokens BLOB                         -- varints; ids of a reply as generated
) STRICT;
CREATE INDEX messages_by_parent ON messages (parent);
CREATE INDEX messages_by_conversation ON messages (conversation, parent);

CREATE TABLE runs (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    message INTEGER NOT NULL REFERENCES messages (n) ON DELETE CASCADE,
    class TEXT NOT NULL,                -- interactive | batch
    api TEXT NOT NULL,
    model TEXT NOT NULL,
    vocab_hash TEXT NOT NULL,
    template_hash TEXT NOT NULL,
    status TEXT NOT NULL,
    stop_reason TEXT,
    error TEXT,
    attempts INTEGER NOT NULL,
    idempotency_key TEXT,
    request_hash TEXT,
    log_pruned INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    params TEXT NOT NULL,               -- JSON object; the seed may exceed SQLite's integers
    prompt BLOB NOT NULL,               -- varints
    UNIQUE (owner, idempotency_key)
) STRICT;
CREATE INDEX runs_by_message ON runs (message);
CREATE INDEX runs_in_flight ON runs (n) WHERE ended_at IS NULL;
CREATE INDEX runs_with_log ON runs (ended_at) WHERE ended_at IS NOT NULL AND log_pruned = 0;

CREATE TABLE run_events (
    run INTEGER NOT NULL REFERENCES runs (n) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    data TEXT NOT NULL,
    tokens BLOB,                        -- varints; ids behind a delta's text
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- The index reads the messages through a view that holds exactly the indexed ones, so that its
-- integrity check and rebuild know of no others. A reply is indexed at its end.
CREATE VIEW messages_searchable AS
    SELECT n, text FROM messages WHERE status NOT IN ('queued', 'running');
CREATE VIRTUAL TABLE messages_index USING fts5 (
    text, content = 'messages_searchable', content_rowid = 'n',
    tokenize = "unicode61 remove_diacritics 2"
);
CREATE TRIGGER messages_index_insert AFTER INSERT ON messages
WHEN new.status NOT IN ('queued', 'running') BEGIN
    INSERT INTO messages_index (rowid, text) VALUES (new.n, new.text);
END;
CREATE TRIGGER messages_index_update_old BEFORE UPDATE OF n, status, text ON messages
WHEN old.status NOT IN ('queued', 'running') BEGIN
    INSERT INTO messages_index (messages_index, rowid, text) VALUES ('delete', old.n, old.text);
END;
CREATE TRIGGER messages_index_update_new AFTER UPDATE OF n, status, text ON messages
WHEN new.status NOT IN ('queued', 'running') BEGIN
    INSERT INTO messages_index (rowid, text) VALUES (new.n, new.text);
END;
CREATE TRIGGER messages_index_delete AFTER DELETE ON messages
WHEN old.status NOT IN ('queued', 'running') BEGIN
    INSERT INTO messages_index (messages_index, rowid, text) VALUES ('delete', old.n, old.text);
END;
"""


@migrations()
def m001_initial(db: Database) -> None:
    db.executescript(_INITIAL)
    db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    db.execute(
        "INSERT INTO meta (key, value) VALUES ('instance', ?), ('epoch', 0), ('change', 0)",
        (secrets.token_hex(16),),
    )


@migrations()
def m002_deletions(db: Database) -> None:
    """What was deleted since, for other devices; of what was deleted before, nothing is known."""
    db.execute("""
        CREATE TABLE deletions (
            change INTEGER PRIMARY KEY,     -- from meta's counter
            owner TEXT NOT NULL,
            conversation TEXT NOT NULL      -- its public id; nothing else is left of it
        ) STRICT
    """)
    db.execute(
        "INSERT INTO meta (key, value)"
        " SELECT 'deletions_from', value FROM meta WHERE key = 'change'"
    )


@migrations()
def m003_message_tree(db: Database) -> None:
    """The shape of a conversation's tree is read from this index alone, without any text."""
    db.execute("DROP INDEX messages_by_conversation")
    db.execute("CREATE INDEX messages_by_conversation ON messages (conversation, parent, id)")


@migrations()
def m004_pinned(db: Database) -> None:
    """Conversations that stand first in the list; those that were there before do not."""
    db.execute("ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0")
    db.execute(
        "CREATE INDEX conversations_pinned ON conversations (owner, change) WHERE pinned = 1"
    )


@migrations()
def m005_temporary(db: Database) -> None:
    """Conversations that are in no list and are deleted with those who hold them."""
    db.execute("ALTER TABLE conversations ADD COLUMN temporary INTEGER NOT NULL DEFAULT 0")
    db.execute("CREATE INDEX conversations_temporary ON conversations (n) WHERE temporary = 1")


@migrations()
def m006_cancel_asked(db: Database) -> None:
    """Runs that are to end, so that they end also where their server dies before that."""
    db.execute("ALTER TABLE runs ADD COLUMN cancel_asked INTEGER NOT NULL DEFAULT 0")


def migrate(conn: sqlite3.Connection) -> None:
    """Applies what is pending, inside the caller's transaction: all of it or nothing."""
    assert conn.in_transaction, "two processes must not migrate at once"
    db = Database(conn, recursive_triggers=False, execute_plugins=False, strict=True)
    migrations.apply(db)
    conn.execute(f"PRAGMA user_version = {len(schema.MIGRATION_NAMES)}")
