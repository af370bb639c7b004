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
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
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
from gptsh.cli.commands import offers
from gptsh.cli.interrupts import Interrupted, Interrupts, of_a_child
from gptsh.config.folders import own_folder
from gptsh.core import files
from gptsh.core.references import make_private
from gptsh.errors import GptshError, UsageError
from gptsh.jsonio import as_dicts, encoded, is_cost, parsed
from gptsh.messages import token_count
from gptsh.render.lists import Status, status_line
from gptsh.render.plain import able, look
from gptsh.text import shortened, visible

if TYPE_CHECKING:
    from gptsh.cli.repl import Conversation

_PROMPT, _GOES_ON = "> ", "  "
_LEAVES = "Ctrl-D leaves"
_USUAL_GARBAGE = (700, 10, 10)  # Python's own thresholds
_FOLDED = 20  # lines; a longer paste is shown by its first and last one
_PASTES = 0x10F000  # in Unicode's private use: the first character that stands for such a paste
_MOST = 1 << 20  # bytes of the history; beyond them its older half goes
_LONGEST = 100_000  # bytes of an entry; a longer one is not saved
_STYLE = Style.from_dict(
    {
        "bottom-toolbar": "noreverse",
        "bottom-toolbar.text": "dim",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "bg:default fg:default reverse",
        "completion-menu.meta.completion": "bg:default fg:default dim",
        "completion-menu.meta.completion.current": "bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default reverse",
    }
)


# ---- the terminal


class _Screen(Vt100_Output):
    """A terminal that is not asked where its cursor is, since not each one answers.

    Nothing is left in a buffer where the terminal is gone.
    """

    def flush(self) -> None:
        """Draw what was written. Raises OSError as the terminal does."""
        drawn, self._buffer = "".join(self._buffer), []
        stdio.Sink(self.stdout).draw(drawn)

    def get_rows_below_cursor_position(self) -> int:
        """At least the line that it is in; more are made by scrolling."""
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

    def size() -> Size:
        columns, rows = os.get_terminal_size(stream.fileno())
        return Size(rows=rows or 24, columns=columns or 80)

    return _Screen(stream, size, term=os.environ.get("TERM"), default_color_depth=colors, enable_cpr=False)


def keys() -> Vt100Input:
    """What is typed. Raises UsageError where there is no terminal."""
    typed = Vt100Input(_typed_on())
    typed.stdin_reader = _Reader(typed.fileno())
    return typed


def _typed_on() -> TextIO:
    """The terminal that is typed on, wherever standard input comes from. Raises UsageError where there is none."""
    for stream in (sys.stdin, stdio.answers_to(), sys.stderr):
        if stream is not None and stream.isatty() and fcntl.fcntl(stream, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
            return stream
    raise UsageError("there is no terminal to read from")


# ---- what is in the line


class _History(History):
    """What was typed, in other conversations too: a file with one JSON string a line, the newest last."""

    def __init__(self, talk: "Conversation", pastes: "Pastes") -> None:
        super().__init__()
        self.path = own_folder("state") / "typed.jsonl"
        self._talk, self._pastes = talk, pastes
        self._failure = ""
        self._has_noted = False

    def load_history_strings(self) -> Iterable[str]:
        """The newest first, what was typed twice in a row once. The file is cut where it has grown too large."""
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
            if len(data) > _MOST:
                data = data[-_MOST // 2 :].partition(b"\n")[2]
                files.replace(self.path, data, durable=False)
        except OSError as err:
            self._failure = f"{self.path}: {err.strerror}"
            return
        last = None
        for line in reversed(data.split(b"\n")):
            with contextlib.suppress(ValueError, RecursionError):
                text = parsed(line.decode())
                if isinstance(text, str) and text and text != last:
                    yield text
                last = text

    def append_string(self, string: str) -> None:
        """A paste is kept whole."""
        super().append_string(self._pastes.whole(string))

    def store_string(self, string: str) -> None:
        """Add it to the file, unless nothing is to be saved."""
        line = encoded(string) + b"\n"
        if not self._talk.saves or len(line) > _LONGEST or not string.strip():
            return
        try:
            make_private(self.path.parent)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as err:
            self._failure = f"{self.path}: {err.strerror}"

    def note_failure(self) -> None:
        """Once, when no line is being typed."""
        if self._failure and not self._has_noted:
            self._has_noted = True
            stdio.note(f"what is typed is not saved: {self._failure}")


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
        first, last = (visible(shortened(line, 30)) for line in (lines[0], lines[-1]))
        return f"[{first} … {len(lines)} lines … {last}]"


class _Completer(Completer):
    def __init__(self, talk: "Conversation") -> None:
        self._talk = talk

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What can stand where the cursor is, in a line that is a command."""
        doc = self._talk.doc
        taken = as_dicts(doc["context"].get("snapshots")) if doc else []
        names = [str(item.get("name")) for item in reversed(taken)]
        for offer in offers(document.text_before_cursor, self._talk.flags.config, names):
            yield Completion(offer.text, -offer.replaces, display_meta=offer.meaning)


def _goes_on(text: str) -> bool:
    """Whether another line is to follow: behind a backslash, unless it stands behind one of its own."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


# ---- the prompts


def prompt_for(talk: "Conversation", interrupts: Interrupts) -> "Prompt | PlainPrompt":
    """What reads the lines, by what the terminal can do. Raises UsageError where there is none to be typed on.

    What was piped is read: standard input is the terminal from now on, also for ``$EDITOR`` and for questions.
    """
    if not stdio.is_terminal(sys.stdin):
        os.dup2(_typed_on().fileno(), 0)
    return Prompt(talk, interrupts) if able(os.environ) else PlainPrompt(talk, interrupts)


class Prompt:
    """Reads what the user types, from the terminal, wherever standard input comes from."""

    def __init__(self, talk: "Conversation", interrupts: Interrupts) -> None:
        out, typed = stdio.answers_to(), keys()
        assert out is not None  # it is a terminal
        self._talk, self._interrupts = talk, interrupts
        self._status, self._is_loaded = Status(""), False
        self._pastes = Pastes()
        self._history = _History(talk, self._pastes)
        self._session: PromptSession[str] = PromptSession(
            _PROMPT,
            input=typed,
            output=screen(out),
            key_bindings=self._bindings(),
            prompt_continuation=_GOES_ON,
            input_processors=[self._pastes, TabsProcessor(char1=" ", char2=" ")],
            history=self._history,
            completer=_Completer(talk),
            complete_in_thread=True,
            complete_while_typing=Condition(self._is_name),
            bottom_toolbar=lambda: status_line(self._status, self._session.app.output.get_size().columns),
            style=_STYLE,
            enable_suspend=True,
            tempfile_suffix=".md",
        )
        self._has_menu = False
        self._session.app.before_render += self._rise

    def read(self, suggested: str = "") -> str:
        """A message or a command; Ctrl-C and SIGINT begin the line anew.

        Raises EOFError for Ctrl-D in an empty line, and where the terminal is gone; Interrupted for any other signal.
        What was typed until then is in the history.
        """
        buffer, again = self._session.default_buffer, False
        while True:
            self._interrupts.forget_ctrl_c()
            self._status = status_of(self._talk)
            try:
                with self._interrupts.handed_to(self._wake):
                    line = self._session.prompt(
                        default=suggested, pre_run=self._begin, set_exception_handler=False, handle_sigint=False
                    )
                return self._pastes.whole(line)
            except KeyboardInterrupt:
                self._interrupts.forget_ctrl_c()
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
            finally:
                self._history.note_failure()

    # ---- while a line is typed

    def _begin(self) -> None:
        """What is done first in the event loop; what it is given comes behind the first drawing."""
        self._interrupts.check()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        if self._is_loaded:
            loop.call_soon(self._look_up)
        else:
            loop.call_soon(threading.Thread(target=self._load, args=(loop,), daemon=True).start)

    def _load(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread, while the first line is typed: load what a turn needs, what an answer does, and commands."""
        import gptsh.cli.turn  # noqa: PLC0415 - the prompt comes before it

        self._is_loaded = True
        gc.set_threshold(*_USUAL_GARBAGE)  # the rate of the start is not one for hours
        with contextlib.suppress(RuntimeError):  # the line is typed, the loop closed
            loop.call_soon_threadsafe(self._look_up)
        with contextlib.suppress(ImportError):  # who needs it will tell
            import gptsh.cli.slash  # noqa: PLC0415 - as above
            import gptsh.llm.http  # noqa: PLC0415 - as above
            import gptsh.render.terminal  # noqa: F401, PLC0415 - as above

    def _look_up(self) -> None:
        self._status = looked_up(self._talk, self._status)
        self._session.app.invalidate()

    def _wake(self) -> None:
        """Called by a signal handler: end the reading, in its own time."""
        if loop := self._session.app.loop:
            loop.call_soon_threadsafe(self._end, KeyboardInterrupt())

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something failed that nobody waits for: as it does where a terminal is gone."""
        if isinstance(error := context.get("exception"), OSError):
            self._end(error)
        else:
            loop.default_exception_handler(context)

    def _end(self, error: BaseException) -> None:
        app = self._session.app
        if app.future and not app.future.done():
            app.exit(exception=error)

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

        @bindings.add("tab", filter=line)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state is None:
                by_title = buffer.text.startswith("/resume ")  # an id takes the place of what was typed
                buffer.start_completion(select_first=by_title, insert_common_part=not by_title)
            elif len(buffer.complete_state.completions) == 1:  # what is behind it can be completed next
                buffer.apply_completion(buffer.complete_state.completions[0])
            else:
                buffer.complete_next()

        @bindings.add("c-x", "c-e", filter=line)
        def _(event: KeyPressEvent) -> None:
            whole = self._pastes.whole(event.current_buffer.text)
            event.current_buffer.text = whole.encode("utf-8", "replace").decode()
            edits = contextlib.ExitStack()
            edits.enter_context(of_a_child())
            event.current_buffer.open_in_editor().add_done_callback(lambda _: edits.close())

        @bindings.add(Keys.BracketedPaste, filter=line)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pastes.folded(text))

        return bindings


class PlainPrompt:
    """Reads lines as a terminal that obeys no escape sequences lets them be edited."""

    def __init__(self, talk: "Conversation", interrupts: Interrupts) -> None:
        self._interrupts, self._terminal = interrupts, _typed_on()
        self._history = _History(talk, Pastes())
        self._typed = b""  # of lines that were not read yet

    def read(self, suggested: str = "") -> str:
        """As ``Prompt.read``; what is suggested stands above the line, which cannot begin with it here."""
        if suggested:
            stdio.note("the question, to be typed again:")
            stdio.write_lines(suggested.split("\n"))
        lines: list[str] = []
        again = False
        while True:
            self._interrupts.forget_ctrl_c()
            try:
                stdio.write_pieces([_GOES_ON if lines else _PROMPT])
                line = self._line()
            except Interrupted as ended:
                self._interrupts.forget_ctrl_c()
                if not ended.by_user:
                    self._keep(lines)
                    raise
                stdio.write_lines([""])
                if again and not lines:
                    stdio.note(_LEAVES)
                lines, again = [], True
                continue
            except OSError as err:
                self._keep(lines)
                raise EOFError from err
            lines.append(line[:-1] if _goes_on(line) else line)
            if not _goes_on(line):
                self._keep(lines)
                return "\n".join(lines)

    def _keep(self, lines: list[str]) -> None:
        if lines and self._history.get_strings()[-1:] != ["\n".join(lines)]:
            self._history.append_string("\n".join(lines))
        self._history.note_failure()

    def _line(self) -> str:
        """Raises EOFError for Ctrl-D in an empty line, OSError where the terminal is gone, Interrupted."""
        while b"\n" not in self._typed:
            with self._interrupts.waiting():
                piece = os.read(self._terminal.fileno(), 1 << 16)
            if not piece and not self._typed:
                stdio.write_lines([""])  # what is printed next has a line of its own
                raise EOFError
            self._typed += piece or b"\n"
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "surrogateescape")


# ---- the line under the prompt


def status_of(talk: "Conversation") -> Status:
    """What is known without looking anything up: the model is as it was given, the window is not known."""
    doc = talk.doc
    spent = doc["usage"] if doc else {"tokens": {}, "cost": None}
    try:
        model = talk.agent().model or ""
    except GptshError:  # the next question will say what is wrong
        model = ""
    return Status(
        talk.ref or talk.session.ref or "new session",
        (doc["title"] or "") if doc else "",
        model,
        token_count(spent["tokens"].get("total")),
        cost=spent["cost"] if is_cost(spent["cost"]) else None,
        files=len(talk.flags.file),
        saved=talk.saves and not talk.ahead,
        hint="/help shows the commands" if doc is None else "",
    )


def looked_up(talk: "Conversation", status: Status) -> Status:
    """The same with the model's provider, its window, and an estimate where no server has reported tokens."""
    from gptsh.context.tokens import roughly  # noqa: PLC0415 - behind the first prompt
    from gptsh.models.facts import with_provider  # noqa: PLC0415 - the same

    if status.tokens is None and talk.doc and talk.doc["messages"]:
        status = status._replace(tokens=roughly(talk.doc["messages"]), estimated=True)
    try:
        window = talk.app.client.servers.window(status.model, ask=False)
        return status._replace(model=with_provider(status.model), window=window)
    except GptshError:
        return status
