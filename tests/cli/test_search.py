"""Searches: what is searched and what is not, what they print, and that no session is missed for speed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.sessions import archived, keep
from tests.support.terminal import Terminal

STAMP = "2026-11-03T10:00:00.000Z"
RED, SGR = "\x1b[1;31m{}\x1b[0m", r"\x1b\[[0-9;]*m"


def session(*messages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A document in today's shape, its messages last."""
    chain = [
        {"id": f"id-{at}", "parent": f"id-{at - 1}" if at else None, "timestamp": STAMP, **message}
        for at, message in enumerate(messages)
    ]
    turns = sum(message["role"] == "user" for message in messages)
    stats = {"turns": turns, "messages": len(messages), "preview": ""}
    context = {"summaries": [], "snapshots": [], "consolidated": None}
    head = {"version": 1, "id": "aaaa", "title": None, "created_at": STAMP, "updated_at": STAMP, "stats": stats}
    return {**head, "meta": {}, "agent": {}, "context": context, **keys, "messages": chain}


def own(doc: dict[str, Any]) -> bytes:
    """As the store writes it: compact, and what is no text an escape."""
    text = json.dumps(doc, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def put(home: Home, name: str, doc: dict[str, Any] | bytes) -> Path:
    """A file among the sessions; ``name`` is ``HHMMSS-id``."""
    return keep(home, f"20261103-{name}", doc if isinstance(doc, bytes) else own(doc))


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def ids(home: Home, *args: str) -> list[str]:
    """The ids of the sessions that a search finds."""
    return re.findall(r"^\[\d+\] (\w{4}) ", home.run("--search-sessions", *args).stdout, re.MULTILINE)


def match_in(home: Home, doc: dict[str, Any] | bytes, text: str) -> str | None:
    """The passage that a search shows of a store with a single file; None where it finds nothing."""
    put(home, "100000-aaaa", doc)
    run = home.run("--search-sessions", text, "-o", "json")
    items = json.loads(run.stdout)
    assert (run.stderr, run.code) == ("", 0 if items else 1)
    return str(items[0]["match"]) if items else None


def spelled(value: Any) -> str:
    """JSON with every letter of its values an escape."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{spelled(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(spelled, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    units = value.encode("utf-16-be", "surrogatepass").hex()
    return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'


LAYOUTS = {  # our own is searched by its bytes, what ``jq`` writes the long way: no session is missed for speed
    "own": own,
    "by jq": lambda doc: json.dumps(doc, indent=2).encode() + b"\n",
    "in escapes": lambda doc: spelled(doc).encode(),
    "of the first version": lambda doc: own({key: value for key, value in doc.items() if key != "version"}),
}

# ---- what is searched

PNG = "data:image/png;base64,datapng"
CALL = {"id": "callid", "type": "function", "function": {"name": "toolname", "arguments": '{"argkey": "argvalue"}'}}
EVERYTHING = session(
    {"role": "system", "content": "systemmessage"},
    user([
        {"type": "text", "text": "typed words"},
        {"type": "text", "text": "piped", "source": "stdin"},
        {"type": "text", "text": "attached", "source": "notes.txt"},
        {"type": "image_url", "image_url": {"url": PNG}, "source": "shot.jpeg"},
        {"type": "document", "title": "doctitle",
         "source": {"type": "text", "media_type": "text/plain", "data": "doctext"}},
    ]),
    answer("answered", tool_calls=[CALL], thinking=[{"type": "thinking", "thinking": "thought", "signature": "sealed"}],
           replay={"reasoning_content": "reasoned"}, usage={"raw": {"rawusage": 1}}, model="modelname",
           provider="providername", response_id="responseid", finish_reason="stop"),
    {"role": "tool", "tool_call_id": "callid", "name": "toolname", "content": "resulttext",
     "raw": {"stdout": "rawout"}},
    answer([{"type": "text", "text": "in a part"}, {"type": "tool_use", "id": "useid", "name": "usename",
                                                    "input": {"inputkey": "inputvalue"}}]),
    user([{"type": "tool_result", "tool_use_id": "useid", "content": [{"type": "text", "text": "foreignresult"}]}]),
    answer("", refusal="refused"),
    {"role": "developer", "content": "developermessage"},
    {"role": "notice", "content": "noticed"},
    title="The titleword",
    agent={"name": "agentname", "model": "modelname", "system": "systemprompt"},
    meta={"tags": ["tagged"], "project": "/projectpath", "cwd": "/cwdpath"},
    context={"summaries": [{"id": "s", "text": "summedup"}], "snapshots": [], "consolidated": None},
)  # fmt: skip
FOUND = {
    "titleword": "title: The titleword", "typed": "user: typed words", "piped": "user (stdin): piped",
    "attached": "user (notes.txt): attached", "notes.txt": "user: notes.txt", "shot.jpeg": "user: shot.jpeg",
    "doctext": "user (doctitle): doctext", "answered": "assistant: answered", "toolname": "tool call: toolname",
    "argvalue": 'tool call (toolname): {"argkey": "argvalue"}',
    "argkey": 'tool call (toolname): {"argkey": "argvalue"}', "resulttext": "tool (toolname): resulttext",
    "part": "assistant: in a part", "inputvalue": 'tool call (usename): {"inputkey": "inputvalue"}',
    "foreignresult": "tool: foreignresult", "refused": "assistant: refused", "noticed": "user: noticed",
}  # fmt: skip
NOT_FOUND = [
    "systemmessage", "developermessage", "systemprompt", "thought", "sealed", "reasoned", "rawusage", "modelname",
    "providername", "responseid", "callid", "useid", "id-1", "rawout", "agentname", "tagged", "projectpath", "cwdpath",
    "summedup", "datapng", "image/png", "base64", "image_url", "assistant", "tool_calls", "content", "function", "stop",
    "parent", STAMP, "version", "null", "aaaa",
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_texts_are_searched_and_nothing_else(home: Home, layout: str) -> None:
    data = LAYOUTS[layout](EVERYTHING)
    assert {word: match_in(home, data, word) for word in FOUND} == FOUND
    assert [word for word in NOT_FOUND if match_in(home, data, word)] == []


MATCHING = [
    ("Grüße", "viele GRÜSSE und grüße", True), ("GRÜßE", "grüße", True), ("grüße", "GRÜSSE", True),
    ("gruesse", "grüße", False), ("grusse", "grüße", False), ("straße", "STRASSE", True), ("strasse", "straße", False),
    ("café", "CAFE\u0301", True), ("CAFE\u0301", "café", True), ("cafe", "café", False), ("привет", "ПРИВЕТ", True),
    ("ПРИВЕТ", "привет", True), ("日本", "在日本語", True), ("😀", "a😀b", True), ("kiss", "\u212aiss", False),
    ("\u212bngström", "\u212bngström", True), ("i", "İ", False), ("é", "e\u0301", True),
    ("foo", "a\nFooBar", True), ("bar", "foo\tbar", True), ('"hi"', 'say "hi"!', True),
    ("c:\\temp", "in C:\\Temp", True),
    ("a/b", "A/B", True), ("a.b", "axb", False), ("a*", "aaa", False), ("[x]", "[X]", True), ("a b", "b then a", True),
    ("a c", "a b", False), ("ab bc", "abc", True), ("\x1b[31m", "\x1b[31mred", True), ("n", "\n", False),
    ("u00fc", "ü", False), ("content", "the content", True), ("user", "a user's", True), ("stop", "a stop", True),
    ("type", "text", False), ("role", "role:user", True), ("b\udce9", "b\udce9", True),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["own", "by jq", "in escapes"])
def test_words_match_in_either_case_and_as_they_are_written(home: Home, layout: str) -> None:
    found = [match_in(home, LAYOUTS[layout](session(user(text))), words) for words, text, _ in MATCHING]
    assert [row for row, match in zip(MATCHING, found, strict=True) if (match is not None) != row[2]] == []


@pytest.mark.parametrize(
    ("word", "arguments"),
    [
        ("grüße", '{"q": "gr\\u00fc\\u00dfe"}'), ("😀", '{"q": "\\ud83d\\ude00"}'), ('"hi"', '{"q": "say \\"hi\\""}'),
        ("src/a.py", '{"q": "src\\/a.py"}'), ("C:\\Users", '{"q": "C:\\\\users"}'), ("two", '{"q": "one\\ntwo'),
        ("{bad", "{bad"), ("\\U", "C:\\Users"),
    ],
)  # fmt: skip
def test_arguments_are_searched_as_they_read(home: Home, word: str, arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    doc = session(answer(None, tool_calls=[call]))
    for layout in ("own", "by jq", "in escapes"):
        assert match_in(home, LAYOUTS[layout](doc), word)


def test_a_copy_of_a_message_in_raw_data_is_no_message(home: Home) -> None:
    copy = {"id": "id-9", "parent": None, "timestamp": STAMP, "role": "user", "content": "needle"}
    result = {"role": "tool", "tool_call_id": "c", "content": "read", "raw": {"structured": [copy, copy]}}
    assert match_in(home, session(user("go"), result), "needle") is None
    assert match_in(home, session(user("go"), result, user("the needle")), "needle") == "user: the needle"


# ---- the passage


@pytest.mark.parametrize(
    ("messages", "words", "match"),
    [
        ([user("one\n\n  two\tthree")], "two", "user: one two three"),
        ([user("a needle"), answer("a needle, a haystack")], "haystack needle", "assistant: a needle, a haystack"),
        ([user("a needle"), answer("a needle and a haystack")], "needle", "user: a needle"),
        ([user("a needle"), answer("a haystack")], "haystack needle", "user: a needle"),
        ([user("x " * 300 + "needle" + " y" * 300)], "needle", "user: … x x x x x needle y y y y y …"),
        ([user("x" * 300 + "needle" + "y" * 300)], "needle", "user: …xxxxxxxxxxxneedleyyyyyyyyyyy…"),
        ([user("needle" + " y" * 300)], "needle", "user: needle y y y y y y y y y y y …"),
        ([user("x " * 300 + "needle")], "needle", "user: … x x x x x x x x x x x needle"),
        ([user("x " * 300 + "needle" + "\n" * 999 + "y")], "needle", "user: … x x x x x x x x x x needle…"),
        ([user("needle " + "x " * 30 + "hay and needle")], "needle hay", "user: … x x x x x x x hay and needle"),
        ([user("pin " + "x " * 30 + "hay " + "x " * 30 + "a pin, hay")], "hay pin",
         "user: … x x x x x x x x x a pin, hay"),
    ],
)  # fmt: skip
def test_the_passage_has_most_of_the_words_and_is_as_wide_as_there_is_room(
    home: Home, messages: list[dict[str, Any]], words: str, match: str
) -> None:
    put(home, "100000-aaaa", session(*messages))
    line = home.run("--search-sessions", words, env={"COLUMNS": "40"}).stdout.splitlines()[1]
    assert line == f"    {match}"
    assert len(line) <= 40


# ---- the command


@pytest.fixture
def three(home: Home) -> Home:
    """Three sessions, the newest first by its id: cccc, bbbb, aaaa."""
    put(home, "100000-aaaa", session(user("the first needle"), meta={"tags": ["red"], "project": str(home.cwd)}))
    put(home, "100001-bbbb", session(user("nothing"), answer("hay"), agent={"name": "other", "model": "lab/m"}))
    put(home, "100002-cccc", session(user("Needle"), answer("and hay"), title="Third", agent={"model": "lab/n"}))
    return home


def test_a_search_prints_list_lines_with_the_context_under_them(three: Home) -> None:
    assert three.run("--search-sessions", "needle") == (
        "[0] cccc 2026-11-03 10:00 Third (?|lab/n)\n    user: Needle\n"
        "[2] aaaa 2026-11-03 10:00 (untitled) (?|?)\n    user: the first needle\n",
        "",
        0,
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["hay"], ["cccc", "bbbb"]), (["hay needle"], ["cccc"]), (["  hay \n needle"], ["cccc"]),
        (["hay", "--limit", "1"], ["cccc"]), (["hay", "-a", "other"], ["bbbb"]), (["hay", "-m", "m"], ["bbbb"]),
        (["needle", "--tag", "red"], ["aaaa"]), (["needle", "--here"], ["aaaa"]), (["hay", "--limit", "0"], []),
        (["hay", "-a", "nobody"], []), (["pin"], []),
    ],
)  # fmt: skip
def test_filters_are_those_of_the_list(three: Home, args: list[str], expected: list[str]) -> None:
    assert ids(three, *args) == expected
    assert three.run("--search-sessions", *args)[1:] == ("", 0 if expected else 1)


def test_no_words_and_no_store(home: Home) -> None:
    assert home.run("--search-sessions", "x") == ("", "", 1)
    assert not home.state.exists()
    assert home.run("--search-sessions", " ").code == 2


def test_the_archive_is_searched_where_it_is_asked_for(three: Home) -> None:
    three.run("--archive-session", "cccc")
    assert len(archived(three)) == 1
    assert ids(three, "needle") == ["aaaa"]
    assert " cccc " in three.run("--search-sessions", "needle", "--archived").stdout


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_program_gets_the_objects_of_the_list_and_the_match(three: Home, output: str) -> None:
    def read(*args: str) -> list[dict[str, Any]]:
        text = three.run(*args, "-o", output).stdout
        items: list[dict[str, Any]] = json.loads(text) if output == "json" else [*map(json.loads, text.splitlines())]
        return items

    listed, items = read("--list-sessions"), read("--search-sessions", "needle")
    assert [item.pop("match") for item in items] == ["user: Needle", "user: the first needle"]
    assert items == [listed[0], listed[2]]
    assert three.run("--search-sessions", "pin", "-o", output) == ("[]\n" if output == "json" else "", "", 1)


def test_what_cannot_be_read_is_told_and_left_out(three: Home) -> None:
    whole = own(session(user("a needle"), answer("b")))
    put(three, "100003-torn", whole[:-40])
    put(three, "100004-jsan", whole.replace(b'"role":"assistant"', b'"role":7'))
    put(three, "100005-void", b"")
    (three.sessions / "20261103-100006-fold.json").mkdir()
    done = three.run("--search-sessions", "hay")
    assert re.findall(r"^\[(\d)\] (\w+)", done.stdout, re.MULTILINE) == [("4", "cccc"), ("5", "bbbb")]
    assert re.findall(r"skipped .*-(\w+)\.json: ", done.stderr) == ["fold", "void", "torn"]
    assert (done.stderr.count("\n"), done.code) == (3, 0)
    assert "-jsan.json: not a session" in three.run("--search-sessions", "b").stderr


def test_the_words_are_marked_on_a_terminal(home: Home) -> None:
    put(home, "100000-aaaa", session(user("a Needle in a haystack, needles")))
    line = "[0] aaaa 2026-11-03 10:00 (untitled) (?|?)\n"
    marked = f"{line}    user: a {RED.format('Needle')} in a {RED.format('hayst')}ack, {RED.format('needle')}s\n"
    args = ("--search-sessions", "needle hay ayst")
    assert Terminal(home, *args).close() == (marked.replace("\n", "\r\n").encode(), 0)
    assert home.run(*args).stdout == re.sub(SGR, "", marked)
    assert home.run(*args, env={"FORCE_COLOR": "1"}).stdout == marked
    assert home.run(*args, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout == marked.replace("1;31", "1")


@pytest.mark.parametrize("args", [[], ["-o", "text"], ["-o", "jsonl"]])
def test_control_characters_are_shown_and_not_obeyed(home: Home, args: list[str]) -> None:
    evil = "\x1b]0;owned\x07 \x9b2J a\rb"
    call = {"id": "c", "function": {"name": "\x1b[2Jname", "arguments": f"{evil} needle"}}
    put(home, "100000-aaaa", session(user("x"), answer(None, tool_calls=[call]), title=f"t{evil}"))
    seen = re.sub(SGR, "", Terminal(home, "--search-sessions", "needle", *args).close()[0].decode())
    assert not re.search(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)", seen)
    assert seen.count("\n") == (1 if "jsonl" in args else 2)
