"""Each pattern that reads the text of a model, a server or a file takes time in proportion to that text."""

import ast
import importlib
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gptsh.content import templates
from gptsh.context.sendable import _IDS
from gptsh.llm import anthropic, chat, gemini, ollama, parameters, refusals, responses, wordings
from gptsh.llm.stream import Refusable
from tests.support.paths import ROOT

PACKAGES = ("content", "context", "formats", "llm", "render", "terminal", "tools", "turn")
METHODS = {"findall", "finditer", "fullmatch", "match", "search", "split", "sub"}
SIZES = (500, 2_000)  # characters
MOMENT = 0.004  # seconds of the CPU; a text that takes less is not measured again
RATIO = 3  # twice the text takes twice the time, and four times if that is quadratic

MARKS = " \t\n\r\0\x1b\"'`*_~#|<>[](){}!?$%&@^+-=/\\.,:;0a\xe9"
PIECES = [mark + more for mark in MARKS for more in ("", "\n")]
ENDS = ("", "\0 a ")

# Patterns that a function takes from a table, by the file and the source.
TABLES: dict[str, list[str]] = {
    "content/templates.py: names": [
        names.pattern for names in (templates.FABRIC, templates.LLM, templates.ROLE)
    ],
    "context/sendable.py: pattern": [*_IDS.values()],
    "llm/parameters.py: family.names": [family.names for family in parameters._FAMILIES],
    "llm/refusals.py: refusable.wording": [
        field.wording
        for api in (anthropic, chat, gemini, ollama, responses)
        for field in api.REFUSABLE.values()
        if field.wording != Refusable().wording  # which matches nothing
    ],
    "llm/wordings.py: wording.pattern": [
        *[row.pattern for rows in wordings.STATUS_WORDINGS.values() for row in rows],
        *[f"(?i){row.pattern}" for row in (*wordings.TOO_LONG_WORDINGS, *wordings.WINDOW_WORDINGS)],
    ],
    "llm/refusals.py: f'(?i){pattern}'": [f"(?i){pattern}" for pattern in refusals._UNSUPPORTED],
    r"""llm/refusals.py: f'"param":\\s*"{param}[".\\[]|"loc":\\s*\\["body",\\s*"{loc}"'""": [
        r'"param":\s*"top_p[".\[]|"loc":\s*\["body",\s*"top_p"'
    ],
    r"llm/refusals.py: f'(?i){_BEFORE_NAME}{field}\\b|(?<![\\w.]){field}{_AFTER_NAME}'": [
        rf"(?i){refusals._BEFORE_NAME}top_p\b|(?<![\w.])top_p{refusals._AFTER_NAME}"
    ],
}
OTHERS = {  # what is built of a name, or reads one
    "llm/chat.py: vendor.cache_marks_for",
    "llm/refusals.py: f'(?i){before}|{after}'",
    "llm/refusals.py: f'(?i)(?<![a-z])(?:{effort}{others})(?![a-z])'",
}


class Use(NamedTuple):
    """A pattern, and the method by which it reads a text."""

    pattern: re.Pattern[Any]
    method: str

    def seconds(self, text: str) -> float:
        """How long the CPU reads a text."""
        given: Any = text if isinstance(self.pattern.pattern, str) else text.encode()
        more = (given[:0],) if self.method == "sub" else ()
        started = time.thread_time()
        found = getattr(self.pattern, self.method)(*more, given)
        for _ in found if self.method == "finditer" else ():
            pass
        return time.thread_time() - started

    def matches(self) -> st.SearchStrategy[str]:
        """Texts with a match."""
        if isinstance(self.pattern.pattern, str):
            return st.from_regex(self.pattern, alphabet=st.characters())
        return st.from_regex(self.pattern).map(lambda data: data.decode("utf-8", "replace"))

    def check(self, piece: str, end: str) -> None:
        """Fail if a piece that is repeated takes much more than twice the time for twice the text."""
        for size in SIZES:
            count = size // len(piece)
            short = piece * count + end
            if self.seconds(short) > MOMENT:
                long = piece * 2 * count + end
                once = min(self.seconds(short) for _ in range(3))
                assert self.seconds(long) < RATIO * once, (piece, end)


def uses_in(path: Path) -> Iterator[Use]:
    """The patterns that a file uses."""
    inside = path.relative_to(ROOT / "gptsh")
    names = vars(importlib.import_module(".".join(("gptsh", *inside.with_suffix("").parts))))
    for node in ast.walk(ast.parse(path.read_text())):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in METHODS
        ):
            continue
        is_function = ast.unparse(node.func.value) == "re"
        source = ast.unparse(node.args[0] if is_function else node.func.value)
        try:
            found = [eval(source, dict(names))]
        except (NameError, AttributeError, SyntaxError):
            name = f"{inside}: {source}"
            assert not is_function or name in TABLES or name in OTHERS, name
            found = TABLES.get(name, [])
        for pattern in found:
            if is_function or isinstance(pattern, re.Pattern):
                yield Use(re.compile(pattern), node.func.attr)


def files_of_texts() -> Iterator[Path]:
    """The files that read texts from elsewhere."""
    package = ROOT / "gptsh"
    yield package / "text.py"
    for name in PACKAGES:
        yield from sorted((package / name).glob("*.py"))


FILES = [
    str(path.relative_to(ROOT))
    for path in files_of_texts()
    if re.search(rf"\.({'|'.join(METHODS)})\(", path.read_text())
]


@cache
def uses_of(file: str) -> list[Use]:
    """The patterns that a file uses, each once."""
    return list(dict.fromkeys(uses_in(ROOT / file)))


@pytest.mark.parametrize("file", FILES)
def test_any_mark_many_times(file: str) -> None:
    for use in uses_of(file):
        for piece in PIECES:
            for end in ENDS:
                use.check(piece, end)


@pytest.mark.parametrize("file", FILES)
@settings(max_examples=3, phases=[Phase.generate])
@given(st.data())
def test_what_a_pattern_matches_many_times(file: str, data: st.DataObject) -> None:
    for use in uses_of(file):
        matched = data.draw(use.matches())
        for piece in {matched[:1], matched[: len(matched) // 2], matched} - {""}:
            for end in ENDS:
                use.check(piece, end)
