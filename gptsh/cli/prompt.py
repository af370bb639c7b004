"""The line that is typed in a conversation: keys, history, completion, the status line, and a plain prompt.

One of the two files that import prompt_toolkit; the picker takes its terminal from here.
"""

import asyncio
import contextlib
import fcntl
import gc
import os
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_completions, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, TabsProcessor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from gptsh.cli import stdio
from gptsh.cli.commands import COMMANDS
from gptsh.cli.interrupts import Interrupted, Interrupts
from gptsh.config.folders import app_folder
from gptsh.core import files
from gptsh.core.references import make_private
from gptsh.errors import GptshError, UsageError
from gptsh.messages import token_count
from gptsh.render.plain import look, obeys_escapes
from gptsh.text import columns, format_usd, one_line, quantity, shorten, truncate_end, visible

if TYPE_CHECKING:
    from gptsh.cli.repl import Conversation

_PROMPT, _GOES_ON = "> ", "  "
_LEAVES = "Ctrl-D leaves"
_USUAL_GARBAGE = (700, 10, 10)  # Python's own thresholds
_FOLDED = 20  # lines; a longer paste is shown by its first and last one
_PASTES = 0x10F000  # in Unicode's private use: the first character that stands for such a paste
_MOST = 1 << 20  # bytes of the history; beyond them its older half goes
_FEW = 50  # values that are offered; nobody reads more, and each session costs the reading of a file
_TITLE = 40  # columns of a title in the status line
_FILES = PathCompleter(expanduser=True)
_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "dim",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion.current": "bg:default fg:default reverse",
        "completion-menu.meta.completion": "bg:default fg:default dim",
        "completion-menu.meta.completion.current": "bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default reverse",
    }
)


# ---- the terminal


class _Screen(Vt100_Output):
    """Leaves nothing in a buffer where the terminal is gone."""

    def flush(self) -> None:
        """Draw what was written. Raises OSError as the terminal does."""
        drawn, self._buffer = "".join(self._buffer), []
        stdio.Sink(self.stdout).draw(drawn)

    def get_rows_below_cursor_position(self) -> int:
        """At least the line that it is in: a terminal is not asked where its cursor is, since not each one answers."""
        return 1


class _Reader(PosixStdinReader):
    """What comes from a terminal. One that fails is closed: it would be read for ever."""

    def read(self, count: int = 1024) -> str:
        """What is there to be read."""
        try:
            os.get_terminal_size(self.stdin_fd)
        except OSError:
            self.closed = True
        return super().read(count)


def screen(stream: TextIO) -> Vt100_Output:
    """A terminal to draw on, with the colours that the environment allows."""
    colors = None if look(os.environ, terminal=True).colors else ColorDepth.MONOCHROME
    drawn = _Screen.from_pty(stream, os.environ.get("TERM"), colors)
    drawn.enable_cpr = False
    return drawn


def keys() -> Vt100Input:
    """What is typed. Raises UsageError where there is no terminal."""
    typed = Vt100Input(_typed_on())
    typed.stdin_reader = _Reader(typed.fileno())
    return typed


def _typed_on() -> TextIO:
    """The terminal that is typed on, wherever standard input comes from. Raises UsageError where there is none."""
    for stream in (sys.stdin, stdio.stdout(), sys.stderr):
        if stream is not None and stream.isatty() and fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
            return stream
    raise UsageError("there is no terminal to read from")


def end(app: Application[Any], error: BaseException) -> None:
    """End an application by an error, in the time of its own loop: a signal handler may call this."""

    def now() -> None:
        if app.future and not app.future.done():
            app.exit(exception=error)

    if app.loop:
        app.loop.call_soon_threadsafe(now)


# ---- what is in the line


class _History(FileHistory):
    """What was typed, in other conversations too, in a file for the user alone. A paste is kept whole."""

    def __init__(self, talk: "Conversation", pastes: "Pastes") -> None:
        self._talk, self._pastes = talk, pastes
        self._path = app_folder("state") / "typed"
        super().__init__(self._path)

    def load_history_strings(self) -> Iterable[str]:
        """The newest first. The file is cut where it has grown too large."""
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > _MOST:
                newer = self._path.read_bytes()[-_MOST // 2 :].partition(b"\n\n")[2]
                files.replace(self._path, b"\n" + newer, fsync=False)
            return super().load_history_strings()
        return ()

    def append_string(self, string: str) -> None:
        """Add it to what Up brings back, and to the file unless nothing is to be saved."""
        super().append_string(self._pastes.whole(string))

    def store_string(self, string: str) -> None:
        """Add it to the file. Where that cannot be written it is not kept: the session's own saving tells of it."""
        if self._talk.saves and string.strip():
            with contextlib.suppress(OSError):
                make_private(self._path.parent)
                os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                super().store_string(string)


class Pastes(Processor):
    """Long pastes, each of which is one character in the line, and is shown by its first line, its last and the count.

    So it is deleted as a whole, and sent as a whole.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by the character

    def folded(self, text: str) -> str:
        """What a paste is in the line."""
        if text.strip("\n").count("\n") < _FOLDED:
            return text
        char = chr(_PASTES + len(self._texts))
        self._texts[char] = text
        return char

    def whole(self, line: str) -> str:
        """A line with its pastes."""
        return "".join(self._texts.get(char, char) for char in line) if self._texts else line

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """A row of the line as it is shown."""
        shown: StyleAndTextTuples = []
        places = [0]  # where each character is shown
        for style, text, *_ in explode_text_fragments(transformation_input.fragments):
            text = self._label(text) if text in self._texts else text
            shown.append((style, text))
            places.append(places[-1] + len(text))
        return Transformation(
            shown, lambda at: places[min(at, len(places) - 1)], lambda at: bisect_right(places, at) - 1
        )

    def _label(self, char: str) -> str:
        lines = self._texts[char].strip("\n").split("\n")
        first, last = (visible(shorten(line, 30)) for line in (lines[0], lines[-1]))
        return f"[{first} … {len(lines)} lines … {last}]"


class Commands(Completer):
    """Completes slash commands and what stands behind them. No network is asked.

    ``config`` is as ``--config``; ``snapshots`` has the names of those of the session.
    """

    def __init__(self, config: str | None, snapshots: Callable[[], Iterable[str]]) -> None:
        self._config, self._snapshots = config, snapshots

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What can stand where the cursor is; nothing where that cannot be known: nobody is told in mid-line."""
        line = document.text_before_cursor
        if not line.startswith("/"):
            return
        for row in COMMANDS:
            if row.name.startswith(line.lower()):
                yield Completion(f"{row.name} " if row.args else row.name, -len(line), display_meta=row.help)
        rows = [row for row in COMMANDS if line.lower().startswith(f"{row.name} ")]
        if not rows:
            return
        row = max(rows, key=lambda row: len(row.name))
        rest = line[len(row.name) :].lstrip()
        yield from (Completion(word, -len(rest)) for word in row.words if word.startswith(rest))
        if row.value == "file":
            for found in _FILES.get_completions(Document(rest), complete_event):
                is_hidden = found.display_text.startswith(".") and not os.path.basename(rest).startswith(".")
                if found.display_text.isprintable() and not is_hidden:
                    yield found
        elif row.value:
            with contextlib.suppress(GptshError, OSError, ValueError):
                yield from islice(self._values(row.value, rest), _FEW)

    def _values(self, kind: str, rest: str) -> Iterator[Completion]:
        """Those that begin with what is typed; of sessions those with such words in the title, too."""
        from gptsh.cli.complete import VALUES  # noqa: PLC0415 - only at TAB

        if kind == "param":  # several on one line
            rest = rest.rpartition(" ")[2]
        begun, wanted = (rest, []) if kind != "session" else ("", rest.casefold().split())
        known = {"command": [(row.name[1:], row.help) for row in COMMANDS]}
        known["snapshot"] = [(name, "") for name in self._snapshots()]
        offered: set[str] = set()
        for value, meaning in known[kind] if kind in known else VALUES[kind](self._config, begun):
            words = meaning.casefold().split()
            in_title = wanted and all(any(word.startswith(start) for word in words) for start in wanted)
            if (value.startswith(rest) or in_title) and value not in offered:
                offered.add(value)
                yield Completion(value, -len(rest), display_meta=visible(one_line(meaning)))


def _goes_on(text: str) -> bool:
    """Whether another line is to follow: behind a backslash, unless it stands behind one of its own."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


# ---- the prompts


def prompt_for(
    talk: "Conversation", interrupts: Interrupts, above: Callable[[], None] | None
) -> "Prompt | PlainPrompt":
    """What reads the lines, by what the terminal can do. Raises UsageError where there is none to be typed on.

    ``above`` prints what comes above the first line, which does not wait for what draws it to be imported.
    What was piped is read: standard input is the terminal from now on, also for ``$EDITOR`` and for questions.
    """
    if not stdio.is_terminal(sys.stdin):
        os.dup2(_typed_on().fileno(), 0)
    if obeys_escapes(os.environ):
        return Prompt(talk, interrupts, above)
    if above:
        above()
    return PlainPrompt(talk, interrupts)


class Prompt:
    """Reads what the user types."""

    def __init__(self, talk: "Conversation", interrupts: Interrupts, above: Callable[[], None] | None) -> None:
        out, typed = stdio.stdout(), keys()
        assert out is not None  # it is a terminal
        self._talk, self._interrupts = talk, interrupts
        self._status: list[tuple[int, str]] = []
        self._is_loaded = self._has_menu = False
        self._above = above  # until it is printed
        self._pastes = Pastes()
        self._session: PromptSession[str] = PromptSession(
            _PROMPT,
            input=typed,
            output=screen(out),
            key_bindings=self._bindings(),
            prompt_continuation=_GOES_ON,
            input_processors=[self._pastes, TabsProcessor(char1=" ", char2=" ")],
            history=_History(talk, self._pastes),
            completer=Commands(talk.flags.config, talk.snapshots),
            complete_in_thread=True,
            complete_while_typing=Condition(self._is_name),
            bottom_toolbar=lambda: status_line(self._status, self._session.app.output.get_size().columns),
            style=_STYLE,
            include_default_pygments_style=False,
            enable_suspend=True,
            tempfile_suffix=".md",
        )
        self._session.app.before_render += self._rise

    def read(self, suggested: str = "") -> str:
        """A message or a command; Ctrl-C and SIGINT begin the line anew.

        Raises EOFError for Ctrl-D in an empty line, and where the terminal is gone; Interrupted for any other signal.
        What was typed until then is in the history.
        """
        buffer, again = self._session.default_buffer, False
        while True:
            self._interrupts.reset_ctrl_c()
            self._status = status(self._talk)
            try:
                with self._interrupts.redirected_to(lambda: end(self._session.app, KeyboardInterrupt())):
                    line = self._session.prompt(
                        default=suggested, pre_run=self._begin, set_exception_handler=False, handle_sigint=False
                    )
                return self._pastes.whole(line)
            except KeyboardInterrupt:
                self._interrupts.reset_ctrl_c()
                try:
                    self._interrupts.check()
                except Interrupted:
                    buffer.append_to_history()
                    raise
                if again and not buffer.text:
                    stdio.note(_LEAVES)
                suggested, again = "", True
            except (EOFError, OSError) as err:
                buffer.append_to_history()
                raise EOFError from err

    # ---- while a line is typed

    def _begin(self) -> None:
        """What is done first in the event loop; what it is given comes behind the first drawing."""
        self._interrupts.check()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        if self._is_loaded:
            loop.call_soon(self._look_up)
        else:
            loop.call_soon(threading.Thread(target=self._load, args=(loop, copy_context()), daemon=True).start)

    def _load(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """In a thread, while the first line is typed: load what a turn needs, what an answer does, and commands.

        prompt_toolkit knows its application by the ``context``.
        """
        import gptsh.cli.turn  # noqa: PLC0415 - the prompt comes before it

        self._is_loaded = True
        gc.set_threshold(*_USUAL_GARBAGE)  # the rate of the start is not one for hours
        with contextlib.suppress(RuntimeError):  # the line is typed, the loop closed
            loop.call_soon_threadsafe(self._look_up)
        with contextlib.suppress(ImportError, RuntimeError):  # who needs it will tell
            import gptsh.render.terminal  # noqa: PLC0415 - as above

            if self._above:
                loop.call_soon_threadsafe(run_in_terminal, self._above, context=context)
                self._above = None
            import gptsh.cli.slash  # noqa: PLC0415 - as above
            import gptsh.llm.http  # noqa: F401, PLC0415 - as above

    def _look_up(self) -> None:
        self._status = status(self._talk, look_up=True)
        self._session.app.invalidate()

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something failed that nobody waits for: as it does where a terminal is gone."""
        if isinstance(error := context.get("exception"), OSError):
            end(self._session.app, error)
        else:
            loop.default_exception_handler(context)

    def _rise(self, app: Application[str]) -> None:
        """Before a drawing: the line under the prompt goes up again where no menu is left above it."""
        had, self._has_menu = self._has_menu, bool(self._session.default_buffer.complete_state)
        if had and not self._has_menu and not app.is_done:
            app.renderer.erase()

    def _is_name(self) -> bool:
        """Whether a command's name is being typed."""
        before = self._session.default_buffer.document.text_before_cursor
        return before.startswith("/") and not any(map(str.isspace, before))

    def _bindings(self) -> KeyBindings:
        bindings, line = KeyBindings(), has_focus(DEFAULT_BUFFER)  # not while the history is searched

        @bindings.add("escape", "enter", filter=line)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("enter", filter=line)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None  # it was chosen, and something may be to come behind it
            elif buffer.document.is_cursor_at_the_end and _goes_on(buffer.text):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @bindings.add("tab", filter=line & has_completions)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and len(buffer.complete_state.completions) == 1:
                buffer.apply_completion(buffer.complete_state.completions[0])  # what is behind it can be completed next
            else:
                buffer.complete_next()

        @bindings.add("c-x", "c-e", filter=line)
        def _(event: KeyPressEvent) -> None:
            whole = self._pastes.whole(event.current_buffer.text)
            event.current_buffer.text = whole.encode("utf-8", "replace").decode()
            edits = contextlib.ExitStack()
            edits.enter_context(self._interrupts.left_to_child())
            event.current_buffer.open_in_editor().add_done_callback(lambda _: edits.close())

        @bindings.add(Keys.BracketedPaste, filter=line)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pastes.folded(text))

        return bindings


class PlainPrompt:
    """Reads lines as a terminal that obeys no escape sequences lets them be edited."""

    def __init__(self, talk: "Conversation", interrupts: Interrupts) -> None:
        self._interrupts, self._history = interrupts, _History(talk, Pastes())

    def read(self, suggested: str = "") -> str:
        """As ``Prompt.read``; what is suggested stands above the line, which cannot begin with it here."""
        if suggested:
            stdio.note("the question, to be typed again:")
            stdio.write_lines(suggested.split("\n"))
        text, again = "", False
        while True:
            self._interrupts.reset_ctrl_c()
            stdio.write_pieces([_GOES_ON if text else _PROMPT])
            try:
                with self._interrupts.waiting():
                    line = sys.stdin.buffer.readline().decode("utf-8", "surrogateescape")
            except Interrupted as ended:
                if not ended.by_user:
                    self._history.append_string(text)
                    raise
                stdio.write_lines([""])
                if again and not text:
                    stdio.note(_LEAVES)
                text, again = "", True
                continue
            except OSError as err:
                raise EOFError from err
            if not line:
                stdio.write_lines([""])  # what is printed next has a line of its own
                raise EOFError
            text += line.rstrip("\n")
            if not _goes_on(text):
                self._history.append_string(text)
                return text
            text = f"{text[:-1]}\n"


# ---- the line under the prompt


def status(talk: "Conversation", *, look_up: bool = False) -> list[tuple[int, str]]:
    """The parts of the status line, each behind its rank: those of the highest give way first.

    With ``look_up`` the model has its provider, its window is known, and tokens that no server has reported are
    estimated, for which more has to be imported.
    """
    doc, model, window, mark = talk.doc, "", None, ""
    usage = doc["usage"] if doc else {"tokens": {}, "cost": None}
    tokens = token_count(usage["tokens"].get("total"))
    with contextlib.suppress(GptshError):  # the next question will say what is wrong
        model = talk.agent().model or ""
    if look_up:
        from gptsh.context.tokens import estimate  # noqa: PLC0415 - behind the first prompt
        from gptsh.models.facts import with_provider  # noqa: PLC0415 - the same

        if tokens is None and doc and doc["messages"]:
            tokens, mark = estimate(doc["messages"]), "~"
        with contextlib.suppress(GptshError):
            window = talk.app.client.servers.window(model, ask=False)
            model = with_provider(model)
    title = truncate_end(visible(one_line((doc["title"] or "") if doc else "")), _TITLE)
    of_window = f" of {window:,}" if window else ""
    share = f"{100 * tokens / window:.0f} %" if tokens and window else ""
    return [
        (0, talk.ref or talk.session.ref or "new session"),
        (4, title),
        (2, visible(one_line(model))),
        (5, f"{mark}{tokens:,}{of_window} tokens" if tokens is not None else ""),
        (1, share),
        (3, "" if usage["cost"] is None else format_usd(usage["cost"])),
        (0, f"+{quantity(len(talk.flags.file), 'file')}" if talk.flags.file else ""),
        (0, "" if talk.saves and not talk.ahead else "not saved"),
        (6, "" if doc else "/help shows the commands"),
    ]


def status_line(parts: Iterable[tuple[int, str]], width: int) -> str:
    """The parts as a line of ``width`` columns at most."""
    left = [part for part in parts if part[1]]
    while columns(line := " · ".join(text for _, text in left)) > width and left[1:]:
        left.remove(max(left))
    return truncate_end(line, width)
