"""Text for the clipboard of a terminal, which has it by an escape sequence: OSC 52, over ssh and in tmux, too."""

from base64 import b64encode

LIMIT = 100_000  # bytes of a sequence that terminals take; some refuse more
_BEGIN, _END = "\x1b]52;c;", "\x07"


def to_clipboard(text: str) -> str:
    """The sequence by which a terminal puts the text into its clipboard, in place of what is there."""
    return f"{_BEGIN}{b64encode(text.encode('utf-8', 'replace')).decode()}{_END}"
