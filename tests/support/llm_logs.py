"""Tables of llm's log, as SQL."""

# A table of llm before 0.32, and the message store, as far as gptsh reads them.
OLD = """
CREATE TABLE responses (id TEXT PRIMARY KEY, prompt TEXT, response TEXT, conversation_id TEXT);
INSERT INTO responses VALUES ('a', 'first', 'one', 'c'), ('b', 'second', 'two', 'c'), ('d', 'alone', 'three', NULL);
"""
STORE = """
CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT, model TEXT,
    resolved_model TEXT, options_json TEXT, schema_id TEXT, input_tokens INTEGER, output_tokens INTEGER,
    token_details TEXT, duration_ms INTEGER, datetime_utc TEXT, response_json TEXT);
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT, text TEXT,
    payload TEXT);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE fragments (id INTEGER PRIMARY KEY, hash TEXT, content TEXT, datetime_utc TEXT, source TEXT);
"""
ASKED = """
INSERT INTO threads VALUES ('t1', 'hello', 'a1', NULL, '2026-11-20 18:36:03.810088+00:00');
INSERT INTO messages VALUES ('q1', NULL, 'user', NULL), ('a1', 'q1', 'assistant', NULL);
INSERT INTO parts VALUES (1, 'q1', 0, 'text', NULL, 'hello', NULL), (2, 'a1', 0, 'text', NULL, 'hi', NULL);
INSERT INTO turns (id, thread_id, parent_message_hash, tip_message_hash, model, datetime_utc)
    VALUES ('u1', 't1', 'q1', 'a1', 'gpt-4o', '2026-11-20T18:36:03.799748+00:00');
"""
HELLO = "user: hello\nassistant: hi\n"
