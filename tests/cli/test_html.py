"""The export as HTML: what a model, a tool or a file says is shown, and nothing of it is obeyed."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import vocabulary
from tests.support.attached import HOSTILE, make_pdf, make_png
from tests.support.histories import put, session_of
from tests.support.home import Home
from tests.support.messages import assistant

BARE = ("head title style body main header h1 h2 h3 h4 h5 h6 dl dt dd time summary figure figcaption blockquote ul li "
        "table thead tbody tr em strong s code br hr")  # fmt: skip
TAGS: dict[str, set[str]] = {
    **{tag: set() for tag in BARE.split()},
    "html": {"lang"}, "meta": {"charset", "name", "content", "http-equiv"}, "article": {"class"}, "span": {"class"},
    "div": {"class", "dir"}, "p": {"class"}, "details": {"class"}, "pre": {"tabindex"}, "ol": {"start"},
    "th": {"class"}, "td": {"class"}, "a": {"href", "rel", "download"}, "img": {"src", "alt"}, "link": {"rel", "href"},
}  # fmt: skip
URL = re.compile(
    r"https?://|mailto:|data:(image/(png|jpeg|gif|webp)|application/pdf|audio/(wav|mpeg)|application/octet-stream);"
)
VOID = {"meta", "link", "br", "hr", "img"}


class Reader(HTMLParser):
    """Reads a page as browsers do; fails at what no page of ours may have, and gathers what it shows."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.shown = ""
        self.style = ""
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(page)
        self.close()
        assert self.open == []
        assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [found for name, found in self.elements if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        assert found.keys() <= TAGS[tag], (tag, found)
        assert not (tag == "a" and "a" in self.open)
        for url in (found.get("href"), found.get("src")):
            assert url is None or URL.match(url) or (tag, url) == ("link", "data:,")
        assert tag != "img" or found["src"].startswith("data:image/")
        assert tag != "a" or found["href"].startswith("data:") is ("download" in found)
        self.elements.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.shown += data

    def refuse(self, data: str) -> None:
        raise AssertionError(data)

    handle_comment = unknown_decl = handle_pi = refuse


@pytest.fixture(scope="module")
def a_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


def page(home: Home, *messages: dict[str, Any], **more: Any) -> Reader:
    put(home, session_of(*messages, **more))
    run = home.run("--export-session", "7x2m", "--format", "html")
    assert run.code == 0, run.stderr
    assert run.stdout[:16] == "<!DOCTYPE html>\n", run.stderr
    return Reader(run.stdout)


def test_the_page_allows_nothing_and_loads_nothing(a_home: Home) -> None:
    reader = page(a_home, assistant("hi"))
    (policy,) = (meta["content"] for meta in reader.all("meta") if "http-equiv" in meta)
    style = base64.b64encode(hashlib.sha256(reader.style.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'", f"style-src 'sha256-{style}'", "img-src data:", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert not re.search(r"url\(|@import", reader.style)
    assert "prefers-color-scheme: dark" in reader.style


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_are_shown_and_not_obeyed(a_home: Home, text: str) -> None:
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
    image = {"type": "image_url", "image_url": {"url": text}, "source": text}
    page(
        a_home,
        {"role": "user", "content": [{"type": "text", "text": text, "source": text}, image]},
        assistant(text, model=text, tool_calls=[call], finish_reason=text, refusal=text,
             thinking=[{"type": "thinking", "thinking": text}]),
        {"role": "tool", "name": text, "content": text}, {"role": text or "x", "content": text},
        title=text, agent={"name": text, "system": text}, meta={"tags": [text], "forked_from": text},
    )  # fmt: skip


WORDS = st.lists(
    st.sampled_from(["word", "*", "**", "`", "_", "[a]", "(b)", "\n", "\n\n", "> ", "- ", "1. ", "# ", "|",
                     "<b>", "&amp;", "~~", "\\", "$", "![c](d)", "[e]: f\n"]), max_size=20,
).map("".join)  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.sampled_from(HOSTILE) | vocabulary.TEXT, max_size=8).map("".join), WORDS)
def test_any_words_give_no_tag_but_ours_and_none_is_left_out(
    a_home: Home, text: str, words: str
) -> None:
    reader = page(
        a_home, assistant(text), {"role": "user", "content": text}, assistant(words), title="t"
    )
    assert reader.shown.count("word") == text.count("word") * 2 + words.count("word")


def test_words_calls_results_thinking_and_files_have_their_place(a_home: Home) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a":[1]}'}}
    png, data = (base64.b64encode(file).decode() for file in (make_png(), make_pdf()))
    image = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{png}"},
        "source": "a.png",
    }
    pdf = {
        "type": "file",
        "file": {"filename": "b.pdf", "file_data": f"data:application/pdf;base64,{data}"},
    }
    svg = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}}
    far = {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}
    listing = {"type": "text", "text": "x = 1", "source": "a.py"}
    reader = page(
        a_home,
        {"role": "user", "content": [{"type": "text", "text": "# look"}, listing, image, pdf, svg, far]},
        assistant("**so**\n\n```py\ndef f(): return 'x'\n```", tool_calls=[call], model="lab/m", finish_reason="length",
             thinking=[{"type": "thinking", "thinking": "hm"}]),
        {"role": "tool", "name": "ls", "content": [{"type": "text", "text": "first\nsecond"}, image]},
        assistant("```klingon\nx\n```"), {"role": "tool", "content": "?"},
    )  # fmt: skip
    assert re.findall(r"\n(.*) 2025-\d\d-\d\d", reader.shown)[-5:] == [
        "You",
        "lab/m",
        "Tool ls",
        "Assistant",
        "Tool",
    ]
    assert [found["class"] for found in reader.all("details")] == [
        "file",
        "thinking",
        "call",
        "result",
        "result",
    ]
    assert [found["src"] for found in reader.all("img")] == [f"data:image/png;base64,{png}"] * 2
    links = reader.all("a")
    assert [found.get("download") for found in links] == ["b.pdf", "image.svg", None]
    assert links[2] == {"href": "https://a.example/x.png", "rel": "noopener noreferrer nofollow"}
    for part in ("You", "lab/m", "Tool ls", "length", f"a.png, image/png, {len(make_png())} bytes",
                 "image/svg+xml, 5 bytes", 'tool call ls({"a":[1]})', "thinking, 2 characters", '"a": [\n',
                 "first\nsecond", "klingon"):  # fmt: skip
        assert part in reader.shown
    assert {"class": "k"} in reader.all("span")  # a keyword of Python
    assert reader.all("h3")


@pytest.mark.parametrize(("kind", "media_type", "title", "name"), [
    ("image", "image/svg+xml", None, "image.svg"),
    ("document", "application/msword", "../a b\"c.doc", "a b_c.doc"),
    ("document", "text/csv", "\u202efdp.exe/...", "document"),
    ("document", "text/csv", "x" * 300 + ".csv", "x" * 96 + ".csv"),
])  # fmt: skip
def test_what_is_not_shown_can_be_taken_out_under_a_safe_name(
    a_home: Home, kind: str, media_type: str, title: str | None, name: str
) -> None:
    part = {
        "type": kind,
        "source": {"type": "base64", "media_type": media_type, "data": "YWJj"},
        "title": title,
    }
    reader = page(a_home, {"role": "user", "content": [part]})
    assert reader.all("a") == [
        {"href": "data:application/octet-stream;base64,YWJj", "download": name}
    ]
    assert not reader.all("img")
