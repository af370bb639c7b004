"""Read a line at the prompt: keys, history, folded pastes, completion, the status line.

This file and ``picker.py`` are the only ones that import prompt_toolkit.
"""

import asyncio
import contextlib
import gc
import os
import pathlib
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    PathCompleter,
    get_common_complete_suffix,
)
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, TabsProcessor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.styles import Style

from gptsh import files
from gptsh.chat.commands import COMMANDS
from gptsh.chat.terminal_io import exit_with, input_terminal, terminal_input, terminal_output
from gptsh.core import locks
from gptsh.core.folders import ID, make_private, typed_file
from gptsh.errors import ConfigError, GptshError, StoreBusy, UsageError
from gptsh.messages import token_count
from gptsh.terminal import stdio
from gptsh.terminal.interrupts import Interrupted, Interrupts
from gptsh.terminal.programs import edit
from gptsh.terminal.stdio import obeys_escapes
from gptsh.text import columns, format_usd, one_line, quantity, shorten, truncate_end, visible

if TYPE_CHECKING:
    from gptsh.chat.conversation import Conversation
    from gptsh.core.document_types import SessionUsage

_PROMPT, _CONTINUATION = "> ", "  "
_EXIT_HINT = "Ctrl-D exits"
_DEFAULT_GC_THRESHOLD = (700, 10, 10)  # Python's own
# A longer text is shown by its ends. In a line of 64,000 characters prompt_toolkit takes a second for each key.
_MAX_LINES, _MAX_CHARACTERS = 20, 5000
_FIRST_PASTE = 0x10F000  # in Unicode's private use area: the code point of the first folded paste
_MAX_HISTORY = 1 << 20  # bytes; a larger history file is cut to its newest half of that
_HISTORY_WAIT = 0.5  # seconds for the lock
_MAX_ENTRY = 1 << 16  # characters of one entry of the history; a longer paste is in the session
_TITLE_POLL, _TITLE_SECONDS = 1.0, 60.0  # between two looks whether the title has come, and until the last look
_TITLE_WIDTH = 40  # columns of a title in the status line
_PATHS = PathCompleter(expanduser=True)
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


# ---- history, pastes, completion


class _History(FileHistory):
    """The lines that were typed in all conversations, in a file with mode 0600. Pastes are stored unfolded."""

    def __init__(self, chat: "Conversation", pastes: "Pastes") -> None:
        self._chat, self._pastes = chat, pastes
        try:
            self._path = typed_file()
        except ConfigError:  # no home folder: nothing is saved in this conversation
            self._path = pathlib.Path(os.devnull)
        super().__init__(self._path)

    def load_history_strings(self) -> Iterable[str]:
        """The newest line first. A file that has grown too large is cut first."""
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > _MAX_HISTORY:
                newer = self._path.read_bytes()[-_MAX_HISTORY // 2 :].partition(b"\n\n")[2]
                files.replace(self._path, b"\n" + newer, fsync=False)
            return map(self._pastes.fold, super().load_history_strings())
        return ()

    def store_string(self, string: str) -> None:
        """Add a line to the file, unless it is huge. A write error is ignored: saving the session reports it."""
        string = self._pastes.unfold(string)
        if self._chat.saves and string.strip() and len(string) < _MAX_ENTRY:
            with contextlib.suppress(OSError, StoreBusy):
                make_private(self._path.parent)
                with locks.locked(self._path.parent, _HISTORY_WAIT):
                    os.close(files.open_own(self._path, os.O_WRONLY | os.O_CREAT))
                    super().store_string(string)


class Pastes(Processor):
    """Long texts, pasted or from an editor. Each is one character of the line, so it is deleted and sent as a whole.

    The prompt shows its first line, the number of lines, and its end.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # by their character

    def fold(self, text: str) -> str:
        """The character for a long text; a short one unchanged."""
        if text.strip("\n").count("\n") < _MAX_LINES and len(text) <= _MAX_CHARACTERS:
            return text
        char = chr(_FIRST_PASTE + len(self._texts))
        self._texts[char] = text
        return char

    def unfold(self, line: str) -> str:
        """A line with the full text of its pastes."""
        return "".join(self._texts.get(char, char) for char in line) if self._texts else line

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """A row of the line as it is shown, and the mapping between positions in the line and on the screen."""
        fragments: StyleAndTextTuples = []
        offsets = [0]  # where each character of the line is shown
        for style, text, *_ in explode_text_fragments(transformation_input.fragments):
            text = self._label(text) if text in self._texts else text
            fragments.append((style, text))
            offsets.append(offsets[-1] + len(text))
        return Transformation(
            fragments, lambda at: offsets[min(at, len(offsets) - 1)], lambda at: bisect_right(offsets, at) - 1
        )

    def _label(self, char: str) -> str:
        lines = self._texts[char].strip("\n").split("\n")
        first, last = visible(shorten(lines[0], 30)), one_line(lines[-1][-30:])
        return f"[{first} … {quantity(len(lines), 'line')} … {last}]"


class CommandCompleter(Completer):
    """Completes slash commands and their arguments, without network requests.

    ``config_path`` is the value of ``--config``; ``snapshots`` returns the names of the session's snapshots.
    """

    def __init__(self, config_path: str | None, snapshots: Callable[[], Iterable[str]]) -> None:
        self._config_path, self._snapshots = config_path, snapshots

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What can be inserted at the cursor. Errors, as of a bad config file, are ignored: the user is typing."""
        line = document.text_before_cursor
        if not line.startswith("/"):
            return
        for row in COMMANDS:
            if row.name.startswith(line.lower()):
                yield Completion(f"{row.name} " if row.args else row.name, -len(line), display_meta=row.help)
        rows = [row for row in COMMANDS if line.lower().startswith(f"{row.name} ")]
        if not rows or complete_event.text_inserted:  # arguments are completed only at TAB
            return
        row = max(rows, key=lambda row: len(row.name))
        rest = line[len(row.name) :].lstrip()
        yield from (Completion(word, -len(rest)) for word in row.words if word.startswith(rest))
        if row.value == "file":
            for path in dict.fromkeys((rest, rest.rpartition(" ")[2])):  # a path with blanks, or the last of several
                for completion in _PATHS.get_completions(Document(path), complete_event):
                    name = completion.display_text
                    is_hidden = name.startswith(".") and not os.path.basename(path).startswith(".")
                    if name.isprintable() and not is_hidden:
                        yield completion
        elif row.value:
            with contextlib.suppress(GptshError, OSError, ValueError):
                yield from self._values(row.value, rest)

    def _values(self, kind: str, rest: str) -> Iterator[Completion]:
        """Values that start with ``rest``, and sessions whose titles have words that start with its words."""
        from gptsh.manage.suggestions import VALUES

        if kind == "param":  # several on one line
            rest = rest.rpartition(" ")[2]
        title_words = rest.casefold().split() if kind == "session" else []
        if kind == "command":
            values: Iterable[tuple[str, str]] = [(row.name[1:], row.help) for row in COMMANDS]
        elif kind == "snapshot":
            values = [(name, "") for name in self._snapshots()]
        else:
            values = VALUES[kind](self._config_path, None if title_words else rest)
        offered: set[str] = set()
        for value, meaning in values:
            words = meaning.casefold().split()
            in_title = title_words and all(any(word.startswith(start) for word in words) for start in title_words)
            if (value.startswith(rest) or in_title) and value not in offered:
                offered.add(value)
                yield Completion(value, -len(rest), display_meta=one_line(meaning))


def _is_continued(text: str) -> bool:
    """Whether another line follows: the text ends with a backslash that no other backslash escapes."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


# ---- the prompts


def prompt_for(
    chat: "Conversation", interrupts: Interrupts, intro: Callable[[], None] | None
) -> "Prompt | PlainPrompt":
    """The prompt that suits the terminal. Raises UsageError if there is no terminal to type on.

    ``intro`` prints what stands above the first line, and is called as soon as its imports are done.
    The pipe was read before: from now on standard input is the terminal, also for ``$EDITOR`` and for questions.
    """
    if not stdio.is_terminal(sys.stdin):
        os.dup2(input_terminal().fileno(), 0)
    if obeys_escapes(os.environ):
        return Prompt(chat, interrupts, intro)
    if intro:
        intro()
    return PlainPrompt(chat, interrupts)


class Prompt:
    """Reads lines with prompt_toolkit."""

    def __init__(self, chat: "Conversation", interrupts: Interrupts, intro: Callable[[], None] | None) -> None:
        keys, out = terminal_input(), stdio.stdout()
        assert out is not None  # it is a terminal
        self._chat, self._interrupts = chat, interrupts
        self._status: list[tuple[int, str]] = []
        self._is_loaded = self._has_menu = False
        self._title_deadline = 0.0
        self._intro = intro  # None once it is printed
        self._pastes = Pastes()
        self._session: PromptSession[str] = PromptSession(
            _PROMPT,
            input=keys,
            output=terminal_output(out),
            key_bindings=self._bindings(),
            prompt_continuation=_CONTINUATION,
            input_processors=[self._pastes, TabsProcessor(char1=" ", char2=" ")],
            history=_History(chat, self._pastes),
            completer=CommandCompleter(chat.options.config_file, chat.snapshots),
            complete_in_thread=True,
            complete_while_typing=Condition(self._is_typing_command),
            bottom_toolbar=lambda: status_line(self._status, self._session.app.output.get_size().columns),
            style=_STYLE,
            include_default_pygments_style=False,
            enable_suspend=True,
        )
        self._session.app.before_render += self._move_toolbar_up

    def read(self, prefill: str = "") -> str:
        """Return a line, which starts as ``prefill``; Ctrl-C and SIGINT clear it.

        Raises EOFError for Ctrl-D on an empty line and for a closed terminal, Interrupted for any other signal. Text
        that was typed until then is added to the history.
        """
        buffer, was_cleared = self._session.default_buffer, False
        while True:
            self._interrupts.reset_ctrl_c()
            self._status = status(self._chat)
            self._title_deadline = time.monotonic() + _TITLE_SECONDS
            try:
                with self._interrupts.redirected_to(lambda: exit_with(self._session.app, KeyboardInterrupt())):
                    line = self._session.prompt(
                        default=self._pastes.fold(prefill),
                        pre_run=self._start_loading,
                        set_exception_handler=False,
                        handle_sigint=False,
                    )
                return self._pastes.unfold(line)
            except KeyboardInterrupt:
                self._interrupts.reset_ctrl_c()
                try:
                    self._interrupts.check()
                except Interrupted:
                    buffer.append_to_history()
                    raise
                if was_cleared and not buffer.text:
                    stdio.note(_EXIT_HINT)
                prefill, was_cleared = "", True
            except (EOFError, OSError) as err:
                buffer.append_to_history()
                raise EOFError from err

    # ---- while the user types

    def _start_loading(self) -> None:
        """Start in the event loop what can wait until the prompt is drawn: imports, and the full status line."""
        self._interrupts.check()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_error)
        if self._is_loaded:
            loop.call_soon(self._complete_status)
        else:
            loop.call_soon(self._start_thread, loop, copy_context())

    def _start_thread(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        threading.Thread(target=self._load, args=(loop, context), daemon=True).start()

    def _load(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Import what turns, answers and commands need, in a thread, while the user types the first line.

        prompt_toolkit finds its application in the ``context``.
        """
        import gptsh.turn.turn

        self._is_loaded = True
        gc.set_threshold(*_DEFAULT_GC_THRESHOLD)  # start-up has raised it, and a conversation may last hours
        with contextlib.suppress(RuntimeError):  # the line is sent, and the loop closed
            loop.call_soon_threadsafe(self._complete_status)
        with contextlib.suppress(ImportError, RuntimeError):  # the code that needs it reports it
            import gptsh.render.drawing

            if self._intro:
                loop.call_soon_threadsafe(run_in_terminal, self._intro, context=context)
                self._intro = None
            import gptsh.chat.slash
            import gptsh.llm.http  # noqa: F401 - the prompt appears first

    def _complete_status(self) -> None:
        self._status = status(self._chat, look_up=True)
        self._session.app.invalidate()
        with contextlib.suppress(GptshError):  # the next question reports it
            if time.monotonic() < self._title_deadline and self._chat.expects_title:
                asyncio.get_running_loop().call_later(_TITLE_POLL, self._complete_status)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """End the prompt for an OSError in the event loop, as of a closed terminal."""
        if isinstance(error := context.get("exception"), OSError):
            exit_with(self._session.app, error)
        else:
            loop.default_exception_handler(context)

    def _move_toolbar_up(self, app: Application[str]) -> None:
        """Before a drawing: move the status line up again, once no completion menu needs the room above it."""
        has_menu = bool(self._session.default_buffer.complete_state) or self._is_typing_command()
        had_menu, self._has_menu = self._has_menu, has_menu
        if had_menu and not self._has_menu and not app.is_done:
            app.renderer.erase()

    def _is_typing_command(self) -> bool:
        """Whether the user is typing the name of a command."""
        before = self._session.default_buffer.document.text_before_cursor
        return before.startswith("/") and not any(map(str.isspace, before))

    def _complete(self, buffer: Buffer) -> None:
        """Complete what is typed, at once: while its menu is still being made, prompt_toolkit ignores the key.

        Several commands are taken in turn. Several arguments get the text that they share, then a menu.
        """

        def menu() -> CompletionState:
            found = buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True))
            return CompletionState(buffer.document, [*found])

        shown = buffer.complete_state
        offered = shown or menu()
        if len(offered.completions) == 1:
            buffer.apply_completion(offered.completions[0])  # the next TAB completes what follows
        elif offered.completions and (shown or self._is_typing_command()):
            buffer.complete_state = offered
            buffer.complete_next()
        elif offered.completions:
            buffer.insert_text(get_common_complete_suffix(buffer.document, offered.completions))
            buffer.complete_state = menu()

    def _bindings(self) -> KeyBindings:
        """The keys that gptsh binds. Others are prompt_toolkit's, such as Ctrl-D, which ends an empty line only."""
        bindings, is_editing = KeyBindings(), has_focus(DEFAULT_BUFFER)  # not searching the history

        @bindings.add("escape", "enter", filter=is_editing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("enter", filter=is_editing)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None  # it chooses the completion; the user may type on
            elif buffer.document.is_cursor_at_the_end and _is_continued(buffer.text):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @bindings.add("tab", filter=is_editing)
        def _(event: KeyPressEvent) -> None:
            self._complete(event.current_buffer)

        @bindings.add("c-x", "c-e", filter=is_editing)
        async def _(event: KeyPressEvent) -> None:
            text = self._pastes.unfold(event.current_buffer.text)

            def edited() -> str:
                try:  # not prompt_toolkit's: it would end the prompt where the file is missing or not UTF-8
                    return edit(text)
                except (OSError, UsageError) as err:
                    stdio.note(str(err))
                    return text

            with self._interrupts.left_to_child():
                text = await run_in_terminal(edited, in_executor=True)
            event.current_buffer.document = Document(self._pastes.fold(text))

        @bindings.add(Keys.BracketedPaste, filter=is_editing)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pastes.fold(text))

        return bindings


class PlainPrompt:
    """Reads lines from a terminal without escape sequences, which edits them itself."""

    def __init__(self, chat: "Conversation", interrupts: Interrupts) -> None:
        self._interrupts, self._history = interrupts, _History(chat, Pastes())

    def read(self, prefill: str = "") -> str:
        """As ``Prompt.read``, but ``prefill`` is printed above the line: this terminal cannot put it on the line."""
        if prefill:
            stdio.note("the question, to be typed again:")
            stdio.write_lines(prefill.split("\n"))
        text, was_cleared = "", False
        while True:
            self._interrupts.reset_ctrl_c()
            stdio.write_pieces([_CONTINUATION if text else _PROMPT])
            try:
                with self._interrupts.waiting():
                    line = sys.stdin.buffer.readline().decode("utf-8", "surrogateescape")
            except Interrupted as err:
                if not err.by_user:
                    self._history.append_string(text)
                    raise
                stdio.write_lines([""])
                if was_cleared and not text:
                    stdio.note(_EXIT_HINT)
                text, was_cleared = "", True
                continue
            except OSError as err:
                raise EOFError from err
            if not line:
                stdio.write_lines([""])  # the next output starts on its own line
                raise EOFError
            text += line.rstrip("\n")
            if not _is_continued(text):
                self._history.append_string(text)
                return text
            text = f"{text[:-1]}\n"


# ---- the status line


def status(chat: "Conversation", *, look_up: bool = False) -> list[tuple[int, str]]:
    """The parts of the status line with their ranks; where there is no room, the highest rank is left out first.

    ``look_up`` adds the model's provider, its window, and an estimate where no server has reported tokens. These need
    more imports.
    """
    doc, model, window, mark = chat.doc, "", None, ""
    usage: SessionUsage = doc["usage"] if doc else {"tokens": {}, "cost": None, "calls": []}
    tokens = token_count(usage["tokens"].get("total"))
    with contextlib.suppress(GptshError):  # the next question reports it
        model = chat.agent().model or ""
    if look_up:
        from gptsh.context.tokens import estimate
        from gptsh.models.facts import with_provider

        if tokens is None and doc and doc["messages"]:
            tokens, mark = estimate(doc["messages"]), "~"
        with contextlib.suppress(GptshError):
            window = chat.engine.client.windows.of(model, ask=False)
            model = with_provider(model)
    title = truncate_end(one_line(chat.title), _TITLE_WIDTH)
    at = chat.session.location
    lost = f"{at[ID]}, deleted" if at and not at.startswith("@") else ""  # shown if the file does not exist any more
    of_window = f" of {window:,}" if window else ""
    share = f"{100 * tokens / window:.0f} %" if tokens and window else ""
    return [
        (0, chat.ref or lost or chat.session.given_ref or "new session"),
        (4, title),
        (2, one_line(_without_folder(model))),
        (5, f"{mark}{tokens:,}{of_window} tokens" if tokens is not None else ""),
        (1, share),
        (3, "" if usage["cost"] is None else format_usd(usage["cost"])),
        (0, f"+{quantity(len(chat.paths), 'file')}" if chat.paths else ""),
        (0, "" if chat.saves and not chat.is_unsaved else "not saved"),
        (6, "" if doc else "/help shows the commands"),
    ]


def _without_folder(model: str) -> str:
    """A model without the folder of its file: llama.cpp's server names a model by its path."""
    provider, _, name = model.partition("/")
    return f"{provider}/{name.rpartition('/')[2]}" if name.endswith(".gguf") else model


def status_line(parts: Iterable[tuple[int, str]], width: int) -> str:
    """The parts as a line of at most ``width`` columns."""
    shown = [part for part in parts if part[1]]
    while columns(line := " · ".join(text for _, text in shown)) > width and shown[1:]:
        shown.remove(max(shown))
    return truncate_end(line, width)
