"""Searches: what is searched and what is not, what they print, and that no session is missed for speed."""

import json
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.core import document, files
from gptsh.core.foreign import translated
from gptsh.core.listing import Unreadable
from gptsh.core.search import Found, search
from tests.support import vocabulary
from tests.support.home import COMMAND, Home
from tests.support.modules import MARKDOWN, modules_after
from tests.support.terminal import Terminal

STAMP = "2026-11-03T10:00:00.000Z"


def session(*messages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A document in today's shape, as the store would save it."""
    chain = [
        {"id": f"id-{at}", "parent": f"id-{at - 1}" if at else None, "timestamp": STAMP, **message}
        for at, message in enumerate(messages)
    ]
    doc = document.migrate({"version": 1, "id": "aaaa", "created_at": STAMP, "messages": chain, **keys})
    document.count(doc)
    return document.ordered(doc)


def put(home: Home, name: str, doc: dict[str, Any] | bytes) -> Path:
    """A file among the sessions; ``name`` is ``HHMMSS-id``."""
    home.sessions.mkdir(parents=True, exist_ok=True)
    path = home.sessions / f"20261103-{name}.json"
    path.write_bytes(doc if isinstance(doc, bytes) else files.encoded(doc))
    return path


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def ids(home: Home, *args: str) -> list[str]:
    """The ids of the sessions that a search finds."""
    return re.findall(r"^\[\d+\] (\w{4}) ", home.run("--search-sessions", *args).stdout, re.MULTILINE)


def found_in(doc: dict[str, Any] | bytes, text: str, room: int = 76) -> Found | Unreadable | None:
    """What a search makes of a store with a single file."""
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as environ:
        environ.setenv("XDG_STATE_HOME", top)
        folder = Path(top) / "gptsh" / "sessions"
        folder.mkdir(parents=True)
        data = doc if isinstance(doc, bytes) else files.encoded(doc)
        (folder / "20261103-100000-aaaa.json").write_bytes(data)
        return next(search(text, room), None)


def match_in(doc: dict[str, Any] | bytes, text: str, room: int = 76) -> str | None:
    item = found_in(doc, text, room)
    assert not isinstance(item, Unreadable)
    return item["match"] if item else None


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


@pytest.mark.parametrize("how", ["as written", "by jq"])
@pytest.mark.parametrize("word", [*FOUND, *NOT_FOUND])
def test_texts_are_searched_and_nothing_else(word: str, how: str) -> None:
    doc = EVERYTHING if how == "as written" else json.dumps(EVERYTHING, indent=2).encode() + b"\n"
    assert match_in(doc, word) == FOUND.get(word)


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
    ("u00fc", "ü", False), ("b\udce9", "b\udce9", True),
]  # fmt: skip


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize(("words", "text", "found"), MATCHING)
def test_words_match_in_either_case_and_as_they_are_written(
    words: str, text: str, found: bool, ascii_only: bool
) -> None:
    doc = session(user(text))
    data = json.dumps(doc).encode() if ascii_only else files.encoded(doc)
    assert (match_in(data, words) is not None) == found


@pytest.mark.parametrize(
    ("word", "arguments"),
    [
        ("grüße", '{"q": "gr\\u00fc\\u00dfe"}'), ("😀", '{"q": "\\ud83d\\ude00"}'), ('"hi"', '{"q": "say \\"hi\\""}'),
        ("src/a.py", '{"q": "src\\/a.py"}'), ("C:\\Users", '{"q": "C:\\\\users"}'), ("two", '{"q": "one\\ntwo'),
        ("{bad", "{bad"), ("\\U", "C:\\Users"),
    ],
)  # fmt: skip
def test_arguments_are_searched_as_they_read(word: str, arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    doc = session(answer(None, tool_calls=[call]))
    for data in (files.encoded(doc), json.dumps(doc).encode(), json.dumps(doc, indent=1).encode()):
        assert match_in(data, word)


# ---- no session is missed for speed


def texts_of(doc: dict[str, Any]) -> Iterator[str]:
    """Every text that is searched, found the long way."""
    yield doc.get("title") or ""
    for message in doc["messages"]:
        for own in translated(message):
            yield from texts_in(own) if own["role"] != "system" else ()


def texts_in(message: Any) -> Iterator[str]:
    content = message.get("content")
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
        held = part.get("source")
        yield from (name for name in (held, part.get("title")) if isinstance(name, str))
        inner = part.get("file") if isinstance(part.get("file"), dict) else {}
        yield from [inner["filename"]] if isinstance(inner.get("filename"), str) else ()
        if part.get("type") == "text":
            yield from [part["text"]] if isinstance(part.get("text"), str) else ()
        elif part.get("type") in ("image", "document", "audio") and isinstance(held, dict) and held["type"] == "text":
            yield held["data"]
    for call in message.get("tool_calls") or ():
        name, arguments = call["function"].get("name"), call["function"].get("arguments")
        yield from [name] if isinstance(name, str) else ()
        yield from [as_read(arguments)] if isinstance(arguments, str) else ()
    yield message.get("refusal") or ""


def as_read(arguments: str) -> str:
    """Arguments with the escapes of their JSON undone, one by one; two that make a letter together do so."""
    plain = re.sub(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])', lambda escape: json.loads(f'"{escape[0]}"'), arguments)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def lowered(text: str) -> str:
    return "".join(letter.lower() if letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZÜÉЖ" else letter for letter in text)


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


def shuffled(doc: dict[str, Any]) -> bytes:
    keys = sorted(doc)
    random.Random(len(doc["messages"])).shuffle(keys)
    return json.dumps({key: doc[key] for key in keys}, ensure_ascii=False).encode("utf-8", "backslashreplace")


WRITERS = [
    files.encoded,
    lambda doc: files.encoded(doc) + b"\n",
    lambda doc: json.dumps(doc).encode(),
    lambda doc: json.dumps(doc, indent=2).encode(),
    lambda doc: json.dumps(doc, separators=(",", ":")).replace("/", "\\/").replace("<", "\\u003c").encode(),
    lambda doc: spelled(doc).encode(),
    shuffled,
    lambda doc: files.encoded({key: value for key, value in doc.items() if key != "version"}),
]
SAID = ["The needle here", "grüße Ж é", 'say "Hay"', "C:\\temp\\new", "src/Main.py", "日本", "content stop user", "1e5"]
WORD = st.sampled_from([
    "needle", "hay", '"hay"', "main.py", "src/main", "c:\\temp", "GRÜ", "ж", "É", "日", "content", "user", "stop",
    "text", "id", "role", "e", "1", "\\", '"', "/", '":"', "},{", "tool_use", "function", "null", "00", "input", "m1",
])  # fmt: skip


@st.composite
def sessions(draw: st.DrawFn) -> dict[str, Any]:
    """A document as our writer leaves it, or nearly so: with odd messages, and copies of messages in other places."""
    messages: list[Any] = draw(vocabulary.messages(least=1, most=5))
    for message in messages:
        said = draw(st.none() | st.sampled_from(SAID))
        if said is not None:
            place = draw(st.sampled_from(["content", "raw", "x_copy", "refusal"]))
            copy = {"id": "m9", "parent": None, **draw(st.sampled_from([{}, {"role": "user"}])), "content": said}
            message[place] = said if place in ("content", "refusal") else copy
    if draw(st.booleans()):
        messages = [{"id": message["id"], "parent": None, "timestamp": STAMP, **message} for message in messages]
    doc = session(title=draw(st.none() | st.sampled_from(SAID)))
    stats = {**doc["stats"], "messages": len(messages) + draw(st.sampled_from([0, 0, 0, -1]))}
    return {**doc, "stats": stats, "messages": messages}


@settings(max_examples=40)
@given(sessions(), st.sampled_from(WRITERS), st.data())
def test_a_search_finds_what_a_slow_one_finds(doc: dict[str, Any], write: Any, data: st.DataObject) -> None:
    both_find_the_same(doc, write, data)


@pytest.mark.slow
@settings(max_examples=150)
@given(sessions(), st.sampled_from(WRITERS), st.data())
def test_a_search_finds_what_a_slow_one_finds_more_often(doc: dict[str, Any], write: Any, data: st.DataObject) -> None:
    both_find_the_same(doc, write, data)


def both_find_the_same(doc: dict[str, Any], write: Any, data: st.DataObject) -> None:
    written = write(doc)
    texts = [text for text in texts_of(files.parsed(files.encoded(doc).decode())) if text.split()]
    words = data.draw(st.lists(WORD, max_size=2))
    if texts and (not words or data.draw(st.booleans())):
        word = data.draw(st.sampled_from(data.draw(st.sampled_from(texts)).split()))
        begin = data.draw(st.integers(0, len(word) - 1))
        words.append(word[begin : data.draw(st.integers(begin + 1, len(word)))])
    query = " ".join(words)
    if query.split():
        slow = all(any(lowered(word) in lowered(text) for text in texts) for word in query.split())
        assert (match_in(written, query) is not None) == slow, (query, written)


def test_a_copy_of_a_message_in_raw_data_is_no_message() -> None:
    copy = {"id": "id-9", "parent": None, "timestamp": STAMP, "role": "user", "content": "needle"}
    result = {"role": "tool", "tool_call_id": "c", "content": "read", "raw": {"structured": [copy, copy]}}
    assert match_in(session(user("go"), result), "needle") is None
    assert match_in(session(user("go"), result, user("the needle")), "needle") == "user: the needle"


def test_arguments_of_another_tool_are_searched_as_they_are_shown_however_they_are_spelled() -> None:
    doc = session(
        answer([{"type": "tool_use", "id": "t", "name": "f", "input": {"name": 100000.0, "content": [1, 2]}}])
    )
    data = files.encoded(doc).replace(b"100000.0", b"1e5")
    for word in ("100000.0", "name", '"content":', "[1,"):
        assert match_in(data, word) == 'tool call (f): {"name": 100000.0, "content": [1, 2]}'


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
def test_the_passage_has_most_of_the_words_and_is_as_wide_as_asked(
    messages: list[dict[str, Any]], words: str, match: str
) -> None:
    assert match_in(session(*messages), words, room=36) == match
    assert len(match) <= 36


@given(st.text("xy \n", max_size=120), st.text("xy \n", max_size=120), st.integers(20, 60))
def test_a_passage_is_no_wider_than_asked_and_has_its_word_marked(before: str, after: str, room: int) -> None:
    item = found_in(session(user(f"{before}Needle{after}")), "needle", room)
    assert item
    assert not isinstance(item, Unreadable)
    assert len(item["match"]) <= room
    assert item["match"].split("…", 1)[0].startswith("user: ")
    assert [item["match"][begin:end] for begin, end in item["marks"]] == ["Needle"]


# ---- the command


def three(home: Home) -> None:
    """Three sessions, the newest first by its id: cccc, bbbb, aaaa."""
    put(home, "100000-aaaa", session(user("the first needle"), meta={"tags": ["red"], "project": str(home.cwd)}))
    put(home, "100001-bbbb", session(user("nothing"), answer("hay"), agent={"name": "other", "model": "lab/m"}))
    put(home, "100002-cccc", session(user("Needle"), answer("and hay"), title="Third", agent={"model": "lab/n"}))


def test_a_search_prints_list_lines_with_the_context_under_them(home: Home) -> None:
    three(home)
    assert home.run("--search-sessions", "needle") == (
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
def test_filters_are_those_of_the_list(home: Home, args: list[str], expected: list[str]) -> None:
    three(home)
    assert ids(home, *args) == expected
    assert home.run("--search-sessions", *args)[1:] == ("", 0 if expected else 1)


def test_no_words_and_no_store(home: Home) -> None:
    assert home.run("--search-sessions", "x") == ("", "", 1)
    assert not home.state.exists()
    assert home.run("--search-sessions", " ").code == 2


def test_the_archive_is_searched_where_it_is_asked_for(home: Home) -> None:
    three(home)
    archive = home.state / "archive"
    archive.mkdir()
    home.files()[0].rename(archive / home.files()[0].name)
    assert ids(home, "needle") == ["aaaa"]
    assert " cccc " in home.run("--search-sessions", "needle", "--archived").stdout


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_program_gets_the_objects_of_the_list_and_the_match(home: Home, output: str) -> None:
    three(home)

    def read(*args: str) -> list[dict[str, Any]]:
        text = home.run(*args, "-o", output).stdout
        items: list[dict[str, Any]] = json.loads(text) if output == "json" else [*map(json.loads, text.splitlines())]
        return items

    listed, items = read("--list-sessions"), read("--search-sessions", "needle")
    assert [item.pop("match") for item in items] == ["user: Needle", "user: the first needle"]
    assert items == [listed[0], listed[2]]
    assert home.run("--search-sessions", "pin", "-o", output) == ("[]\n" if output == "json" else "", "", 1)


def test_what_cannot_be_read_is_told_and_left_out(home: Home) -> None:
    three(home)
    whole = files.encoded(session(user("a needle"), answer("b")))
    put(home, "100003-torn", whole[:-40])
    put(home, "100004-jsan", whole.replace(b'"role":"assistant"', b'"role":7'))
    put(home, "100005-void", b"")
    (home.sessions / "20261103-100006-fold.json").mkdir()
    done = home.run("--search-sessions", "hay")
    assert re.findall(r"^\[(\d)\] (\w+)", done.stdout, re.MULTILINE) == [("4", "cccc"), ("5", "bbbb")]
    assert [re.search(r"skipped .*-(\w+)\.json: ", line)[1] for line in done.stderr.splitlines()] == [  # type: ignore[index]
        "fold", "void", "torn",
    ]  # fmt: skip
    assert done.code == 0
    assert "-jsan.json: not a session" in home.run("--search-sessions", "b").stderr


def test_every_layout_is_found(home: Home) -> None:
    doc = session(user("a needle"), answer("b"), title="T")
    put(home, "100000-aaaa", json.dumps(doc, indent=2).encode())
    put(home, "100001-bbbb", json.dumps(doc, sort_keys=True).encode())
    old = {"id": "cccc", "created_at": "2025-10-27T09:15:30Z", "agent": {}, "messages": [user("the needle")]}
    put(home, "100002-cccc", json.dumps(old).encode())
    put(home, "100003-dddd", {**doc, "messages": [*doc["messages"], user("x" * 300_000), user("needles")]})
    assert ids(home, "needle") == ["dddd", "cccc", "bbbb", "aaaa"]
    assert ids(home, "needles") == ["dddd"]


def test_a_reader_may_leave_early_and_a_limit_reads_no_further(home: Home) -> None:
    for number in range(900):
        put(home, f"1{number // 60:02}{number % 60:02}0-z{number:03}", session(user("a needle")))
    put(home, "090000-torn", b"{")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(COMMAND)} --search-sessions needle | head -2"],
        env=home.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == "    user: a needle"
    assert home.run("--search-sessions", "needle", "--limit", "2").stderr == ""
    assert "torn" in home.run("--search-sessions", "needle").stderr


def test_it_is_as_light_as_a_list(home: Home) -> None:
    home.run("-m", "echo", "hello")
    for args in (["hello"], ["hello", "-o", "json"]):
        loaded = modules_after(home, "--search-sessions", *args)
        unwanted = {
            "litellm", "urllib3", "ssl", "asyncio", "prompt_toolkit", "tomllib", "jsonschema", "unicodedata",
            "gptsh.llm", "gptsh.tools", "gptsh.formats",
        }  # fmt: skip
        assert not loaded & (unwanted | MARKDOWN)


# ---- on a terminal

RED = "\x1b[1;31m{}\x1b[0m"


def shown(home: Home, *args: str, **env: str) -> str:
    seen, code = Terminal(home, "--search-sessions", *args, env=env).close()
    assert code == 0
    return seen.decode().replace("\r\n", "\n")


def test_the_words_are_marked_on_a_terminal(home: Home) -> None:
    put(home, "100000-aaaa", session(user("a Needle in a haystack, needles")))
    line = "[0] aaaa 2026-11-03 10:00 (untitled) (?|?)\n"
    marked = f"{line}    user: a {RED.format('Needle')} in a {RED.format('hayst')}ack, {RED.format('needle')}s\n"
    plain = re.sub(r"\x1b\[[0-9;]*m", "", marked)
    query = "needle hay ayst"
    assert shown(home, query) == marked
    assert shown(home, query, NO_COLOR="1") == marked.replace("1;31", "1")
    assert shown(home, query, TERM="dumb") == plain
    assert shown(home, query, "-o", "text") == plain
    assert home.run("--search-sessions", query).stdout == plain
    assert home.run("--search-sessions", query, env={"FORCE_COLOR": "1"}).stdout == marked


@pytest.mark.parametrize("env", [{}, {"TERM": "dumb"}])
@pytest.mark.parametrize("args", [[], ["-o", "text"], ["-o", "jsonl"]])
def test_control_characters_are_shown_and_not_obeyed(home: Home, env: dict[str, str], args: list[str]) -> None:
    evil = "\x1b]0;owned\x07 \x9b2J a\rb"
    call = {"id": "c", "function": {"name": "\x1b[2Jname", "arguments": f"{evil} needle"}}
    put(home, "100000-aaaa", session(user("x"), answer(None, tool_calls=[call]), title=f"t{evil}"))
    seen = re.sub(r"\x1b\[[01;3]*m", "", shown(home, "needle", *args, **env))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", seen)
    assert seen.count("\n") == (1 if "jsonl" in args else 2)


@pytest.mark.parametrize("columns", [50, 120])
def test_the_context_is_as_wide_as_the_terminal(home: Home, columns: int) -> None:
    put(home, "100000-aaaa", session(user("x " * 300 + "needle" + " y" * 300)))
    _, context = home.run("--search-sessions", "needle", env={"COLUMNS": str(columns)}).stdout.splitlines()
    assert columns - 6 <= len(context) <= columns


def test_a_word_from_the_shell_may_be_no_text(home: Home) -> None:
    put(home, "100000-aaaa", session(user("b\udce9te")))
    done = subprocess.run(
        [*COMMAND, "--search-sessions", os.fsdecode(b"b\xe9T")], env=home.env, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
