"""What is asked: the words, the attached files and the piped text as one message."""

from gptsh.cli import stdio
from gptsh.cli.options import Flags
from gptsh.core.messages import Message, is_unicode, user_message
from gptsh.core.settings import Settings


def read_question(flags: Flags, loaded: Settings) -> Message | None:
    """Words, files and piped text as one message; None where there is nothing of the kind."""
    read = [(path, stdio.read_file(path)) for path in flags.file]
    if reads_stdin(flags, loaded) and (piped := stdio.read_piped()).strip():
        read.append(("stdin", piped))
    attached = [(source, stdio.text_in(data, source)) for source, data in read]
    if odd := [source for source, text in attached if not is_unicode(text)]:
        stdio.note(f"not UTF-8 throughout: {', '.join(odd)}: the other bytes are kept, and sent as U+FFFD")
    words = " ".join(flags.prompt)
    return user_message(words, attached) if words.strip() or attached else None


def reads_stdin(flags: Flags, loaded: Settings) -> bool:
    """Whether standard input belongs to the question."""
    return loaded.read_stdin and not flags.no_stdin
