"""What is asked: the words, the attached files and the piped text as one message."""

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.core.kinds import decoded, kind_of, shown_size
from gptsh.core.messages import Message, is_unicode, user_message
from gptsh.core.settings import Settings
from gptsh.errors import UsageError


def read_question(flags: Flags, loaded: Settings) -> Message | None:
    """Words, files and piped text as one message; None where there is nothing of the kind.

    Raises UsageError for what cannot be read, and for what is no text.
    """
    words = " ".join(flags.prompt)
    attached = [(path, _text_in(stdio.read_file(path), path)) for path in flags.file]
    if reads_stdin(flags, loaded):
        piped = stdio.read_piped(prompted=bool(words.strip() or attached or flags.title or flags.tag))
        if piped and not piped.isspace():
            attached.append(("stdin", _text_in(piped, "stdin")))
    if odd := [source for source, text in (("the prompt", words), *attached) if not is_unicode(text)]:
        stdio.note(
            f"not UTF-8 throughout: {', '.join(odd)}: the other bytes are kept, and sent as U+FFFD; "
            "iconv -f ENCODING -t utf-8 makes letters of them"
        )
    return user_message(words, attached) if words.strip() or attached else None


def reads_stdin(flags: Flags, loaded: Settings) -> bool:
    """Whether standard input belongs to the question."""
    return loaded.read_stdin and not flags.no_stdin


def _text_in(data: bytearray, source: str) -> str:
    """The bytes as text; they are used up. Raises UsageError for what is no text."""
    if kind := kind_of(data):
        size = f"more than {shown_size(stdio.ENOUGH)}" if len(data) > stdio.ENOUGH else shown_size(len(data))
        raise UsageError(f"{source} is {kind.name} ({size})", kind.todo)
    return decoded(data)
