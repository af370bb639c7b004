"""The export as Markdown: every text comes back as it was, whatever it looks like; nothing else is lost in silence."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.core import checks, document
from gptsh.core.document import Document
from gptsh.formats import markdown
from gptsh.formats.source import Source, Unread
from tests.support import vocabulary

HEAD = {
    "version": 1, "id": "7x2m", "title": "A <!-- --> *Talk*", "created_at": "2025-10-27T09:15:30.120Z",
    "updated_at": "2025-10-27T09:20:00.000Z", "provider": {"name": "lab"}, "meta": {"tags": ["t", "u--v"]},
    "agent": {"name": "coder", "model": "m", "system": "Be brief.\n"},
}  # fmt: skip
TOLD = {"agent": "coder", "provider": "lab", "model": "m", "finish_reason": "stop", "cost": 0.5, "duration_ms": 70}
USED = {"prompt": 5, "completion": 2, "total": 7, "reasoning_tokens": None, "cached_tokens": 0}


def a_doc(messages: list[Any], **more: Any) -> Document:
    return document.migrate(checks.check({**HEAD, **more, "messages": messages}))


def read(data: bytes) -> tuple[list[Document], list[Unread]]:
    source = Source("-", None, data)
    assert markdown.READER.recognises(source)
    found = [*markdown.READER.read(source)]
    return [item for item in found if isinstance(item, dict)], [item for item in found if isinstance(item, Unread)]


def back(doc: Document) -> tuple[Document, list[Unread]]:
    """What a session is when it was written and read."""
    ((new,), unread) = read("".join(markdown.write(doc)).encode())
    return new, unread


def test_a_session_of_text_comes_back() -> None:
    question = {"role": "user", "content": "hi", "id": "q1", "timestamp": "2025-10-27T09:15:31.000Z"}
    parts = [{"type": "text", "text": "look"}, {"type": "text", "text": "x = 1\n```\n", "source": "a.py", "cut": 3}]
    answer = {"role": "assistant", "content": "```py\nx", "id": "a1", "usage": {**USED, "raw": {"x": 1}}, **TOLD}
    messages = [question, answer, {"role": "user", "content": parts, "id": "q2"},
                {"role": "assistant", "content": "", "refusal": "No.", "id": "a2", "model": "lab/m"},
                {"role": "user", "content": "", "id": "q3"}, {"role": "assistant", "content": None, "id": "a3"},
                {"role": "user", "content": [], "id": "q4"}]  # fmt: skip
    new, unread = back(a_doc(messages))
    assert unread == []
    expected = [dict(message) for message in messages]
    expected[1]["usage"] = USED
    parents = [None, "q1", "a1", "q2", "a2", "q3", "a3"]
    assert new["messages"] == [{**m, "parent": parent} for m, parent in zip(expected, parents, strict=True)]
    assert {key: new[key] for key in ("title", "created_at", "updated_at")} == {
        key: HEAD[key] for key in ("title", "created_at", "updated_at")
    }
    assert new["meta"]["imported"] == {"format": "markdown", "key": "7x2m 2025-10-27T09:15:30.120Z"}
    assert new["meta"]["tags"] == ["markdown", "t", "u--v"]
    assert (new["agent"]["name"], new["agent"]["model"]) == ("coder", "m")
    assert (new["agent"]["system"], new["provider"]["name"]) == ("Be brief.\n", "lab")


def test_people_see_headings_and_words_and_no_mark() -> None:
    doc = a_doc([
        {"role": "user", "content": "hi *you*", "timestamp": "2025-10-27T09:15:31.000Z"},
        {"role": "assistant", "content": "```py\nx", "model": "m_1"},
    ])  # fmt: skip
    lines = "".join(markdown.write(doc)).split("\n")
    seen = [line for line in lines if line and not line.startswith("<!-- ")]
    at = seen.index("## System prompt")
    assert seen[0] == "# A \\<!-- --> \\*Talk\\*"
    assert seen[1:3] == ["- session: 7x2m", next(line for line in seen if line.startswith("- dates: "))]
    assert seen[at + 1] == "Be brief."
    assert seen[at + 2].startswith("## You, 2025-10-27 ")
    assert seen[at + 3 :] == ["hi *you*", "## m_1", "```py", "x", "```"]


def test_what_is_no_text_is_shown_and_counted() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a":1}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}, "source": "a.png"}
    doc = a_doc([
        {"role": "user", "content": [{"type": "text", "text": "look"}, image], "id": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call],
         "thinking": [{"type": "thinking", "thinking": "hm"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "out\n```\nput"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"},
                                     {"type": "text", "text": "and?"}], "id": "r"},
    ])  # fmt: skip
    text = "".join(markdown.write(doc))
    for shown in ("`[a.png, image/png, 3 bytes]`", "`[thinking]`\n\n> hm\n",
                  '`[tool call ls]`\n\n```json\n{\n  "a": 1\n}\n```',
                  "`[result]`\n\n````\nout\n```\nput\n````\n"):  # fmt: skip
        assert shown in text
    (new,), unread = read(text.encode())
    assert [(m["id"], m["content"]) for m in new["messages"]] == [
        ("q", [{"type": "text", "text": "look"}]), ("r", [{"type": "text", "text": "and?"}]),
    ]  # fmt: skip
    said = "Markdown shows it, and does not carry it"
    assert [why for _, why, _ in unread] == [
        f"{what}: {said}" for what in ("an attachment", "thinking", "a tool call", "a tool's result", "a tool's result")
    ]
    lines = text.split("\n")
    for where, why, _ in unread:
        kind = {"an": "media", "th": "thinking", "a ": "call" if "call" in why else "result"}[why[:2]]
        assert f'"kind": "{kind}"' in lines[int(where.rpartition(":")[2]) - 1]


LOOKS = st.sampled_from(["<!-- gptsh 0123456789ab {} -->", "```", "~~~~py", "-->", "--!>", "\r\n", "\r", "\n", "\n\n",
                         "## You", "\ufeff", "\0", "\u2028", "\x85", "\ud800", "\udfff"])  # fmt: skip
TEXT = st.lists(LOOKS | st.text(st.characters(codec=None), max_size=8), max_size=8).map("".join).map(vocabulary._whole)
PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}, optional={"source": TEXT.filter(bool)})
CONTENT = TEXT | st.lists(PART, max_size=3)


SPOKEN = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), CONTENT), max_size=5)


@given(SPOKEN, TEXT)
@settings(max_examples=60)
def test_any_text_comes_back_as_it_was(said: list[tuple[str, Any]], title: str) -> None:
    comes_back(said, title)


@pytest.mark.slow
@given(SPOKEN, TEXT)
@settings(max_examples=300)
def test_any_text_comes_back_as_it_was_more_often(said: list[tuple[str, Any]], title: str) -> None:
    comes_back(said, title)


def comes_back(said: list[tuple[str, Any]], title: str) -> None:
    doc = a_doc([{"role": role, "content": content} for role, content in said], title=title)
    doc["agent"]["system"] = title or None
    new, unread = back(doc)
    assert unread == []
    assert [(m["role"], m["content"]) for m in new["messages"]] == said
    assert [m["id"] for m in new["messages"]] == [m["id"] for m in doc["messages"]]
    assert (new["agent"]["system"] or "") == (title if title.strip() else "")


def test_what_a_text_says_of_its_own_export_is_no_mark() -> None:
    doc = a_doc([{"role": "user", "content": "hi"}])
    for _ in range(3):
        written = "".join(markdown.write(doc))
        doc = a_doc([{"role": "user", "content": written}])
        new, unread = back(doc)
        assert unread == []
        assert new["messages"][0]["content"] == written


@pytest.mark.slow
@given(vocabulary.messages())
def test_whatever_a_session_holds_it_is_written_and_each_message_is_found_again_or_told(messages: list[Any]) -> None:
    doc = a_doc(messages)
    new, unread = back(doc)
    assert "".join(markdown.write(doc)) == "".join(markdown.write(doc))
    ids = {m["id"] for m in new["messages"]}
    assert len(unread) >= len([m for m in doc["messages"] if m["id"] not in ids])


def test_an_edited_text_is_read_as_it_is_now_and_a_torn_file_is_told() -> None:
    text = "".join(markdown.write(a_doc([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])))
    (new,), unread = read(text.replace("\nhi\n", "\nhi there\nyou\n").encode())
    assert new["messages"][0]["content"] == "hi there\nyou"
    assert unread == []
    (new,), unread = read(text[: text.index("\nho\n") + 2].encode())
    assert [m["content"] for m in new["messages"]] == ["hi", "h"]
    assert [why for _, why, _ in unread] == ["the end is missing"]
    (new,), unread = read(text.replace("\n", "\r\n").encode())
    assert len(new["messages"]) == 2


@pytest.mark.parametrize(
    "data",
    [b"", b"# A title\n\nsome words\n", b"<!-- gptsh -->\n", b"<!-- other 0123456789ab {} -->\n",
     b"\n<!-- gptsh 0123456789ab {} -->\n", b"<!-- gptsh 0123456789ab {} -->"],
)  # fmt: skip
def test_markdown_without_the_mark_is_not_recognised(data: bytes) -> None:
    assert not markdown.READER.recognises(Source("-", None, data))


@settings(max_examples=300)
@given(st.data())
def test_what_was_spoilt_is_read_or_told(data: st.DataObject) -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "source": "x"}]
    text = "".join(markdown.write(a_doc([{"role": "user", "content": content}, {"role": "assistant", "content": "c"}])))
    pieces = st.sampled_from(["{", "}", '"', "null", "[]", "7", '{"kind": []}', "", "\n", "\0", '"role": 7', '"text"'])
    spoilt = text.encode()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(70, len(spoilt)))
        spoilt = spoilt[:at] + data.draw(pieces).encode() + spoilt[at + data.draw(st.integers(0, 9)) :]
    source = Source("-", None, spoilt)
    if markdown.READER.recognises(source):
        for item in markdown.READER.read(source):
            if isinstance(item, dict):
                assert json.dumps(checks.check(item))


def test_of_a_file_that_is_cut_behind_its_first_line_the_end_is_missing() -> None:
    docs, unread = read(b'<!-- gptsh 0123456789ab {"id":"aaaa"} -->\n')
    assert docs == []
    assert [item.why for item in unread] == ["the end is missing"]
