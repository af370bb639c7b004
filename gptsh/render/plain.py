"""An answer as plain text, byte for byte; what a terminal can show, and who writes to it."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from gptsh.messages import Event, Finished, Reasoning, Refusal, Text
from gptsh.text import Pieces

END_OF_FRAME = "\x1b[?2026l"  # behind what a terminal is to show at once


class Look(NamedTuple):
    """``styles``: escape sequences at all (bold, dim, …); ``colors``: colours among them."""

    styles: bool
    colors: bool


def obeys_escapes(environ: Mapping[str, str]) -> bool:
    """Whether a terminal obeys escape sequences at all."""
    return environ.get("TERM", "") not in ("", "dumb")


def look(environ: Mapping[str, str], *, terminal: bool) -> Look:
    """Styles on a terminal that is not dumb, or where FORCE_COLOR asks for them; NO_COLOR leaves the colours out."""
    forced = environ.get("FORCE_COLOR", "").lower() not in ("", "0", "false")
    styles = (terminal and obeys_escapes(environ)) or forced
    return Look(styles, styles and not environ.get("NO_COLOR"))


class Sink(Protocol):
    """Where text goes. Raises OSError as its stream does."""

    def write(self, text: str) -> None:
        """Write it whole, at once, safe for a terminal where it is one."""

    def draw(self, text: str) -> None:
        """Write what is safe already, its escape sequences included."""

    def offer(self, text: str) -> bool:
        """Draw a short text, unless that would have to wait or fails; whether it was drawn."""


class ReasoningStream:
    """Reasoning, as it comes, on lines of its own beside the answer: to ``err``, unless that is None or fails.

    ``shared``: on the terminal that shows the answer, too.
    """

    def __init__(self, err: Sink | None, *, dimmed: bool = False, shared: bool = False) -> None:
        self._err, self._dimmed = err, dimmed
        self._shared, self._pieces = shared, Pieces()
        self._last, self._begun = "\n", False

    @property
    def shared(self) -> bool:
        """Whether the reader sees it between the parts of the answer."""
        return self._shared and self._err is not None

    def write(self, text: str) -> None:
        """Show a piece."""
        if self._err is None:
            return
        self._last, self._begun = text[-1], True
        try:
            if self._dimmed:
                shown = self._pieces.visible(text)
                words = shown.rstrip("\n")
                self._err.draw(f"\x1b[2m{words}\x1b[0m{shown[len(words) :]}" if words else shown)
            else:
                self._err.write(text)
        except OSError:
            self._err, self._last = None, "\n"

    def end(self) -> None:
        """End its line, before anything else is written."""
        if self._last != "\n":
            self.write("\n")

    def part(self) -> bool:
        """End its line before the answer goes on; where both are on one terminal a blank line parts them."""
        self.end()
        parted, self._begun = self.shared and self._begun, False
        if parted:
            self.write("\n")
            self._begun = False
        return parted


class Writer:
    """What shows an answer: its text to ``out``, its reasoning ``aside``. Raises OSError as ``out`` does."""

    def __init__(self, out: Sink, aside: ReasoningStream) -> None:
        self._out, self._aside = out, aside

    def write(self, event: Event) -> None:
        """Show one event, as far as it shows anything."""
        match event:
            case Text(text) | Refusal(text) if text:
                self._say(text)
            case Reasoning(text) if text:
                self._pause()
                self._aside.write(text)
            case Finished():
                self._end()

    def close(self) -> None:
        """Show what is left, and end the line. A second time nothing is left."""
        raise NotImplementedError

    def emit(self, kind: str, **fields: Any) -> None:
        """Note what happened beside the answer. Only who reads events learns of it, with the next thing shown."""

    def deliver(self, text: str) -> None:
        """Write what was held back until the answer was known to be whole."""

    def conclude(self, result: Mapping[str, Any]) -> None:
        """End with the answer as an object, for a program."""

    def _say(self, text: str) -> None:
        """Take a piece of the answer."""
        raise NotImplementedError

    def _pause(self) -> None:
        """Reasoning comes."""

    def _end(self) -> None:
        """The answer is whole; what is said about it may be long in coming, or never come."""


class PlainWriter(Writer):
    """Writes an answer as it comes, each piece at once."""

    def __init__(self, out: Sink, aside: ReasoningStream) -> None:
        super().__init__(out, aside)
        self._last = "\n"

    def _say(self, text: str) -> None:
        self._aside.part()
        self._last = text[-1]
        self._out.write(text)

    def close(self) -> None:
        """A final newline, where the answer has none of its own."""
        self._aside.end()
        if self._last != "\n":
            self._last = "\n"
            self._out.write("\n")
