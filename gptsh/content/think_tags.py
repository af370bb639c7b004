"""Separate the thought in front of an answer's text from the text while it arrives.

Servers leave it there if they do not know the model's template: between ``<think>`` and
``</think>``, or in gpt-oss's channels. Only a tag at the very beginning counts: a later one is a
part of the text. Some templates open the thought in the prompt, so that only its end arrives. By
then a stream has passed it on as text; see ``split``.
"""

from collections.abc import Sequence
from typing import Literal

from gptsh.records import NamedTuple

_FINAL = "<|channel|>final<|message|>"
# The tags that end a thought, by the one that begins it.
_ENDS = {
    "<think>": ("</think>",),
    "<|channel|>analysis<|message|>": (f"<|end|><|start|>assistant{_FINAL}", _FINAL),
}
_TAGS = (*_ENDS, *(end for ends in _ENDS.values() for end in ends))


class Piece(NamedTuple):
    """The next piece of the thought and of the text.

    ``is_text``: what was taken for a thought is text as well.
    """

    thought: str = ""
    text: str = ""
    is_text: bool = False


class ThinkTags:
    """Separates one answer. Unless it ``reads`` tags, all of the answer is text.

    ``may_begin_inside``: the prompt may have opened a thought. Not if the server sends reasoning
    apart.
    """

    def __init__(self, *, reads: bool) -> None:
        self.may_begin_inside = reads
        self._state: Literal["start", "thought", "text"] = "start" if reads else "text"
        self._has_found_tag = False
        self._ends: Sequence[str] = ()  # of the thought
        self._received: list[str] = []  # all pieces, until the text begins
        self._tail = ""  # what is not passed on yet: it may be the beginning of a tag
        self._skips_space = False  # white space beside a tag belongs to neither

    @property
    def is_undecided(self) -> bool:
        """Whether the text is a thought up to its first tag, if that ends one."""
        return self.may_begin_inside and not self._has_found_tag

    def add(self, piece: str) -> Piece:
        """Return what is known with this piece of the answer."""
        if self._state == "text":
            return Piece(text=self._without_space(piece))
        self._received.append(piece)
        self._tail += piece
        return self._begin() if self._state == "start" else self._think()

    def _begin(self) -> Piece:
        """Decide how the answer begins, as soon as enough of it has arrived."""
        beginning = self._tail.lstrip()
        if any(tag.startswith(beginning) for tag in _TAGS if tag != beginning):
            return Piece()
        for opening, ends in _ENDS.items():
            if beginning.startswith(opening):
                self._state = "thought"
                self._ends = ends
                self._has_found_tag = self._skips_space = True
                self._tail = beginning.removeprefix(opening)
                return self._think()
        thought, text = split(self._tail) if self.may_begin_inside else (None, self._tail)
        self._has_found_tag = thought is not None
        self._begin_text(skips_space=self._has_found_tag and not text)
        return Piece(thought or "", text)

    def _think(self) -> Piece:
        end = _first_tag(self._tail, self._ends)
        if end is None:
            thought = self._tail
            self._tail = _partial_tag(thought, self._ends)
            return Piece(self._without_space(thought.removesuffix(self._tail)))
        thought, _, text = self._tail.partition(end)
        thought = self._without_space(thought)
        self._begin_text(skips_space=True)
        return Piece(thought, self._without_space(text))

    def end(self, *, is_complete: bool) -> Piece:
        """Return the rest: of the answer, or of its beginning before something else than text.

        Of a complete answer a thought without an end is text, so that it is not lost.
        """
        if self._state == "text":
            return Piece()
        received, rest = "".join(self._received), self._tail
        is_thought = self._state == "thought"
        thought = self._without_space(rest)
        self._begin_text(skips_space=is_thought)
        if not is_thought:
            return Piece(text=rest)
        return Piece(text=received, is_text=True) if is_complete else Piece(thought)

    def _begin_text(self, *, skips_space: bool) -> None:
        self._state = "text"
        self._received = []
        self._tail = ""
        self._skips_space = skips_space

    def _without_space(self, piece: str) -> str:
        if self._skips_space:
            piece = piece.lstrip()
            self._skips_space = not piece
        return piece


def split(text: str) -> tuple[str | None, str]:
    """Return the thought that the prompt opened, and the text behind it.

    Its end is the first tag. Without one: None, and all of the text.
    """
    tag = _first_tag(text, _TAGS)
    if tag is None or tag in _ENDS:
        return None, text
    thought, _, rest = text.partition(tag)
    return thought.lstrip(), rest.lstrip()


def is_open(text: str) -> bool:
    """Whether an answer begins with a thought that has no end: so it was cut off."""
    beginning = text.lstrip()
    for opening, ends in _ENDS.items():
        if beginning.startswith(opening):
            return _first_tag(beginning, ends) is None
    return False


def _first_tag(text: str, tags: Sequence[str]) -> str | None:
    """The one of the tags that is in a text before all others."""
    found = filter(text.__contains__, tags)
    return min(found, key=text.index, default=None)


def _partial_tag(text: str, tags: Sequence[str]) -> str:
    """The longest end of a text with which one of the tags begins."""
    longest = max(map(len, tags)) - 1
    for start in range(max(0, len(text) - longest), len(text)):
        end = text[start:]
        if any(tag.startswith(end) for tag in tags):
            return end
    return ""
