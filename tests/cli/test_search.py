"""Searches: what is searched and what is not, what they print, and that no session is missed for speed."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.home import Home
from tests.support.messages import assistant, user
from tests.support.sessions import compact, in_lines, put_file
from tests.support.terminal import Terminal

STAMP = "2026-11-03T10:00:00.000Z"
RED = "\x1b[1;31m{}\x1b[0m"
SGR = r"\x1b\[[0-9;]*m"


def session(*messages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A document in today's shape, its messages last."""
    chain = [{"id": f"id-{at}", "parent": f"id-{at - 1}" if at else None, "timestamp": STAMP, **message}
             for at, message in enumerate(messages)]  # fmt: skip
    turns = sum(message["role"] == "user" for message in messages)
    return {"version": 1, "id": "aaaa", "title": None, "created_at": STAMP, "updated_at": STAMP,
            "stats": {"turns": turns, "messages": len(messages), "preview": ""}, "meta": {}, "agent": {},
            "context": {"summaries": [], "snapshots": [], "consolidated": None}, **keys, "messages": chain}  # fmt: skip


def put(home: Home, name: str, doc: dict[str, Any] | bytes) -> Path:
    """A file among the sessions; ``name`` is ``HHMMSS-id``."""
    return put_file(home, f"20261103-{name}", doc if isinstance(doc, bytes) else in_lines(doc))


def ids(home: Home, *args: str) -> list[str]:
    """The ids of the sessions that a search finds."""
    return re.findall(
        r"^\[\d+\] (\w{4}) ", home.run("--search-sessions", *args).stdout, re.MULTILINE
    )


def match_in(home: Home, doc: dict[str, Any] | bytes, text: str) -> str | None:
    """The passage that a search shows of a store with a single file; None where it finds nothing."""
    put(home, "100000-aaaa", doc)
    run = home.run("--search-sessions", text, "-o", "json")
    items = json.loads(run.stdout)
    assert run.stderr == ""
    assert run.code == (0 if items else 1)
    return str(items[0]["match"]) if items else None


LAYOUTS = {  # our own is searched by its bytes, what ``jq`` writes the long way: no session is missed for speed
    "own": in_lines,
    "on one line": compact,
    "by jq": lambda doc: json.dumps(doc, indent=2).encode() + b"\n",
    "of the first version": lambda doc: compact(
        {key: value for key, value in doc.items() if key != "version"}
    ),
}
ARGUMENTS = '{"argkey": "argv\\u00e4lue src\\/a.py"}'
READ = 'tool call (toolname): {"argkey": "argvälue src/a.py"}'  # as they read
CALL = {
    "id": "callid",
    "type": "function",
    "function": {"name": "toolname", "arguments": ARGUMENTS},
}
COPY = {"id": "id-9", "parent": None, "timestamp": STAMP, "role": "user", "content": "rawout"}
EVERYTHING = session(
    {"role": "system", "content": "systemmessage"},
    user([
        {"type": "text", "text": "typed words"},
        {"type": "text", "text": "attached", "source": "notes.txt"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,datapng"}, "source": "shot.jpeg"},
    ]),
    assistant("answered", tool_calls=[CALL],
           thinking=[{"type": "thinking", "thinking": "thought", "signature": "sealed"}],
           replay={"reasoning_content": "reasoned"}, usage={"raw": {"rawusage": 1}}, model="modelname", name="x"),
    {"role": "tool", "tool_call_id": "callid", "name": "toolname", "content": "resulttext",
     "raw": {"structured": [COPY, COPY]}},
    assistant([{"type": "text", "text": "in a part"}]),
    assistant("", refusal="refused",
         tool_calls=[{"id": "c", "function": {"name": "othername", "arguments": '{"b": "two"}'}}]),
    title="The titleword",
    agent={"name": "agentname", "model": "modelname", "system": "systemprompt"},
    meta={"tags": ["tagged"], "project": "/projectpath"},
    context={"summaries": [{"id": "s", "text": "summedup"}], "snapshots": [], "consolidated": None},
)  # fmt: skip
FOUND = {
    "titleword": "title: The titleword", "typed": "user: typed words", "attached": "user (notes.txt): attached",
    "notes.txt": "user: notes.txt", "shot.jpeg": "user: shot.jpeg", "answered": "assistant: answered",
    "toolname": "tool call: toolname", "ARGVÄLUE": READ,
    "src/a.py": READ, "resulttext": "tool (toolname): resulttext",
    "othername": "tool call: othername", "two": 'tool call (othername): {"b": "two"}',
    "part": "assistant: in a part", "refused": "assistant: refused",
}  # fmt: skip
NOT_FOUND = [
    "systemmessage", "systemprompt", "thought", "sealed", "reasoned", "rawusage", "modelname", "callid", "useid",
    "id-1", "rawout", "agentname", "tagged", "projectpath", "summedup", "datapng", "image/png", "assistant", "content",
    "function", "parent", STAMP, "version", "null", "aaaa",
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_texts_are_searched_and_nothing_else(home: Home, layout: str) -> None:
    data = LAYOUTS[layout](EVERYTHING)
    assert {word: match_in(home, data, word) for word in FOUND} == FOUND
    assert [word for word in NOT_FOUND if match_in(home, data, word)] == []


MATCHING = [
    ("Grüße", "viele Grüße", True), ("grüße", "GRÜSSE", True), ("gruesse", "grüße", False),
    ("straße", "STRASSE", True), ("strasse", "die Straße", True), ("SÜSS", "süß", True), ("ß", "GROẞ", True),
    ("message", "das Meßage", True), ("message", "Maß", False), ("missing", "ß", False),
    ("café", "CAFE\u0301", True), ("cafe", "café", False),
    ("ПРИВЕТ", "привет", True), ("日本", "在日本語", True), ("😀", "a😀b", True), ("foo", "a\nFooBar", True),
    ("bar", "foo\tbar", True), ('"hi"', 'say "hi"!', True), ("c:\\temp", "in C:\\Temp", True), ("a.b", "axb", False),
    ("a*", "aaa", False), ("a b", "b then a", True), ("a c", "a b", False), ("\x1b[31m", "\x1b[31mred", True),
    ("n", "\n", False), ("u00fc", "ü", False), ("content", "the content", True), ("type", "text", False),
    ("stop", "stop", True), ("text", "text", True), ("user", "user", True), ("a<b", "a<b", True),
    ("b\udce9", "b\udce9", True),
    ("file", "die \ufb01le", True), ("office", "O\ufb03ce", True), ("le", "\ufb01le", True), ("of", "\ufb01le", False),
    ("full", "\uff26\uff55\uff4c\uff4c", True), ("\uff26\uff35\uff2c\uff2c", "full", True),
    ("12", "\uff11\uff12", True), ("\u30ab\u30ca", "\uff76\uff85", True), ("x2", "x\u00b2", True),
    ("bold", "\U0001d41b\U0001d428\U0001d425\U0001d41d", True),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["own", "by jq"])
def test_words_match_in_either_case_and_as_they_are_written(home: Home, layout: str) -> None:
    found = [
        match_in(home, LAYOUTS[layout](session(user(text))), words) for words, text, _ in MATCHING
    ]
    assert [
        row for row, match in zip(MATCHING, found, strict=True) if (match is not None) != row[2]
    ] == []


@pytest.mark.parametrize(
    ("messages", "words", "match"),
    [
        ([user("one\n\n  two\tthree"), assistant("two")], "two", "user: one two three"),
        ([user("a needle"), assistant("a needle, a haystack")], "haystack needle", "assistant: a needle, a haystack"),
        ([user("x " * 300 + "needle" + " y" * 300)], "needle", "user: … x x x x x needle y y y y y …"),
        ([user("x" * 300 + "needle" + "y" * 300)], "needle", "user: …xxxxxxxxxxxneedleyyyyyyyyyyy…"),
        ([user("x " * 300 + "needle")], "needle", "user: … x x x x x x x x x x x needle"),
    ],
)  # fmt: skip
def test_the_passage_has_most_of_the_words_and_is_as_wide_as_there_is_room(
    home: Home, messages: list[dict[str, Any]], words: str, match: str
) -> None:
    put(home, "100000-aaaa", session(*messages))
    line = home.run("--search-sessions", words, env={"COLUMNS": "40"}).stdout.splitlines()[1]
    assert line == f"    {match}"
    assert len(line) <= 40


@pytest.fixture
def three(home: Home) -> Home:
    """Three sessions, the newest first by its id: cccc, bbbb, aaaa."""
    put(
        home,
        "100000-aaaa",
        session(user("the first needle"), meta={"tags": ["red"], "project": str(home.cwd)}),
    )
    put(
        home,
        "100001-bbbb",
        session(user("nothing"), assistant("hay"), agent={"name": "other", "model": "lab/m"}),
    )
    put(
        home,
        "100002-cccc",
        session(user("Needle"), assistant("and hay"), title="Third", agent={"model": "lab/n"}),
    )
    return home


def test_a_match_is_shown_as_written_unless_its_words_are_only_in_plain_letters(home: Home) -> None:
    doc = session(user("\uff27\uff30\uff34, a needle"))
    assert match_in(home, doc, "needle") == "user: \uff27\uff30\uff34, a needle"
    assert match_in(home, doc, "gpt") == "user: GPT, a needle"


def test_a_sharp_s_is_marked_as_two(home: Home) -> None:
    put(home, "100000-aaaa", session(user("in der langen Straße 5")))
    (item,) = json.loads(home.run("--search-sessions", "strasse", "-o", "json").stdout)
    assert item["match"] == "user: in der langen Straße 5"
    shown = home.run(
        "--search-sessions", "STRASSE", "-o", "markdown", env={"FORCE_COLOR": "1"}
    ).stdout
    assert RED.format("Straße") in shown


def test_a_search_prints_list_lines_with_the_context_under_them(three: Home) -> None:
    lines = ("[0] cccc 2026-11-03 10:00 Third (?|lab/n)\n    user: Needle\n"
             "[2] aaaa 2026-11-03 10:00 (untitled) (?|?)\n    user: the first needle\n")  # fmt: skip
    assert three.run("--search-sessions", "needle") == (lines, "", 0)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["hay"], ["cccc", "bbbb"]), (["  hay \n needle"], ["cccc"]), (["hay", "--limit", "1"], ["cccc"]),
        (["hay", "-m", "b/m"], ["bbbb"]), (["needle", "--tag", "red"], ["aaaa"]), (["needle", "--here"], ["aaaa"]),
        (["hay", "-a", "nobody"], []), (["pin"], []),
    ],
)  # fmt: skip
def test_filters_are_those_of_the_list(three: Home, args: list[str], expected: list[str]) -> None:
    assert ids(three, *args) == expected
    note = "gptsh: nothing found with the agent nobody\n" if "nobody" in args else ""
    assert three.run("--search-sessions", *args)[1:] == (note, 0 if expected else 1)


def test_a_program_gets_the_objects_of_the_list_and_the_match(three: Home) -> None:
    listed = json.loads(three.run("--list-sessions", "-o", "json").stdout)
    items = json.loads(three.run("--search-sessions", "needle", "-o", "json").stdout)
    assert items == [
        {**listed[0], "match": "user: Needle"},
        {**listed[2], "match": "user: the first needle"},
    ]
    lines = three.run("--search-sessions", "needle", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == items
    assert three.run("--search-sessions", "pin", "-o", "json") == ("[]\n", "", 1)


def test_what_cannot_be_read_is_told_and_left_out(three: Home) -> None:
    put(three, "100003-torn", in_lines(session(user("a needle"), assistant("b")))[:-40])
    put(three, "100005-void", b"")
    done = three.run("--search-sessions", "hay")
    assert re.findall(r"^\[(\d)\] (\w+)", done.stdout, re.MULTILINE) == [
        ("2", "cccc"),
        ("3", "bbbb"),
    ]
    assert re.findall(r"skipped .*-(\w+)\.json: ", done.stderr) == ["void", "torn"]
    assert done.stderr.count("\n") == 2
    assert done.code == 0


def test_the_words_are_marked_on_a_terminal(home: Home) -> None:
    put(home, "100000-aaaa", session(user("a Needle in a haystack")))
    marked = f"    user: a {RED.format('Needle')} in a {RED.format('hay')}stack\n"
    args = ("--search-sessions", "needle hay")
    seen, code = Terminal(home, *args).close()
    assert code == 0
    assert seen.decode().endswith(" a \x1b[1mNeedle\x1b[0m in a \x1b[1mhay\x1b[0mstack\r\n")
    assert home.run(*args).stdout.endswith(re.sub(SGR, "", marked))
    assert home.run(*args, env={"FORCE_COLOR": "1"}).stdout.endswith(marked)
    assert home.run(*args, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout.endswith(
        marked.replace("1;31", "1")
    )


@pytest.mark.parametrize("tail", [b"", b'"}]}'])
def test_one_session_of_900_mb_is_skipped_and_the_others_are_found(home: Home, tail: bytes) -> None:
    home.run("-m", "echo", "a needle")
    start = (
        b'{"id":"huge","created_at":"2026-01-01T00:00:00Z","messages":[{"role":"user","content":"'
    )
    path = put_file(home, "20260101-000000-huge", start)
    with path.open("r+b") as file:
        file.truncate(900_000_000)
        file.seek(0, 2)
        file.write(tail)
    for job in (
        ["--list-sessions"],
        ["--search-sessions", "needle"],
        ["--usage"],
        ["--prune-sessions", "--keep", "9"],
    ):
        started = time.process_time()
        run = home.run(*job)
        assert time.process_time() - started < 0.5
        assert run.code == 0
        if job[0] in ("--list-sessions", "--search-sessions"):
            assert run.stderr == f"gptsh: skipped {path}: larger than 200.0 MB\n"
            assert "needle" in run.stdout
    assert home.run("-c", "-m", "echo", "on") == ("You said: on\n", "", 0)
