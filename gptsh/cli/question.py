"""What is asked: the words, what is attached and what is piped as one message."""

from collections.abc import Sequence

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.config.settings import Settings
from gptsh.content.kinds import decoded, kind_of
from gptsh.content.media import media_part
from gptsh.errors import UsageError
from gptsh.messages import Message, Part, says_nothing, text_part, user_message
from gptsh.text import is_unicode, shown_size

_MOST = 50_000_000  # bytes of images, documents and audio that a question carries; no provider takes more


def read_question(flags: Flags, loaded: Settings) -> Message | None:
    """Words, files and what is piped as one message; None where all of it is blank.

    Raises UsageError for what cannot be read, for data that cannot be sent, and for more of it than can be.
    """
    words, reader = " ".join(flags.prompt), _Reader()
    parts = reader.parts(flags.file)
    if reads_stdin(flags, loaded):
        piped = stdio.read_piped(prompted=bool(words.strip() or parts or flags.title or flags.tag or flags.interactive))
        if piped and not piped.isspace():
            parts.append(reader.part("stdin", piped))
    texts = [("the prompt", words), *((part["source"], part.get("text", "")) for part in parts)]
    if odd := [source for source, text in texts if not is_unicode(text)]:
        stdio.note(
            f"not UTF-8 throughout: {', '.join(odd)}: the other bytes are kept, and sent as U+FFFD; "
            "iconv -f ENCODING -t utf-8 makes letters of them"
        )
    question = user_message(words, parts)
    return None if says_nothing(question) else question


def attached(paths: Sequence[str]) -> list[Part]:
    """Files as the parts that a question has of them. Raises UsageError as ``read_question``."""
    return _Reader().parts(paths)


def reads_stdin(flags: Flags, loaded: Settings) -> bool:
    """Whether standard input belongs to the question."""
    return loaded.read_stdin and not flags.no_stdin


class _Reader:
    """Makes parts of what is attached, and knows how much of it is data."""

    def __init__(self) -> None:
        self._taken = 0

    def parts(self, paths: Sequence[str]) -> list[Part]:
        """The files, in their order. Raises UsageError as ``part``, and for what cannot be read."""
        return [self.part(path, stdio.read_file(path)) for path in paths]

    def part(self, source: str, data: bytearray) -> Part:
        """The bytes as a part: text, which uses them up, or data that models take. Raises UsageError for any other."""
        kind = kind_of(data)
        if kind is None:
            return text_part(source, decoded(data))
        if kind.media_type is None:
            raise UsageError(f"{source} is {kind.name} ({_size(len(data))})", kind.todo)
        self._taken += len(data)
        if self._taken > _MOST:
            most = f"{shown_size(_MOST)} of images, PDF and audio can be sent at most"
            raise UsageError(f"with {source} the attachments are {_size(self._taken)}", most)
        return media_part(source, kind.media_type, data)


def _size(size: int) -> str:
    return f"more than {shown_size(stdio.ENOUGH)}" if size > stdio.ENOUGH else shown_size(size)
