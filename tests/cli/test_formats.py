"""Sessions as other tools keep them: what comes in of each format's samples, and what is said of odd files."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.claude_code import line, reply, result, tool
from tests.support.histories import (
    Script,
    at,
    check_requests,
    import_file,
    import_notes,
    read_sample,
    session,
    states,
    transcript_of,
    write,
)
from tests.support.home import Home
from tests.support.llm_logs import ASKED, HELLO, STORE
from tests.support.paths import HISTORIES

# ---- samples: what several of them tell

TALK = """user: ASKED
assistant: READING read_file{CONFIG}=A list_dir{NOPE}=B
tool A: FOUND
tool B: Error: ENOENT: /nope
assistant: TOLD
"""
THOUGHT = TALK.replace("READING", "(PLAN) READING")
SIGNED = TALK.replace(
    "READING", "(PLAN; signed) (Second thought, provider gave no signature.) READING"
)
JUDGED = SIGNED.replace("tool A", "tool A well").replace("tool B", "tool B failed")
END = "user: TWO [image/png]\nassistant: LOOKED\n"
ENDS = END.replace("[image/png]", "[image/png] [application/pdf]")
LOG = TALK.replace("tool B", "tool B failed") + ENDS.replace("TWO", "a synthetic fragment\nTWO")
TEA = """user: [image_asset_pointer] How hot? [attachment]
assistant: (Heat

Ask the shell.) python80+15=a2
tool a2: 95
assistant: 95 °C
"""
SOUP = """user: How do I cook soup? [attachment]
assistant: (With water.) Boil it. [READ_LINK]
"""
COFFEE = """user: Read this beans [attachment]
assistant: (hm) I look. ls{"p": 1}=m3:2
tool m3:2 failed: b
assistant: Beans.
"""
CLAUDE = "claude_code/projects/-home-u-my-proj/00000000-0000-4000-8000-000000000700"
MANIFEST = "codelet/.fspec/sessions/00000000-0000-4000-8000-000000000900.json"
CHECKPOINT = "nanocoder/.nanocoder/checkpoints/before-refactor"
NANOCODER = "nanocoder/sessions/5f0c2f3e-9a55-4d0e-8f1b-3c1f7a2b4d6e.json"
TALKED = "ollm/sessions/550e8400-0000-4000-8000-000000000001.json"
OWN = "gptsh/sessions/20251027-091530-7x2m.json"

# A sample, its format, and of each session in it: what is told, and what places of its document hold.
SAMPLES: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
    OWN: ("gptsh", [(
        TALK.replace("read_file", "fs__read_file").replace("list_dir", "fs__list_dir")
        + "user: TWO\n\n[Attached: image (base64 data)]\n\n[Attached: PDF document (base64 data)]\nassistant: LOOKED\n",
        {"id": "7x2m", "title": "Config and /nope", "created_at": "2025-10-27T09:15:30.000Z",
         "agent.model": "gpt-synthetic", "agent.system": "You are a shell helper.", "usage.cost": 0.00043,
         "agent.params": {"temperature": 0.7, "reasoning_effort": "low"}},
    )]),
    f"{CLAUDE}.jsonl": ("claude-code", [(
        JUDGED.replace("tool A well", "tool A").replace(") (Second", ") (; signed) (Second")
        .replace("read_file{CONFIG}", 'Read{"file_path": "/home/u/my_proj/config.json"}')
        .replace("list_dir{NOPE}", 'Bash{"command": "ls /nope", "description": "List"}')
        + ENDS + "user: This session is being continued. Summary: port is 8080.\n",
        {"title": "Config and /nope", "meta.cwd": "/home/u/my_proj", "provider.name": "anthropic",
         "agent.model": "claude-synthetic", "created_at": "2025-12-23T08:51:01.000Z",
         "updated_at": "2025-12-23T08:51:13.000Z", "meta.imported.gitBranch": "main", "messages.1.usage.completion": 42,
         "meta.imported.key": "00000000-0000-4000-8000-000000000700", "messages.1.finish_reason": "tool_calls",
         "messages.1.timestamp": "2025-12-23T08:51:02.000Z", "messages.1.usage.cached_tokens": 12500,
         "messages.3.raw.structured": "Error: ENOENT: /nope", "usage.tokens.prompt": 15 + 12500 + 3000},
    )]),
    "codelet/envelopes_full.jsonl": ("codelet", [(JUDGED + ENDS, {
        "agent.model": "gpt-synthetic", "provider.name": "openai", "messages.1.usage.cached_tokens": 12500,
        "messages.1.provider": "anthropic", "messages.1.model": "claude-synthetic",
        "messages.1.id": "00000000-0000-4000-8000-000000000002", "messages.3.raw.stderr": "ENOENT",
    })]),
    MANIFEST: ("codelet", [(JUDGED, {
        "title": "Config and /nope", "meta.cwd": "/home/u/proj", "provider.name": "anthropic",
        "created_at": "2025-12-23T08:51:00.123Z", "updated_at": "2025-12-23T08:51:09.123Z",
        "meta.imported.forked_from.fork_after_index": 2, "meta.imported.token_usage.current_context_tokens": 15515,
    })]),
    NANOCODER: ("nanocoder", [(THOUGHT + END, {
        "title": "And what is in these two?", "meta.cwd": "/home/u/proj", "provider.name": "anthropic",
        "agent.model": "claude-synthetic", "created_at": "2026-08-20T09:15:30.123Z",
        "updated_at": "2026-08-20T09:20:00.456Z", "messages.2.raw.structured": {"port": 8080},
    })]),
    f"{CHECKPOINT}/conversation.json": ("nanocoder", [("\n".join(THOUGHT.split("\n")[:2]) + "\n", {
        "title": "before-refactor", "created_at": "2026-08-20T09:18:00.000Z", "agent.model": "claude-synthetic",
        "meta.imported.filesChanged": ["a.txt"],
    })]),
    TALKED: ("ollm", [(
        "user: ASKED\nassistant: READING\nassistant: read_file{CONFIG}=A\ntool A: FOUND\n"
        "assistant: list_dir{NOPE}=B\ntool B: Error: ENOENT: /nope\nassistant: TOLD\nuser: TWO\nassistant: LOOKED\n",
        {"created_at": "2026-01-27T10:00:00.000Z", "updated_at": "2026-01-27T10:00:20.000Z", "provider.name": "ollama",
         "agent.model": "llama-synthetic:3b", "messages.2.timestamp": "2026-01-27T10:00:03.000Z", "title": None},
    )]),
    "nanobot_py_2026-02/sessions/telegram_12345678.jsonl": ("nanobot", [(
        TALK + "user: [image/png] TWO\nassistant: LOOKED\n",
        {"title": "telegram:12345678", "created_at": "2026-02-23T10:00:00.123Z",
         "messages.0.timestamp": "2026-02-23T10:00:01.000Z"},
    )]),
    "nanobot_go_e090c4f/sessions/telegram_12345678.jsonl": ("nanobot", [(
        "user: ASKED\nassistant: TOLD\nuser: TWO\nassistant: LOOKED\n",
        {"title": "telegram:12345678", "messages.1.tools_used": ["read_file", "list_dir"]},
    )]),
    "chatgpt/conversations.json": ("chatgpt", [(TEA, {
        "title": "Tea", "agent.system": "A cook.\n\nBe brief.", "agent.model": "o3", "provider.name": "openai",
        "created_at": "2023-11-14T22:13:20.000Z", "updated_at": "2023-11-14T22:13:29.500Z",
        "messages.0.content.0.asset_pointer": "sediment://f", "messages.0.content.2.name": "tea.png",
        "messages.2.name": "python", "messages.3.finish_reason": "stop", "meta.imported.key": "c-1",
    })]),
    "deepseek/conversations.json": ("deepseek", [(SOUP, {
        "title": "Soup", "agent.model": "deepseek-reasoner", "provider.name": "deepseek",
        "created_at": "2025-03-29T20:49:36.505Z", "meta.imported.key": "d-1", "messages.0.content.1.source": "a.txt",
        "messages.1.sources": [{"url": "https://soup.example/", "title": "Soups"}],
        "messages.1.content.1.type": "READ_LINK", "messages.1.model": "deepseek-reasoner",
    })]),
    "claude_ai/conversations.json": ("claude-ai", [(COFFEE, {
        "title": "Coffee", "provider.name": "anthropic", "created_at": "2025-05-01T10:00:00.000Z",
        "messages.0.content.1.source": "a.txt", "messages.0.content.2.file_name": "a.png", "messages.2.name": "ls",
        "messages.0.id": "m1", "meta.imported.key": "c-2",
    })]),
    "llm/logs.db": ("llm", [(LOG.replace("READING", "(PLAN; signed) READING"), {
        "title": "Grüße, 世界 🐍! Read config.json a…", "agent.system": "You are a shell helper.",
        "agent.model": "synthetic", "messages.0.timestamp": "2026-11-20T18:36:03.799Z",
        "messages.1.tool_calls.1.id": "toolu_01SynthBBBBBBBBBBBBBBBBB",
        "messages.3.raw": {"exception": "OSError: ENOENT: /nope"}, "messages.4.usage.prompt": 15515,
        "messages.4.resolved_model": "synthetic-2026", "messages.4.response_id": "msg_01Synth",
    })]),
}  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_comes_in_with_all_that_it_has(home: Home, sample: str) -> None:
    path, (format_name, expected) = HISTORIES / sample, SAMPLES[sample]
    kept = (path.read_bytes(), path.stat().st_mtime_ns)
    run = home.run("--import-session", str(path), "-o", "json")
    assert run.code == 0
    assert import_notes(run, path) == []
    items = json.loads(run.stdout)
    docs = {doc["id"]: doc for doc in home.docs()}
    for item, (lines_of_it, facts) in zip(items, expected, strict=True):
        doc = docs[item["session"]]
        assert item["format"] == format_name
        assert transcript_of(doc) == lines_of_it
        assert {place: at(doc, place) for place in facts} == facts
        assert doc["meta"].get("tags", []) == ([] if format_name == "gptsh" else [format_name])
        assert all("imported" in m["source"] for m in doc["messages"])
        assert "iVBORw0KGgo" in json.dumps(doc) or "[image/png]" not in lines_of_it
        check_requests(doc)
    assert set(states(import_file(home, path))) == {"known"}
    assert (path.read_bytes(), path.stat().st_mtime_ns) == kept


def carried(form: str, of_it: str) -> str:
    """What of a session's lines comes back from a format: no errors as such, no thinking in the one of OpenAI."""
    if form == "json":
        return of_it
    of_it = re.sub(r" (failed|well):", ":", of_it.replace(" ()", ""))
    of_it = re.sub(r"(\S+\.pdf:\n)?\[application/pdf[^\]]*\]", "[a PDF]", of_it)
    of_it = re.sub(r"\b(a\.txt|a\.png|tea\.png):", "", of_it)
    return re.sub(
        r"\s+", " ", re.sub(r" \([^()]*\)", "", of_it) if form == "openai" else of_it
    )  # texts are joined


UNANSWERED = {f"{CHECKPOINT}/conversation.json"}  # calls or results alone
WAYS = [(sample, form) for sample in SAMPLES for form in ("json", "openai", "nanobot")
        if form == "json" or sample not in UNANSWERED]  # fmt: skip


@pytest.mark.parametrize(("sample", "form"), WAYS)
def test_a_sample_goes_out_and_comes_back(home: Home, sample: str, form: str) -> None:
    import_file(home, HISTORIES / sample)
    for doc in home.docs():
        out = home.run("--export-session", doc["id"], "--format", form)
        other = home.elsewhere()
        back = write(
            home.folder / "out" / doc["id"],
            out.stdout,
            "talk.jsonl" if form == "nanobot" else "talk.json",
        )
        assert states(import_file(other, back)) == ["imported"]
        new = max(other.docs(), key=lambda new: str(new["meta"]["imported_at"]))
        assert carried(form, transcript_of(new)) == carried(form, transcript_of(doc))
        if SAMPLES[sample][0] == form:
            assert out.stdout.encode() == (HISTORIES / sample).read_bytes()


# Files that hold no session, and are no file of an unknown format either.
RESULTS = f"{CLAUDE}/tool-results"
BESIDE: dict[str, Any] = {
    "claude_code/sessions-index.json": {"version": 1, "entries": [{"sessionId": "s1", "fullPath": "/x"}]},
    f"{CLAUDE}/subagents/agent-a1.meta.json": {"agentType": "Explore"},
    f"{RESULTS}/torn.json": "{", f"{RESULTS}/mcp.json": [{"role": "user", "content": "x"}],
    f"{CHECKPOINT}/files/copied.json": (HISTORIES / NANOCODER).read_bytes(),  # of the project, whatever it holds
}  # fmt: skip


def test_a_folder_of_all_samples_is_imported_at_once(home: Home) -> None:
    shutil.copytree(HISTORIES, folder := home.folder / "in")
    for name, value in BESIDE.items():
        write(folder, value, name)
    run = import_file(home, folder)
    formats = {line.rpartition("(")[2].rstrip(")") for line in run.stdout.splitlines()}
    known = (
        import_file(home, write(home.folder, [1]))
        .stderr.rpartition("known formats: ")[2]
        .strip()
        .split(", ")
    )
    assert formats == set(known) - {"markdown", "openai"}
    old, total, beside = import_notes(run, folder)
    assert old.partition(": ")[0] == "/llm/logs_continued_0.36.db"
    assert total == "1 input could not be read"
    assert beside.startswith("skipped ")
    assert set(states(import_file(home, folder))) == {"known"}


# ---- files of each format, written here

FIRST = line(1, "hello")
SPAWNED = {"isSidechain": True}
RECORDS = read_sample("codelet/.fspec/messages/messages.jsonl")
HI: dict[str, Any] = {"role": "user", "content": "hi"}


def shown(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """An export of ChatGPT with one conversation of these messages, whose ids are their numbers."""
    nodes = {}
    for number, one in enumerate(messages, 1):
        rest = {
            key: value
            for key, value in one.items()
            if key not in ("role", "author", "recipient", "metadata")
        }
        record = {
            "id": str(number), "create_time": 1.7e9 + number,
            "author": {"role": one["role"], "name": one.get("author")},
            "content": {"content_type": "text", **rest}, "recipient": one.get("recipient", "all"),
            "metadata": one.get("metadata", {}),
        }  # fmt: skip
        nodes[str(number)] = {"parent": str(number - 1), "message": record}
    return [{"id": "c", "current_node": str(len(messages)), "mapping": nodes}]


CITED, OTHER, LOST = (f"\ue200cite\ue202turn0search{number}\ue201" for number in range(3))

CODEX = (
    ': a session of Codex: import its messages with jq -c \'.payload | select(.type == "message") '
    '| {role, content: [.content[].text] | join("")}\' FILE | gptsh --import-session -'
)

# The name of a file, what it holds, and what is told of the sessions that come of it: all of it could be read.
SHAPES: dict[str, tuple[str, Any, list[str], dict[str, Any]]] = {
    "claude-code: an agent that was sent off is another session": ("a.jsonl", (
        line(1, "main"), line(2, "go", **SPAWNED), line(3, "going", "assistant", **SPAWNED),
        line(4, "on", after=1), line(5, "named", agentId="x", **SPAWNED),
    ), ["user: main\nuser: on\n", "user: go\nassistant: going\n", "user: named\n"], {"meta.imported.key": "s1"}),
    "claude-code: a session that goes on in a new file has what that file copied of the old one": ("a.jsonl", (
        line(1, "old"), line(2, "more"), line(3, "new", sessionId="s2"), line(3, "new", sessionId="s2"),
    ), ["user: old\nuser: more\nuser: new\n"], {"meta.imported.key": "s2"}),
    "claude-code: an answer between whose lines a result came is one, its usage counted once": ("a.jsonl", (
        line(1, "go"), reply(2, tool("a"), message={"usage": {"input_tokens": 3, "output_tokens": 1}}),
        line(3, [result("a", is_error=False)], toolUseResult={"stdout": "a"}),
        reply(4, tool("b"), message={"usage": {"input_tokens": 3, "output_tokens": 9}}), line(5, [result("b")]),
    ), ["user: go\nassistant: ls{}=a ls{}=b\ntool a well: a\ntool b: b\n"],
       {"messages.1.usage.completion": 9, "usage.tokens.total": 12, "messages.2.raw": {"stdout": "a"}}),
    "claude-code: what is marked keeps its mark": ("a.jsonl", (
        line(1, "caveat", isMeta=True),
        reply(2, "API Error", message={"id": "e", "model": "<synthetic>"}, isApiErrorMessage=True),
        {**line(3, ""), "type": "attachment", "message": None,
         "attachment": {"type": "queued_command", "prompt": "and this"}},
        reply(4, {"type": "redacted_thinking", "data": "x"}), reply(5, "42"),
    ), ["user: caveat\nassistant: API Error\nuser: and this\nassistant: (redacted_thinking) 42\n"],
       {"messages.0.source.isMeta": True, "messages.1.finish_reason": "error", "messages.1.model": None}),
    "claude-code: of the titles that were given the last one counts": ("a.jsonl", (
        *({"type": "custom-title", "customTitle": name, "sessionId": "s1"} for name in "XY"), FIRST,
    ), ["user: hello\n"], {"title": "Y"}),
    "claude-code: of a conversation that was rewound the branch that was gone on with": ("a.jsonl", (
        line(1, "u1"), reply(2, "a1", message={"id": "r1"}), line(3, "u2"), reply(4, "a2", message={"id": "r2"}),
        line(5, "u3", after=2), reply(6, "a3", message={"id": "r3"}),
    ), ["user: u1\nassistant: a1\nuser: u3\nassistant: a3\n"], {}),
    "claude-code: results of calls at once fork, and a lead may be torn": ("a.jsonl", (
        line(1, "u1"), line(2, "u2", after=77), reply(3, tool("a")), reply(4, tool("b")),
        line(5, [result("a")], after=3), line(6, [result("b")], after=4), reply(7, "done", message={"id": "r2"}),
    ), ["user: u1\nuser: u2\nassistant: ls{}=a ls{}=b\ntool a: a\ntool b: b\nassistant: done\n"], {}),
    "claude-code: a gateway may give all responses one id, or none": ("a.jsonl", (
        line(1, "u1"), reply(2, "a1"), line(3, "u2"), reply(4, "a2"),
        line(5, "u3"), reply(6, "a3", message={"id": ""}), line(7, "u4"), reply(8, "a4", message={"id": ""}),
    ), ["user: u1\nassistant: a1\nuser: u2\nassistant: a2\nuser: u3\nassistant: a3\nuser: u4\nassistant: a4\n"], {}),
    "chatgpt: results without a call, two of one call, a question that is only a file": ("conversations.json", shown(
        {"role": "user", "parts": [""], "metadata": {"attachments": [{"name": "a.pdf"}]}},
        {"role": "tool", "parts": ["found"], "author": "file_search"},
        {"role": "assistant", "parts": ["q"], "recipient": "web"}, {"role": "tool", "parts": ["Q1"], "author": "web"},
        {"role": "tool", "author": "web", "content_type": "tether_quote", "title": "T", "url": "U", "text": "Q2"},
        {"role": "assistant", "parts": ["so"]},
    ), ["user: [attachment]\nassistant: file_search=2\ntool 2: found\nassistant: webq=3\ntool 3: Q1\n"
        "assistant: web=5\ntool 5: T\nU\nQ2\nassistant: so\n"], {"messages.0.content.0.source": "a.pdf"}),
    "chatgpt: citations are links, and their pages the sources": ("conversations.json", shown(
        {"role": "user", "parts": ["find \ue200it\ue201"]},
        {"role": "assistant", "metadata": {"content_references": [
            {"matched_text": CITED, "alt": "([A](https://a.example/))", "type": "grouped_webpages", "items": [
                {"url": "https://a.example/", "title": "A [1]",
                 "supporting_websites": [{"url": "https://b.example/", "attribution": "B"}]},
            ]},
            {"matched_text": OTHER, "items": [{"url": "https://c.example/", "title": "C"}]},
            {"matched_text": "\ue200entity\ue202[]\ue201", "alt": "Oslo"}, {"matched_text": " ", "sources": [
                {"url": "https://d.example/", "title": ""}, {"url": "https://a.example/", "title": "Other"},
            ]},
        ]}, "parts": [f"One {CITED} two{OTHER} \ue200entity\ue202[]\ue201{LOST}!【x】"]},
    ), ["user: find \ue200it\ue201\n"
        "assistant: One ([A](https://a.example/)) two[C](<https://c.example/>) Oslo!【x】\n"], {
        "messages.1.sources": [
            {"url": "https://a.example/", "title": "A [1]"}, {"url": "https://b.example/", "title": "B"},
            {"url": "https://c.example/", "title": "C"}, {"url": "https://d.example/", "title": None},
        ],
    }),
    "chatgpt: citations of an older answer are links": ("conversations.json", shown(
        {"role": "user", "parts": ["find"]},
        {"role": "assistant", "parts": [f"a【4†source】 b{CITED}"], "metadata": {"citations": [
            {"start_ix": 1, "end_ix": 11, "metadata": {"type": "webpage", "title": "T", "url": "https://a.example/"}},
            {"start_ix": 13, "end_ix": 13 + len(CITED), "metadata": {"title": "U", "url": "https://b.example/"}},
            {"start_ix": None, "metadata": {"name": "a.pdf"}},
        ]}},
    ), ["user: find\nassistant: a[T](<https://a.example/>) b[U](<https://b.example/>)\n"], {
        "messages.1.sources.0": {"url": "https://a.example/", "title": "T"},
    }),
    "chatgpt: a current node that the export lacks is the newest one": ("conversations.json", [
        {**shown({"role": "user", "parts": ["hi"]}, {"role": "assistant", "parts": ["ho"]})[0], "current_node": "9"},
    ], ["user: hi\nassistant: ho\n"], {}),
    "claude-ai: of messages of one time the last one ends the branch; pages that a search found": (
        "conversations.json", [{"uuid": "c-5", "chat_messages": [
            {"uuid": "m1", "parent_message_uuid": "0", "sender": "human", "text": "hi", "content": []},
            {"uuid": "m2", "parent_message_uuid": "m1", "sender": "assistant", "content": [
                tool("a"), result("a", content=[{"type": "knowledge", "title": "T", "url": "U", "text": "words"}]),
            ]},
        ]}], ["user: hi\nassistant: ls{}=a\ntool a: T\nU\nwords\n"], {},
    ),
    "claude-ai: a voice note is a text, and an empty text is none": ("conversations.json", [
        {"uuid": "c-6", "chat_messages": [
            {"uuid": "m1", "sender": "human", "text": "hi", "content": []},
            {"uuid": "m2", "sender": "assistant", "text": "", "content": [
                {"type": "text", "text": ""}, {"type": "voice_note", "title": "T", "text": "ho"},
            ]},
        ]},
    ], ["user: hi\nassistant: ho\n"], {}),
    "claude-ai: an export without branches": (
        "conversations.json", [{"uuid": "c-4", "chat_messages": [
            {"uuid": "m1", "sender": "human", "text": "hi", "content": []},
            {"uuid": "m2", "sender": "assistant", "text": "ho"},
        ]}], ["user: hi\nassistant: ho\n"], {},
    ),
    "openai: the body of a request in Anthropic's shape": ("a.json", {
        "model": "claude-x", "max_tokens": 9, "system": [{"type": "text", "text": "Be brief."}], "messages": [
            HI, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, tool("a")]},
            {"role": "user", "content": [
                {"type": "text", "text": "on"}, result("a", is_error=True, content={"é": [1]}),
            ]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "so"}, {"type": "text", "text": "ho"}]},
        ],
    }, ['user: hi\nassistant: (hm; signed) ls{}=a\ntool a failed: {"é": [1]}\nuser: on\nassistant: (so) ho\n'],
       {"agent.system": "Be brief.", "agent.params.max_tokens": 9}),
    "openai: the functions of its first API, and the roles of others": ("a.json", [
        {"role": "assistant", "content": "So.", "function_call": {"name": "ls", "arguments": "{}"}},
        {"role": "function", "name": "ls", "content": "a"}, {"role": "model", "content": "b"},
        {"role": "ai", "content": "c"}, {"role": "novel", "content": "d"},
    ], ["assistant: So. ls{}=call_ls\ntool call_ls: a\nassistant: b\nassistant: c\nuser: d\n"], {}),
    "openai: lines of role and content": ("a.jsonl", (
        {"role": "system", "content": "Be brief."}, HI, {"role": "assistant", "content": "ho"},
    ), ["user: hi\nassistant: ho\n"], {"agent.system": "Be brief."}),
    "gptsh: the first one took the id from the file's name": ("20251027-091530-ab1c.json", {
        key: value for key, value in read_sample(OWN).items() if key != "id"
    }, [SAMPLES[OWN][1][0][0]], {"id": "ab1c"}),
    "gptsh: a BOM in front of a document": (
        "own.json", b"\xef\xbb\xbf" + (HISTORIES / OWN).read_bytes(), [SAMPLES[OWN][1][0][0]], {"id": "7x2m"},
    ),
    "llm: a fork has what it came from": ("logs.db", Script(
        STORE + ASKED + "INSERT INTO threads VALUES ('t2', 'fork', 'a1', 't1', NULL);"
    ), [HELLO, HELLO], {"messages.1.model": "gpt-4o"}),
    "openai: the body of a request names model and parameters": ("a.json", {
        "model": "openai/gpt-4.1", "temperature": 0.5, "tools": [], "api_key": "k",
        "messages": [{"role": "system", "content": "Be brief."}, HI],
    }, ["user: hi\n"], {"agent.model": "openai/gpt-4.1", "agent.params": {"temperature": 0.5},
                        "agent.system": "Be brief."}),
    "openai: instructions in front are the system prompt, later ones messages": ("a.json", [
        {"role": "developer", "content": [{"type": "text", "text": "a"}]}, {"role": "system", "content": "b"}, HI,
        {"role": "assistant", "content": None, "id": "x-1", "cost": 9e9, "reasoning_content": "r",
         "tool_calls": [{"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}]},
        {"role": "system", "content": "later"},
    ], ["user: hi\nassistant: (r) shls -l=c2\nsystem: later\n"],
       {"agent.system": "a\n\nb", "messages.1.id": "x-1", "messages.1.cost": None}),
}  # fmt: skip


# ---- files in which something is odd

DEEP: Any = json.loads("[" * 120 + "]" * 120)
HEAD = {"_type": "metadata", "key": "cli:direct"}
TORN = '{"torn'
TORN_HERE = ":{}: not JSON"
BAD_MESSAGE = "not a readable message"
NO_WORDS = ": a message whose content is neither text nor parts"
NO_ROLE = ": a message without a role"
UNKNOWN = ": unknown format"

# The name of a file, what it holds, what is told of its sessions, what is said on stderr (the path left out).
ODD: dict[str, tuple[str, Any, list[str], list[str]]] = {
    "claude-code": ("a.jsonl", (
        json.dumps(line(1, "1")) + json.dumps(line(2, "2")), "\0" * 50 + json.dumps(line(3, "3")), TORN,
        line(4, 7), {**line(5, ""), "message": "x"}, {**line(6, ""), "type": "novel"}, line(7, [1]),
    ), ["user: 1\nuser: 2\nuser: 3\n"],
       [TORN_HERE.format(3), *(f":{at}: {BAD_MESSAGE}" for at in (5, 6)), *(f":{at}{NO_WORDS}" for at in (4, 7)),
        "5 inputs could not be read"]),
    "nanocoder": ("a.json", {**read_sample(NANOCODER), "messages": [
        HI, {"content": "x"}, {"role": "user", "content": 7}, {"role": "assistant", "content": "", "tool_calls": ["x"]},
    ]}, ["user: hi\n"], [NO_ROLE, NO_WORDS, f": {BAD_MESSAGE}", "3 inputs could not be read"]),
    "openai": ("a.json", [
        HI, 7, {"role": "user", "content": 7},
    ], ["user: hi\n"], [": item 2 is not an object", NO_WORDS, "2 inputs could not be read"]),
    "nanobot": ("a.jsonl", (
        HEAD, HI, TORN, "[]", {"role": 5}, {"role": "user", "content": {}}, HI,
    ), ["user: hi\nuser: hi\n"], [
        TORN_HERE.format(3), ":4: not a JSON object", f":5{NO_ROLE}", f":6{NO_WORDS}", "4 inputs could not be read",
    ]),
    "gptsh, a newer version": ("a.json", session(version=99), [], [": written by a newer gptsh (version 99)"]),
    "gptsh, a message without a role": ("a.json", session(messages=[7]), [], [f": not a session{NO_ROLE}"]),
    "claude-code, lines without an id": ("a.jsonl", (
        FIRST, {**line(2, "2"), "uuid": None}, {key: value for key, value in line(3, "3").items() if "uid" not in key},
    ), ["user: hello\nuser: 2\nuser: 3\n"], []),
    "chatgpt, a message of another shape, and one of a kind that nobody knows": ("conversations.json", [
        {"id": "c", "current_node": "b", "mapping": {
            "a": {"parent": None, "message": {"content": {"content_type": "text", "parts": ["hi"]}}},
            "b": {"parent": "a",
                  "message": {"id": "b", "author": {"role": "tool"}, "content": {"content_type": "novel"}}},
        }},
    ], ["assistant: tool=b\ntool b: [novel]\n"], [f", session 1: {BAD_MESSAGE}", "1 input could not be read"]),
    "chatgpt, beside a conversation of another shape": (
        "conversations.json", [*read_sample("chatgpt/conversations.json"), {"mapping": {}}], [TEA],
        [", session 2: not in the format that its tool writes", "1 input could not be read"],
    ),
    "lines of our own messages": (
        "own.jsonl", ({"id": "m1", "parent": None, "timestamp": "2025-01-01T00:00:00Z", **HI},) * 2, [],
        [": messages of gptsh without their session: export both with --export-session REF --format json"],
    ),
    "aichat": (
        "a.yaml", "model: openai:gpt-4o\nmessages:\n- role: user\n  content: hi\n", [],
        [": a session of aichat: import it with yq -o json FILE | gptsh --import-session -"],
    ),
    "codex": ("rollout.jsonl", (
        {"timestamp": "", "type": "session_meta", "payload": {"id": "x", "cwd": "/"}},
        {"timestamp": "", "type": "response_item", "payload": {"type": "message", **HI}},
    ), [], [CODEX]),
    "a zip archive": ("a.zip", b"PK\x03\x04", [], [": a zip archive: unpack it, and import the folder"]),
    "aichat, as JSON, with the messages that it compressed": ("a.json", {
        "model": "x", "compressed_messages": [HI], "messages": [{"role": "assistant", "content": "ho"}],
    }, ["user: hi\nassistant: ho\n"], []),
    "mods": ("a.gob", b"\x13\xff", [], [": a conversation of mods: pass its text on with mods --show ID | gptsh"]),
    "Markdown of another kind": (
        "notes.md", "# Notes\n", [],
        [": its last line contains no session: import the complete file that --export-session wrote"],
    ),
    "nothing at this path": ("a.json/b.json", None, [], [": no such file or folder"]),
    "empty": ("a.json", "", [], [": empty"]),
    "of no format": ("a.json", [1], [], [UNKNOWN]),
    "torn JSON": ("a.json", '\n{"a": 1,\n "b" 2}', [], [": not JSON"]),
    "too deep": ("a.json", session(odd=DEEP), [], [": nested more than 100 levels deep"]),
    "far too deep": ("a.json", "[" * 100_000, [], [": nested more than 100 levels deep"]),
    "far too deep, on a line": ("a.jsonl", (HI, "[" * 100_000), ["user: hi\n"],
        [":2: not JSON", "1 input could not be read"]),
    "no UTF-8": ("a.json", b'{"version": 1, "id": "\xff"}', [], [": not JSON"]),
    "a BOM, CR, blank lines": (
        "a.jsonl", f"\ufeff\n \r\n{json.dumps(HI)}\r\n" + "\n" * 9999 + "x\n" + json.dumps(HI),
        ["user: hi\nuser: hi\n"], [":10003: not JSON", "1 input could not be read"],
    ),
    "many broken lines": (
        "a.jsonl", (HI, *"x" * 30), ["user: hi\n"],
        [*(f":{at}: not JSON" for at in range(2, 22)), "30 inputs could not be read; 10 are not listed above"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", [*SHAPES, *ODD])
def test_a_file_comes_in_and_what_cannot_be_read_is_named(home: Home, row: str) -> None:
    name, content, expected, more = {**SHAPES, **ODD}[row]
    facts, complaints = (more, []) if isinstance(more, dict) else ({}, more)
    path = home.folder / "in" / name
    if content is not None:
        write(path.parent, content, name)
    run = home.run("--import-session", str(path), "-o", "jsonl")
    items = [json.loads(item) for item in run.stdout.splitlines()]
    docs = {doc["id"]: doc for doc in home.docs()}
    taken = [docs[item["session"]] for item in items if "session" in item]
    assert [transcript_of(doc) for doc in taken] == expected
    assert [
        line.partition(": known formats: ")[0] for line in import_notes(run, path)
    ] == complaints
    assert run.code == (0 if taken else 2)
    for doc in taken:
        assert doc["meta"]["imported"]["format"] == re.split("[:,]", row)[0] or row not in SHAPES
        check_requests(doc)
    if taken:
        assert {place: at(taken[0], place) for place in facts} == facts
        assert set(states(import_file(home, path))) == {"known"}
    else:
        assert items[0]["error"]["message"].replace(str(path), "").startswith(complaints[0])


def test_codelet_the_raw_output_beside_the_message_of_an_envelope_is_kept(home: Home) -> None:
    envelopes = read_sample("codelet/envelopes_full.jsonl")
    line = next(one for one in envelopes if "tool_use_result" in json.dumps(one))
    line["toolUseResult"] = {
        "stdout": "out",
        "stderr": "err",
        "interrupted": False,
        "isImage": False,
    }
    path = home.folder / "envelopes.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in envelopes))
    assert home.run("--import-session", str(path)).code == 0
    results = [message for message in home.doc()["messages"] if message["role"] == "tool"]
    assert [result["raw"]["stderr"] for result in results] == ["err", "ENOENT"]  # one has its own


def test_codelet_opens_no_blob_of_another_path_and_reports_missing_messages(home: Home) -> None:
    copy = Path(shutil.copytree(HISTORIES / "codelet/.fspec", home.folder / "copy"))
    records = json.loads(json.dumps(RECORDS[:4]))
    blobs = ["blob:sha256:../../secret", f"blob:sha256:{'0' * 64}"]
    for record, blob in zip(records[2:], blobs, strict=True):
        record["metadata"]["message"]["content"][0]["content"] = blob
    write(copy, tuple(records), "messages/messages.jsonl")
    run = import_file(home, next(copy.glob("sessions/*")))
    assert [message["content"] for message in home.doc()["messages"][2:]] == blobs
    assert run.stderr.count("missing, or its hash is not its name") == 1
    assert "not in the store beside it\n" in run.stderr


def test_claude_ai_a_file_without_a_name_is_an_attachment(home: Home) -> None:
    question = {"uuid": "m1", "sender": "human", "text": "look", "files": [{"file_uuid": "f"}]}
    talk = {"uuid": "c-7", "chat_messages": [question]}
    import_file(home, write(home.folder, [talk], "conversations.json"))
    assert home.doc()["messages"][0]["content"][1]["source"] == "attachment"
