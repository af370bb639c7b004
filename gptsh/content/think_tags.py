"""Think tags: the thought in front of an answer, between ``<think>`` and ``</think>``, separated while it arrives.

Servers send it so if they do not know the model's template. Only a tag at the very beginning counts: a later one is a
part of the text. Some templates write the opening tag into the prompt, so that the answer begins inside the thought.
"""

from typing import Literal

from gptsh.records import NamedTuple

_OPENING, _CLOSING = "<think>", "</think>"
# Where an answer without an opening tag begins: with its text, inside a thought, or this is not known.
Beginning = Literal["text", "thought", "unknown"]


class Piece(NamedTuple):
    """The next piece of the thought and of the text. ``is_text``: what was taken for a thought is text as well."""

    thought: str = ""
    text: str = ""
    is_text: bool = False


class ThinkTags:
    """Separates one answer. ``found`` is where it began, as soon as that is known; None with an opening tag."""

    def __init__(self, beginning: Beginning = "text") -> None:
        self.beginning: Beginning = beginning
        self.found: Beginning | None = None
        self._state: Literal["start", "waiting", "thought", "text"] = "start"
        self._received: list[str] = []  # all pieces, until the text begins
        self._tail = ""  # what may be the beginning of a tag
        self._skips_space = True  # white space beside a tag belongs to neither

    def add(self, piece: str) -> Piece:
        """Return what is known with this piece of the answer."""
        if self._state == "text":
            return Piece(text=self._without_space(piece))
        self._received.append(piece)
        self._tail += piece
        if self._state == "start":
            beginning = self._tail.lstrip()
            if _OPENING.startswith(beginning) and beginning != _OPENING:
                return Piece()  # too little has arrived
            self._start(beginning)
        return self._in_thought() if self._state == "thought" else self._wait()

    def _start(self, beginning: str) -> None:
        """Decide how the answer begins."""
        if beginning.startswith(_OPENING):
            self._state, self._tail = "thought", beginning.removeprefix(_OPENING)
        elif self.beginning == "thought":
            self._state, self.found = "thought", "thought"
        else:
            self._state = "waiting"

    def _in_thought(self) -> Piece:
        thought, tag, text = self._tail.partition(_CLOSING)
        if tag:
            thought = self._without_space(thought)
            return Piece(thought, self._begin_text(text))
        self._tail = _partial_tag(self._tail, _CLOSING)
        return Piece(self._without_space(thought.removesuffix(self._tail)))

    def _wait(self) -> Piece:
        """Wait for the first tag, if the answer may have begun inside a thought."""
        closing, opening = self._tail.find(_CLOSING), self._tail.find(_OPENING)
        is_closed = closing >= 0 and not 0 <= opening < closing
        is_opened = opening >= 0 and not is_closed  # in the middle
        if self.beginning == "text" or is_opened:
            self.found = "text"
            return Piece(text=self._all_as_text())
        if is_closed:
            self.found = "thought"
            thought = "".join(self._received).partition(_CLOSING)[0]
            return Piece(thought.lstrip(), self._begin_text(self._tail[closing + len(_CLOSING) :]))
        self._tail = _partial_tag(self._tail, _OPENING, _CLOSING)
        return Piece()

    def expect_text(self) -> Piece:
        """Return what has been waiting: the server sends thoughts apart from the text, so this is no thought."""
        was_waiting, self.beginning, self.found = self._state == "waiting", "text", "text"
        return Piece(text=self._all_as_text()) if was_waiting else Piece()

    def end_thought(self) -> Piece:
        """Return the rest before something else than text: it ends a thought without a closing tag."""
        if self._state == "thought":
            thought = self._without_space(self._tail)
            self._begin_text("")
            return Piece(thought)
        return self.end(is_complete=False)

    def end(self, *, is_complete: bool) -> Piece:
        """Return the rest. Of a complete answer a thought without a closing tag is text, so that it is not lost."""
        if self._state == "text":
            return Piece()
        if self._state == "thought":
            if is_complete:
                self.found = "text" if self.found else None
                return Piece(text=self._all_as_text(), is_text=True)
            thought, self._tail = self._without_space(self._tail), ""
            return Piece(thought)
        has_begun = self._state == "waiting"
        self.found = "text" if has_begun else None
        return Piece(text=self._all_as_text()) if has_begun or self._tail else Piece()

    def _begin_text(self, text: str) -> str:
        self._state, self._tail, self._received, self._skips_space = "text", "", [], True
        return self._without_space(text)

    def _all_as_text(self) -> str:
        everything = "".join(self._received)
        self._state, self._tail, self._received, self._skips_space = "text", "", [], False
        return everything

    def _without_space(self, piece: str) -> str:
        if self._skips_space:
            piece = piece.lstrip()
            self._skips_space = not piece
        return piece


def separate(text: str, beginning: Beginning, *, is_complete: bool = True) -> Piece:
    """Return the thought and the text of a whole answer."""
    tags = ThinkTags(beginning)
    first, rest = tags.add(text), tags.end(is_complete=is_complete)
    thought = "" if rest.is_text else first.thought + rest.thought
    return Piece(thought, first.text + rest.text, rest.is_text)


def is_open(text: str) -> bool:
    """Whether an answer begins with a thought that has no end: so it was cut off."""
    return text.lstrip().startswith(_OPENING) and _CLOSING not in text


def _partial_tag(text: str, *tags: str) -> str:
    """The longest end of a text with which one of the tags begins."""
    longest = max(map(len, tags)) - 1
    ends = (text[-size:] for size in range(min(longest, len(text)), 0, -1))
    return next((end for end in ends if any(tag.startswith(end) for tag in tags)), "")
