"""Fill in prompts with ``{names}``: find which names they have, and replace them by values.

``{{`` is a brace, and ``}}`` after it is its end: ``{{lang}}`` stands for the text ``{lang}``.
Other braces stand for themselves, as in JSON and code.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from gptsh.messages import Part

INPUT = "input"  # the name of what the user typed and piped in
_PLACE = "\0"  # stands for the input until it is inserted; no value and no file of text has it
# Names as other tools write them, and braces. The input of a role of aichat is marked by a NUL.
FABRIC = re.compile(r"\{\{ *([^\W\d]\w*) *\}\}|[{}]")
LLM = re.compile(r"\$([^\W\d]\w*)|[{}]")
ROLE = re.compile(rf"\0({INPUT})|[{{}}]")
_TOKEN = re.compile(r"\{\{|\}\}|\{([^\W\d]\w*)\}")


def names_in(text: str) -> list[str]:
    """Return the names in a prompt, in order, each once."""
    names = [match[1] for match in _TOKEN.finditer(text)]
    different_names = dict.fromkeys(names)
    return [name for name in different_names if name]


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a prompt with its values. Raises KeyError for a name without a value."""
    open_pairs = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal open_pairs
        if match[1]:
            return values[match[1]]
        if match[0] == "{{":
            open_pairs += 1
            return "{"
        if open_pairs:
            open_pairs -= 1
            return "}"
        return match[0]  # the ends of two single braces

    return _TOKEN.sub(replace, text)


def from_other(text: str, names: re.Pattern[str]) -> str:
    """Return another tool's prompt in our form: ``names`` matches its names, a brace is text."""
    depth = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal depth
        if match[1]:
            return f"{{{match[1]}}}"
        if match[0] == "{":
            depth += 1
            return "{{"
        if depth:
            depth -= 1
            return "}}"
        return match[0]

    return names.sub(replace, text)


class Template(NamedTuple):
    """A prompt that makes a question of what the user typed and piped in, and its values."""

    text: str
    values: Mapping[str, str]

    @property
    def needs_input(self) -> bool:
        """Whether the question is incomplete without words or piped text."""
        return INPUT in names_in(self.text)

    def question(self, words: str, piped: Part | None) -> list[Part]:
        """Return the parts of the question; ``piped`` is the part with piped text.

        The piped text remains a part if ``{input}`` is a paragraph of its own, so that it can be
        cut and pruned. The model reads the same text in any case. Without ``{input}`` the words and
        the piped text follow the prompt.
        """
        text = self.text
        if not self.needs_input and (words or piped):
            text = f"{text}\n\n{{{INPUT}}}"
        filled = fill(text, {**self.values, INPUT: _PLACE})
        alone = re.fullmatch(rf"(?s)(?:(.*)\n\n)?{_PLACE}(?:\n\n(.*))?", filled)
        if piped and alone and filled.count(_PLACE) == 1:
            before = _join(alone[1], words)
            return [*_typed(before), piped, *_typed(alone[2])]
        piped_text = piped["text"] if piped else ""
        return _typed(filled.replace(_PLACE, _join(words, piped_text)))


def _join(before: str | None, after: str) -> str:
    """Return both texts as paragraphs, without an empty one."""
    return "\n\n".join(text for text in (before, after) if text)


def _typed(text: str | None) -> list[Part]:
    return [{"type": "text", "text": text}] if text else []
