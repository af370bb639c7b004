"""The export as HTML: what a model, a tool or a file says is shown, and nothing of it is obeyed."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.core import checks, document
from gptsh.core.document import Document
from gptsh.render import html, hypertext
from gptsh.render.stylesheet import STYLE
from tests.support import vocabulary
from tests.support.attached import HOSTILE, a_pdf, a_png

BARE = ("head title style body main header h1 h2 h3 h4 h5 h6 dl dt dd time summary figure figcaption blockquote ul li "
        "table thead tbody tr em strong s code br hr")  # fmt: skip
TAGS: dict[str, set[str]] = {
    **{tag: set() for tag in BARE.split()},
    "html": {"lang"}, "meta": {"charset", "name", "content", "http-equiv"}, "article": {"class"}, "span": {"class"},
    "div": {"class", "dir"}, "p": {"class"}, "details": {"class"}, "pre": {"tabindex"}, "ol": {"start"},
    "th": {"class"}, "td": {"class"}, "a": {"href", "rel", "download"}, "img": {"src", "alt"}, "link": {"rel", "href"},
}  # fmt: skip
NAMES = "user assistant tool system words raw line note language table right center call result file thinking"
CLASSES = {*NAMES.split(), *"ckfsndi"}
URL = re.compile(
    r"https?://|mailto:|data:(image/(png|jpeg|gif|webp)|application/pdf|audio/(wav|mpeg)|application/octet-stream);"
)
VOID = {"meta", "link", "br", "hr", "img"}


class Reader(HTMLParser):
    """Reads a page as browsers do; fails at what no page of ours may have, and gathers what it shows."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.shown: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        assert tag in TAGS, tag
        assert found.keys() <= TAGS[tag], (tag, found)
        assert set(found.get("class", "").split()) <= CLASSES, found
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
        if self.open and self.open[-1] != "style":
            self.shown.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    page.encode()
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)
    return reader


def a_doc(messages: list[Any], **more: Any) -> Document:
    doc = {"version": 1, "id": "7x2m", "title": "A Talk", "created_at": "2025-10-27T09:15:30.120Z", **more}
    return document.migrate(checks.check({**doc, "messages": messages}))


def shown(*messages: dict[str, Any], **more: Any) -> Reader:
    return read("".join(html.page(a_doc([*messages], **more))))


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_the_page_allows_nothing_and_loads_nothing() -> None:
    reader = shown(said("hi"))
    metas = [found for tag, found in reader.elements if tag == "meta"]
    (policy,) = (meta["content"] for meta in metas if "http-equiv" in meta)
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'", f"style-src 'sha256-{style}'", "img-src data:", "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in metas
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert "prefers-color-scheme: dark" in STYLE


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_are_shown_and_not_obeyed(text: str) -> None:
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
    image = {"type": "image_url", "image_url": {"url": text}, "source": text}
    reader = shown(
        {"role": "user", "content": [{"type": "text", "text": text},
                                     {"type": "text", "text": text, "source": text}, image]},
        {**said(text), "model": text, "tool_calls": [call], "finish_reason": text, "refusal": text,
         "thinking": [{"type": "thinking", "thinking": text}]},
        {"role": "tool", "name": text, "content": text},
        {"role": text or "x", "content": text},
        title=text, agent={"name": text, "system": text}, meta={"tags": [text], "forked_from": text},
    )  # fmt: skip
    assert not [found for tag, found in reader.elements if tag == "a" and "javascript" in found["href"].lower()]


PIECE = (
    st.sampled_from([*HOSTILE, "\n", "\n\n", "```", "> ", "- ", "    ", "|", "\t", "[a]: http://x\n"]) | vocabulary.TEXT
)
TEXT = st.lists(PIECE, max_size=8).map("".join)


@settings(max_examples=300)
@given(TEXT)
def test_any_words_give_no_tag_but_ours(text: str) -> None:
    read(hypertext.markdown(text))
    assert "".join(read(hypertext.code(text, "py")).shown).rstrip("\n") == hypertext._shown(text).rstrip("\n")
    assert "".join(read(f"<p>{hypertext.plain(text)}</p>").shown) == hypertext._shown(text)


@settings(max_examples=40)
@given(vocabulary.messages())
def test_whatever_a_session_holds_is_a_page(messages: list[Any]) -> None:
    read("".join(html.page(a_doc(messages))))


@pytest.mark.slow
@settings(max_examples=200)
@given(vocabulary.messages())
def test_whatever_a_session_holds_is_a_page_more_often(messages: list[Any]) -> None:
    read("".join(html.page(a_doc(messages))))


@settings(max_examples=300)
@given(st.lists(st.sampled_from(["word", "*", "**", "`", "_", "[a]", "(b)", "\n", "\n\n", "> ", "- ", "1. ", "# ", "|",
                                 "<b>", "&amp;", "~~", "\\", "$", "![c](d)", "[e]: f\n"]), max_size=20))  # fmt: skip
def test_no_word_is_left_out(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "".join(read(hypertext.markdown(text)).shown).count("word") == text.count("word")


def test_words_calls_results_thinking_and_files_have_their_place() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a":[1]}'}}
    png = base64.b64encode(a_png()).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{png}"}, "source": "a.png"}
    data = base64.b64encode(a_pdf()).decode()
    pdf = {"type": "file", "file": {"filename": "b.pdf", "file_data": f"data:application/pdf;base64,{data}"}}
    svg = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}}
    far = {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}
    listing = {"type": "text", "text": "x = 1", "source": "a.py"}
    reader = shown(
        {"role": "user", "content": [{"type": "text", "text": "# look"}, listing, image, pdf, svg, far]},
        {**said("**so**\n\n```py\ndef f(): return 'x'\n```"), "tool_calls": [call], "model": "lab/m",
         "thinking": [{"type": "thinking", "thinking": "hm"}], "finish_reason": "length"},
        {"role": "tool", "name": "ls", "content": [{"type": "text", "text": "first\nsecond"}, image]},
    )  # fmt: skip
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("article") == 3
    assert [found["class"] for tag, found in reader.elements if tag == "details"] == [
        "file",
        "thinking",
        "call",
        "result",
    ]
    assert [found["src"] for tag, found in reader.elements if tag == "img"] == [f"data:image/png;base64,{png}"] * 2
    links = [found for tag, found in reader.elements if tag == "a"]
    assert [found.get("download") for found in links] == ["b.pdf", "image.svg", None]
    assert links[2] == {"href": "https://a.example/x.png", "rel": "noopener noreferrer nofollow"}
    text = "".join(reader.shown)
    for part in ("You", "lab/m", "Tool ls", "length", f"a.png, image/png, {len(a_png())} bytes",
                 "image/svg+xml, 5 bytes",
                 'tool call ls({"a":[1]})', "thinking, 2 characters", '"a": [\n', "first\nsecond"):  # fmt: skip
        assert part in text
    assert ("span", {"class": "k"}) in reader.elements
    assert ("span", {"class": "s"}) in reader.elements
    assert "h3" in tags
    assert [tag for tag in tags if tag in ("dt", "dd")][:8] == ["dt", "dd"] * 4


@pytest.mark.parametrize(("kind", "media_type", "title", "name"), [
    ("image", "image/svg+xml", None, "image.svg"), ("image", "image/bmp", None, "image.bmp"),
    ("image", "", None, "image"), ("image", "text/html", None, "image.html"),
    ("document", "application/msword", "../a b\"c.doc", "a b_c.doc"),
    ("document", "text/html", "C:\\x\\y.htm", "y.htm"),
    ("document", "text/csv", None, "document"), ("document", "text/csv", "\u202efdp.exe/...", "document"),
    ("document", "text/csv", "x" * 300 + ".csv", "x" * 100 + ".csv"), ("audio", "audio/flac", None, "recording.flac"),
])  # fmt: skip
def test_what_is_not_shown_can_be_taken_out_under_a_safe_name(
    kind: str, media_type: str, title: str | None, name: str
) -> None:
    part = {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": "YWJj"}, "title": title}
    reader = shown({"role": "user", "content": [part]})
    (found,) = [found for tag, found in reader.elements if tag == "a"]
    assert found == {"href": "data:application/octet-stream;base64,YWJj", "download": name}
    assert "img" not in [tag for tag, _ in reader.elements]


def test_long_code_is_not_highlighted_and_an_unknown_language_is_named() -> None:
    assert "span" not in hypertext.code("x = 1\n" * 2000, "py")
    assert "span" not in hypertext.code("x = '" + "y" * 2000 + "'", "py")
    assert '<div class="language">klingon</div>' in hypertext.code("x", "klingon")
    assert "language" not in hypertext.code("x", "py")
    big = "word *word* " * 20_000
    assert read(hypertext.markdown(big)).shown.count(big.rstrip()) <= 1
    assert "".join(read(hypertext.markdown(f"# a\n\n{big}\n\n**b**")).shown).count("word") == 40_000


def test_a_page_comes_in_pieces() -> None:
    pieces = html.page(a_doc([said("a"), said("b")]))
    assert next(pieces).startswith("<!DOCTYPE html>\n")
    assert sum(1 for _ in pieces) > 3  # a long session is not held twice
