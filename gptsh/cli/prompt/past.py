"""What was typed before at the prompt of a conversation, in this one and in others, and what keeps it."""

from gptsh.cli import stdio
from gptsh.cli.prompt import typed
from gptsh.cli.talk import Talk
from gptsh.errors import GptshError


class Past:
    """The file of what was typed. Where it cannot be read or written, one note says so, and nothing else is lost."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._last = ""
        self._failure = ""
        self._told = False

    def read(self) -> list[str]:
        """All of it, oldest first. A failure is told by the next ``keep``: a line is being typed now."""
        try:
            entries = typed.read()
        except (GptshError, OSError) as err:
            self._failure = f"what was typed before cannot be read: {_cause(err)}"
            return []
        self._last = entries[-1] if entries else ""
        return entries

    def keep(self, text: str) -> None:
        """Add what was typed, unless it was typed last, or nothing is to be saved."""
        if self._talk.saves and text.strip() and text != self._last:
            self._last = text
            try:
                typed.append(text)
            except (GptshError, OSError) as err:
                self._failure = self._failure or f"what is typed is not kept: {_cause(err)}"
        if self._failure and not self._told:
            self._told = True
            stdio.note(self._failure)


def _cause(err: Exception) -> str:
    return f"{typed.typed_file()}: {err.strerror}" if isinstance(err, OSError) else str(err)
