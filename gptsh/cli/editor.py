"""The line that is typed at the prompt of a conversation. One of the files that import prompt_toolkit."""

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from gptsh.cli import stdio, tty
from gptsh.cli.signals import Endings
from gptsh.cli.talk import Talk
from gptsh.core.messages import counted

_PROMPT = "> "
_GOES_ON = "  "  # in front of the further lines of a message
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse", "bottom-toolbar.text": "fg:ansibrightblack"})


class _Woken(Exception):
    """A signal came while a line was typed."""


class Editor:
    """Reads what the user types, from the terminal, wherever standard input comes from."""

    def __init__(self, talk: Talk, endings: Endings) -> None:
        out = stdio.answers_to()
        assert out is not None  # it is a terminal
        self._talk, self._endings = talk, endings
        self._session: PromptSession[str] = PromptSession(
            _PROMPT,
            input=tty.keys(),
            output=tty.screen(out),
            key_bindings=_keys(),
            prompt_continuation=_GOES_ON,
            bottom_toolbar=self._status,
            style=_STYLE,
            enable_suspend=True,
        )

    def read(self, suggested: str = "") -> str:
        """A message or a command; empty where Ctrl-C or SIGINT gave up what was typed.

        Raises EOFError for Ctrl-D in an empty line, and where the terminal is gone; Ended for any other signal.
        """
        self._endings.forget_interrupt()
        self._endings.listen()
        try:
            with self._endings.handed_to(self._wake):
                return self._session.prompt(default=suggested, handle_sigint=False)
        except (KeyboardInterrupt, _Woken):
            self._endings.forget_interrupt()
            self._endings.listen()
            return ""
        except OSError as err:
            raise EOFError from err

    def _wake(self) -> None:
        """Called by a signal handler: end the reading, in its own time."""
        app = self._session.app
        if app.loop:
            app.loop.call_soon_threadsafe(lambda: app.is_running and app.exit(exception=_Woken()))

    def _status(self) -> StyleAndTextTuples:
        """The line under the prompt."""
        waiting = len(self._talk.flags.file)
        files = f", {counted(waiting, 'file')} waiting" if waiting else ""
        return [("", (self._talk.ref or "new session") + files)]


def _keys() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _add_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("enter")
    def _accept(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    return bindings
