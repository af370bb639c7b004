"""Events and documents as plain text: the answer byte for byte, a line of a list."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from gptsh.content.media import media_in, name_of
from gptsh.core.listing import SessionSummary
from gptsh.messages import Event, Finished, Reasoning, Refusal, Text, Tool
from gptsh.text import Pieces, local_time, one_line

if TYPE_CHECKING:
    from gptsh.content.answer import Request


class Sink(Protocol):
    """Where text goes. Raises OSError as its stream does, and what a signal raises while its reader lets it wait."""

    def ready(self) -> None:
        """Wait until some text can be written."""

    def write(self, text: str) -> None:
        """Write it whole, at once, safe for a terminal where it is one."""

    def draw(self, text: str) -> None:
        """Write what is safe already, its escape sequences included."""


class Aside:
    """The model's reasoning, as it comes, on lines of its own beside the answer: to ``err`` (None: nowhere).

    ``shared``: on the terminal that shows the answer, too. A sink that fails is given up, since the answer does not
    depend on it.
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
            self._put(self._err, text)
        except OSError:
            self._err, self._last = None, "\n"

    def _put(self, err: Sink, text: str) -> None:
        if not self._dimmed:
            err.write(text)
            return
        shown = self._pieces.visible(text)
        words = shown.rstrip("\n")
        err.draw(f"\x1b[2m{words}\x1b[0m{shown[len(words) :]}" if words else shown)

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

    def __init__(self, out: Sink, aside: Aside) -> None:
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

    def tell(self, kind: str, **fields: Any) -> None:
        """Note what happened beside the answer. Only who reads events learns of it, with the next thing shown."""

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

    def __init__(self, out: Sink, aside: Aside) -> None:
        super().__init__(out, aside)
        self._last = "\n"
        self._left = ""  # a piece that the reader has not taken yet

    def _say(self, text: str) -> None:
        self._left += text
        self._aside.part()
        self._show()

    def _show(self) -> None:
        if self._left:
            self._out.ready()
            text, self._left = self._left, ""
            self._last = text[-1]
            self._out.write(text)

    def close(self) -> None:
        """A final newline, where the answer has none of its own."""
        self._aside.end()
        self._show()
        if self._last != "\n":
            self._last = "\n"
            self._out.write("\n")


def listing_line(summary: SessionSummary) -> str:
    """``[index] id yyyy-MM-dd HH:mm title (agent|model)``, always one line; ``[-]`` for what was put away."""
    what = f"{summary['title'] or '(untitled)'} ({summary['agent'] or '?'}|{summary['model'] or '?'})"
    index = "-" if summary["index"] is None else summary["index"]
    return f"[{index}] {summary['id']} {local_time(summary['updated_at'])} {one_line(what)}"


def model_line(model: str, wire: str, window: int | None, prices: tuple[float, float] | None) -> str:
    """A model, its transport, its window in tokens, its prices in USD per million tokens in and out; - is unknown."""
    in_and_out = [f"{1e6 * price:.2f}" for price in prices] if prices else ["-", "-"]
    columns = f"{one_line(model):<44} {wire:<7} {window or '-':>8} {in_and_out[0]:>8} {in_and_out[1]:>8}"
    return f"{columns}  says back what it was told, without key or network" if wire == "echo" else columns


def agent_line(name: str, model: str | None, default: bool) -> str:
    """An agent, its model, and a star where it is the one that is used by default."""
    what = one_line(f"{name} ({model or 'no model'})")
    return f"{'*' if default else ' '} {what}"


def tool_line(tool: Tool) -> str:
    """A tool's name and the first line of what it does."""
    said = tool.description.strip().partition("\n")[0]
    return one_line(tool.name) + (f"  {one_line(said)}" if said else "")


FACTS = 12  # columns in front of what a line of these tells


def context_lines(wire: str, report: Mapping[str, Any], request: "Request") -> Iterator[str]:
    """What would be sent, a line for each fact and each attachment; tokens are those of the messages."""
    yield f"model       {one_line(request.model)}"
    yield f"wire        {wire}"
    yield f"window      {_tokens(report['window'])}"
    yield f"budget      {_tokens(report['budget'])}"
    yield f"tokens      ~{report['tokens']:,} ({report['at_most']:,} at most)"
    yield f"strategy    {report['strategy']}"
    for key in ("included", "summarized", "left_out"):
        yield f"{key.replace('_', ' '):<11} {report[key]} messages"
    if request.tools:
        from gptsh.context.tokens import count_tools  # noqa: PLC0415 - a list counts none

        yield f"tools       {len(request.tools)}, their definitions ~{count_tools(request.tools):,} tokens"
    for part, media in (found for message in request.messages for found in media_in(message)):
        yield f"attached    {one_line(' '.join(filter(None, (name_of(part), str(media)))))}"


def compaction_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What a compaction does to what is sent of a session, a line for each thing."""
    counts = f"{report['included']:,} as they are, {report['summarized']:,} summarized, {report['left_out']:,} left out"
    yield f"session     {report['session'] or 'not on disk'}"
    yield f"strategy    {report['strategy']}{'' if report['changes'] else ', as now: nothing would be shorter'}"
    yield f"messages    {counts}"
    yield f"tokens      ~{report['before']:,} -> ~{report['after']:,}"
    yield f"budget      {_tokens(report['budget'])}"


def _tokens(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,} tokens"
