"""--export-session: what goes out can be used where it goes, comes back, and what is left behind is said."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from gptsh.terminal.stdio import FORMATS
from tests.support import sessions
from tests.support.histories import PIXEL, imported_docs, put, session_of, states, text_part, write
from tests.support.home import Home
from tests.support.nanobot_files import CALL, ERAS, HEADER, python
from tests.support.paths import HISTORIES
from tests.support.readme import EXCHANGE


def out(home: Home, form: str, doc: dict[str, Any] | None = None) -> str:
    """What a session becomes in a format."""
    if doc is not None:
        put(home, doc)
    run = home.run("--export-session", "0", "--format", form)
    assert run.code == 0, run.stderr
    return run.stdout


# ---- openai: it can be sent as it is

PDF = {"type": "base64", "media_type": "application/pdf", "data": "YWJj"}
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
THOUGHT = {"type": "thinking", "thinking": "t", "signature": "s"}


def part(kind: str, media_type: str, data: str = "YWJj", **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "source": {"type": "base64", "media_type": media_type, "data": data},
        **more,
    }


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        **({"tool_calls": list(calls)} if calls else {}),
        **more,
    }


def result(ident: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": content}


MISSING = "error: this tool call was interrupted and has no result"
# What a session holds, and the messages that it becomes.
SENT: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "words, parts, a refusal": (
        [{"role": "user", "content": "hi \u2028 é", "source": {"x": 1}}, user(text_part("see"), IMAGE),
         {"role": "assistant", "content": "", "refusal": "no", "model": "m", "usage": {}}],
        [{"role": "user", "content": "hi \u2028 é"}, user(text_part("see"), IMAGE),
         {"role": "assistant", "content": "", "refusal": "no"}],
    ),
    "every call has its result behind it, in the order of the calls": (
        [assistant(CALL, {**CALL, "id": "c2"}, thinking=[THOUGHT]), result("c2", "b")],
        [assistant(CALL, {**CALL, "id": "c2"}), result("c1", MISSING), result("c2", "b")],
    ),
    **{f"arguments stay the text that came: {text}": (
        [assistant({**CALL, "function": {"name": "ls", "arguments": text}}), result("c1", "x")],
    ) * 2 for text in ("{bad", "", '{"a": 1.0,  "é":2}')},
    "a document is a file, what nobody knows is named": (
        [user({"type": "document", "source": PDF, "title": "a"}, {"type": "video_url", "video_url": {"url": "x"}})],
        [user({"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"}},
              text_part("[video_url]"))],
    ),
    "an image that a tool gave is shown behind its result": (
        [assistant(CALL), result("c1", [IMAGE])],
        [assistant(CALL), result("c1", "[image/png, 69 bytes]"),
         user(text_part("image of the tool result above (c1):"), IMAGE)],
    ),
    **{f"what a server would refuse is a line of text: {line}": (
        [user(carried)], [{"role": "user", "content": line}],
    ) for carried, line in (
        (part("image", "image/svg+xml"), "[image/svg+xml, 3 bytes]"),
        (part("image", "image/png", ""), "[image/png, 0 bytes]"),
        (part("document", "application/pdf", ""), "document.pdf:\n[application/pdf, 0 bytes]"),
    )},
}  # fmt: skip


@pytest.mark.parametrize("row", SENT)
def test_openai_takes_what_is_written(home: Home, row: str) -> None:
    messages, expected = SENT[row]
    assert json.loads(out(home, "openai", session_of(*messages))) == expected


def test_openai_gets_the_instructions_in_their_places(home: Home) -> None:
    roles = ["system", "user", "developer", "user", "system"]
    doc = session_of(
        *({"role": role, "content": f"{at}"} for at, role in enumerate(roles)),
        agent={"system": "base"},
    )
    assert [(m["role"], m["content"]) for m in json.loads(out(home, "openai", doc))] == [
        ("system", "base"), ("system", "0"), ("user", "1"), ("system", "2"), ("user", "3"), ("system", "4"),
    ]  # fmt: skip


# ---- nanobot: what it wrote comes out again byte for byte, what is ours as it would write it


@pytest.mark.parametrize("era", ERAS)
def test_a_file_of_nanobots_comes_out_as_it_is(home: Home, era: str) -> None:
    (home.folder / "cli_direct.jsonl").write_bytes(ERAS[era].encode())
    imported_docs(home, home.folder / "cli_direct.jsonl")
    assert out(home, "nanobot") == ERAS[era]


def test_times_without_a_zone_come_out_as_they_are_in_another_one(home: Home) -> None:
    (sample,) = (HISTORIES / "nanobot_py_2026-02").rglob("*.jsonl")
    assert home.run("--import-session", str(sample), env={"TZ": "Asia/Tokyo"}).code == 0
    run = home.run("--export-session", "0", "--format", "nanobot", env={"TZ": "America/New_York"})
    assert run.stdout.encode() == sample.read_bytes()
    assert run.stderr.startswith("gptsh: nanobot reads it as dGVsZWdyYW06MTIzNDU2Nzg.jsonl")


def test_a_session_of_nanobots_that_grew_here_has_another_first_line_and_one_more(
    home: Home,
) -> None:
    text = ERAS["0.3.5, with both counts"]
    imported_docs(home, write(home.folder, text, "cli_direct.jsonl"))
    assert home.run("-m", "echo", "-s", "0", "more").code == 0
    before = text.splitlines()
    after = out(home, "nanobot").splitlines()
    assert after[1:-2] == before[1:]
    assert [json.loads(line)["content"] for line in after[-2:]] == ["more", "You said: more"]
    header = json.loads(after[0])
    assert header["updated_at"] > HEADER["updated_at"]
    assert {**header, "updated_at": None} == {**json.loads(before[0]), "updated_at": None}


def test_a_session_of_ours_is_written_as_nanobot_writes_its_own(home: Home) -> None:
    text = {**text_part("piped"), "source": "stdin"}
    pdf = {"type": "document", "source": PDF, "title": "a.pdf"}
    doc = session_of(
        {"role": "user", "content": "é"}, assistant({**CALL, "index": 0}, thinking=[THOUGHT], model="m", cost=0.1),
        {**result("c1", [text_part("a")]), "is_error": True}, assistant(content="b", replay={"reasoning": "r"}),
        {"role": "system", "content": "left out"},
        user(text_part("see"), IMAGE, pdf, text), user(text_part("see"), text),
        context={"consolidated": "m1", "summaries": [], "snapshots": []},
    )  # fmt: skip
    at = [f"2025-10-27T09:15:{second:02}.120000" for second in range(7)]
    assert out(home, "nanobot", doc) == python(
        {"_type": "metadata", "key": "gptsh:7x2m", "created_at": "2025-10-27T09:15:30.120000",
         "updated_at": "2025-10-27T10:00:00", "metadata": {"title": "From elsewhere"}, "last_archived": 2,
         "last_consolidated": 2},
        {"role": "user", "content": "é", "timestamp": at[0]},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "",
         "thinking_blocks": [THOUGHT], "timestamp": at[1]},
        {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": "a", "timestamp": at[2]},
        {"role": "assistant", "content": "b", "reasoning_content": "r", "timestamp": at[3]},
        {**user(text_part("see"), IMAGE, text_part("a.pdf:\n[application/pdf, 3 bytes]"), text_part("piped")),
         "timestamp": at[5]},
        {"role": "user", "content": "see\n\npiped", "timestamp": at[6]},
    )  # fmt: skip


# ---- what is lost on the way out is said

EVERYTHING = session_of(
    {"role": "system", "content": "Mind the gap."},
    user(text_part("see"), IMAGE, {"type": "document", "source": PDF}, {"type": "novel"}),
    assistant(CALL, model="m", cost=0.1, thinking=[THOUGHT], usage={"prompt": 1, "completion": 1, "total": 2},
              replay={"reasoning": "r", "reasoning_details": [{"data": "x"}]}, order=["tool_call:0"],
              finish_reason="interrupted", sources=[{"url": "https://a.test", "title": "A"}]),
    {**result("c1", "x"), "is_error": True, "raw": {"stdout": "x"}},
    agent={"name": "default", "model": "m", "system": "Be brief."},
    meta={"tags": ["mine"], "forked_from": "aaaa"},
    context={"snapshots": [{"id": "p", "name": "here", "message": "m1"}], "summaries": [{"id": "s", "text": "s"}]},
)  # fmt: skip
ROWS = [
    row.split("|")[1:-1]
    for row in EXCHANGE.partition("## Export")[2].splitlines()
    if row.startswith("| `")
]
LOSSES = {form.strip(" `"): losses.strip() for form, _, losses in ROWS}


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_names_what_the_page_says_is_lost(home: Home, form: str) -> None:
    put(home, EVERYTHING)
    run = home.run("--export-session", "0", "--format", form)
    notes = [line for line in run.stderr.splitlines() if "leaves out" in line]
    whole = f"gptsh: {form} leaves out {LOSSES[form]}; --format json keeps everything"
    assert notes == ([] if LOSSES[form] == "nothing" else [whole])
    assert run.stdout


# ---- Markdown: all of it comes back, whatever an editor did to its white space

LOOKS = [
    "<!-- gptsh {} -->",
    "```",
    "~~~~py",
    "\r\n",
    "\r",
    "a  \n\n\n",
    "## You",
    "\ufeff",
    "\0",
    "\u2028",
    "\udcff",
]
CHANGES: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "a BOM": lambda text: f"\ufeff{text}",
    "no blanks at line ends": lambda text: re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE),
    "more lines at the end": lambda text: f"{text}\n\n",
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_all_of_a_session_comes_back_from_markdown(home: Home, change: str) -> None:
    said = [
        ({"role": "user", "content": look}, {"role": "assistant", "content": [text_part(look)]})
        for look in LOOKS
    ]
    doc = session_of(*EVERYTHING["messages"], *(one for pair in said for one in pair), agent=EVERYTHING["agent"],
             title="A <!-- --> *Talk*")  # fmt: skip
    text = CHANGES[change](out(home, "markdown", doc))
    assert text.startswith(("# A \\<!-- --> \\*Talk\\*", "\ufeff#"))
    assert states(home.run("--import-session", "-", stdin=text)) == ["known"]
    other = home.elsewhere()
    assert states(other.run("--import-session", "-", stdin=text)) == ["imported"]
    new = other.doc()
    old = json.loads(home.run("--show-session", "0", "-o", "json").stdout)
    assert [{**message, "source": 0} for message in new["messages"]] == [
        {**m, "source": 0} for m in old["messages"]
    ]
    assert [new[key] for key in ("id", "title", "created_at")] == [
        old[key] for key in ("id", "title", "created_at")
    ]
    assert new["agent"]["system"] == "Be brief."


def test_markdown_that_was_changed_by_hand_or_torn_is_refused(home: Home) -> None:
    text = out(
        home, "markdown", session_of({"role": "user", "content": "one"}, assistant(content="two"))
    )
    changed = home.run("--import-session", "-", stdin=text.replace("two", "three", 1))
    assert changed.code == 2
    assert "its text was edited" in changed.stderr
    torn = home.run("--import-session", write(home.folder, text[:-9], "torn.md"))
    assert torn.code == 2
    assert "its last line contains no session" in torn.stderr


# ---- several sessions


@pytest.fixture
def three(home: Home) -> Home:
    """Three sessions, the newest first: cccc, which was used today, bbbb and aaaa, which have a tag."""
    sessions.put(home, "aaaa", 20, meta={"tags": ["red"]})
    sessions.put(home, "bbbb", 10, meta={"tags": ["red"]}, agent={"system": "Be brief\nand kind"})
    sessions.put(home, "cccc", 0)
    return home


def export(home: Home, *args: str) -> str:
    run = home.run("--export-session", *args)
    assert run.code == 0, run.stderr
    return run.stdout


MANY = [
    ["--tag", "red"],
    ["--since", "15d", "--tag", "red"],
    ["--limit", "1"],
    ["--archived"],
    ["--since", "1h"],
]


@pytest.mark.parametrize("args", MANY)
def test_without_a_reference_those_that_a_list_has_are_exported(
    three: Home, args: list[str]
) -> None:
    listed = json.loads(three.run("--list-sessions", *args, "-o", "json").stdout)
    docs = map(json.loads, export(three, *args, "--format", "json").splitlines())
    assert [doc["id"] for doc in docs] == [item["id"] for item in listed]


def test_several_as_json_are_a_document_a_line_each_as_by_itself(three: Home) -> None:
    alone = [export(three, ref, "--format", "json") for ref in ("2", "cccc")]
    assert export(three, "2", "--export-session", "cccc", "--format", "json") == "".join(alone)
    lines = export(three, "--tag", "red", "--format", "openai").splitlines()
    assert [json.loads(line)[-1]["content"] for line in lines] == [
        "question of bbbb",
        "question of aaaa",
    ]


def test_several_as_json_are_imported_again(three: Home) -> None:
    other = three.elsewhere()
    text = export(three, "--since", "1y", "--format", "json")
    run = other.run("--import-session", "-", stdin=text + text.replace("aaaa", "dddd")[-9:])
    assert [line[:13] for line in run.stdout.splitlines()] == [
        "imported cccc",
        "imported bbbb",
        "imported aaaa",
    ]
    assert "stdin:4: not JSON" in run.stderr.replace("standard input", "stdin")
    assert [doc["meta"]["tags"] for doc in other.docs()] == [
        doc["meta"]["tags"] for doc in three.docs()
    ]


def test_several_as_markdown_have_a_rule_between_them(three: Home) -> None:
    run = three.run("--export-session", "0", "--export-session", "1")
    alone = [export(three, ref).partition("\n\n<!-- gptsh")[0] for ref in "01"]
    assert run.stdout == "\n\n---\n\n".join(alone) + "\n"
    assert (
        run.stderr
        == "gptsh: several sessions in Markdown cannot be imported again; use --format json\n"
    )


def test_several_as_html_are_one_page(three: Home) -> None:
    page = export(three, "--tag", "red", "--format", "html")
    assert re.findall("<h1>(.*)</h1>", page) == ["Title of bbbb", "Title of aaaa"]
    for tag in ("<html", "<head>", "<main>", "</main>", "</html>"):
        assert page.count(tag) == 1


def test_of_several_that_match_one_that_cannot_be_read_is_a_note(three: Home) -> None:
    path = three.files()[1]
    path.write_bytes(path.read_bytes()[:-10])
    run = three.run("--export-session", "--since", "1y", "--format", "json")
    assert [json.loads(line)["id"] for line in run.stdout.splitlines()] == ["cccc", "aaaa"]
    assert run.stderr.startswith(f"gptsh: skipped {path}: ")
    assert run.code == 0
    assert three.run("--export-session", "0", "--export-session", "bbbb").stdout == ""


REFUSED = [
    (["--export-session"], "--export-session needs a session: name one, or choose some with"),
    (["--export-session", "--format", "json"], "--export-session needs a session"),
    (
        ["--export-session", "0", "--here"],
        "--here filters sessions, but --export-session names one",
    ),
    (
        ["--export-session", "0", "1"],
        "--export-session takes no prompt: give it once for each session",
    ),
    (["--export-session", "0", "--export-session", "@none"], "no session is named @none"),
    (["--export-session", "0", "--export-session", "1@7"], "session bbbb has no point"),
    (
        ["--export-session", "0", "--export-session", "1", "--format", "nanobot"],
        "nanobot reads one session per file",
    ),
]


@pytest.mark.parametrize(("args", "said"), REFUSED)
def test_what_names_no_sessions_to_export_is_exit_2_and_nothing_is_written(
    three: Home, args: list[str], said: str
) -> None:
    run = three.run(*args)
    assert run.code == 2
    assert run.stdout == ""
    assert said in run.stderr


def test_if_no_session_matches_the_export_is_empty(three: Home) -> None:
    run = three.run("--export-session", "--tag", "blue", "--format", "json")
    assert run == ("", "gptsh: nothing found with the tag blue\n", 0)
