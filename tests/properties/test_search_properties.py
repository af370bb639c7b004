"""A search finds what a plain search of the texts finds, however a program writes the file."""

import json
from collections.abc import Callable
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.home import Home
from tests.support.sessions import compact, in_lines, put_file

STAMP = "2026-11-03T10:00:00.000Z"


def escaped(doc: dict[str, Any]) -> bytes:
    """As programs write it that put JSON into HTML: with an escape for much that needs none."""
    escapes = {ord(character): f"\\u{ord(character):04X}" for character in "<>&'+`\x7f"}
    return json.dumps(doc, separators=(", ", ": ")).translate(escapes).replace("/", "\\/").encode()


def indented(doc: dict[str, Any]) -> bytes:
    """As ``jq`` and ``json.tool`` write it."""
    return json.dumps(doc, indent=2).encode() + b"\n"


LAYOUTS: list[Callable[[dict[str, Any]], bytes]] = [in_lines, compact, escaped, indented]

# What is between the texts of a file, what JSON escapes, and what changes when it is folded.
WORDS = [
    *("content:", '"content":"', '"role":"user"', "},{", '},{"id":"', "]}", "text", "id", "null", "\\u0041"),
    *("kelvin", "\u212aelvin", "Izmir", "\u0130zmir", ";", "\u037e", "`", "\u1fef", "e\u0301", "\u00e9", "\u00c9"),
    *("\u03a3", "\u03c3", "\u03c2", "\u039f\u0394\u039f\u03a3", "\u0301", "\u00df", "SS", "\ufb01", "\U0001f600"),
    *("\ud800", "\x1b[1m", "\x7f", "a\u0338", "=\u0338", "/", "\\", '"', "'", "<b>", "&amp;", "+", "C++", "n", "u00e9"),
]  # fmt: skip
pieces = st.sampled_from(WORDS) | st.text(min_size=1, max_size=4)
texts = st.lists(pieces | st.sampled_from(" \n\t\r"), max_size=8).map("".join)
needles = st.text(st.sampled_from("".join(WORDS)) | st.characters(), min_size=1, max_size=12)


def fold(text: str) -> str:
    """As a search compares: any case, plain letters, ``ss`` for sharp s, one sigma."""
    return normalize("NFKC", text).lower().replace("\u00df", "ss").replace("\u03c2", "\u03c3")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(texts, min_size=1, max_size=3), needles | pieces, st.data())
@example(["set content: and role: here"], "content:", None)
@example(["set content: and role: here"], "role:", None)
@example(['a "stop" b', ':"stop"'], "stop", None)
@example(["a\n\u03a3 = 3"], "\u03a3", None)
@example(["\u0130zmir"], "izmir", None)
@example(["300 \u212a"], "k", None)
@example(["a\u00dfe"], "as", None)
@example(["\uff26\u2122"], "ft", None)
@example(["\U0001d41b\U0001d7d0"], "b2", None)
@pytest.mark.parametrize("write", LAYOUTS)
def test_a_search_finds_what_a_plain_search_of_the_texts_finds(
    home: Home,
    write: Callable[[dict[str, Any]], bytes],
    contents: list[str],
    needle: str,
    data: Any,
) -> None:
    whole = "\n".join(contents)
    if (
        data and whole and data.draw(st.booleans())
    ):  # a piece of the text itself, so that half of them are found
        start = data.draw(st.integers(0, len(whole) - 1))
        needle = whole[start : start + data.draw(st.integers(1, 12))]
    messages: list[dict[str, Any]] = [
        {"id": f"id-{at}", "parent": None, "timestamp": STAMP, "role": "user" if at % 2 == 0 else "assistant",
         "content": content, "raw": {"copy": [{"id": "id-x", "role": "user", "content": "never found"}] * 3}}
        for at, content in enumerate(contents)
    ]  # fmt: skip
    doc = {"version": 1, "id": "aaaa", "title": None, "created_at": STAMP, "updated_at": STAMP, "meta": {},
           "agent": {}, "context": {}, "messages": messages}  # fmt: skip
    put_file(home, "20261103-100000-aaaa", write(doc))
    words = [fold(word) for word in needle.split()]
    expected = bool(words) and all(
        any(word in fold(content) for content in contents) for word in words
    )
    if words:
        assert home.run("--search-sessions", f" {needle}", "-o", "json").code == (
            0 if expected else 1
        )
