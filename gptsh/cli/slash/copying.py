"""``/copy``: an answer or a block of code into the clipboard of the terminal, which alone is where it goes."""

import os
import re
from base64 import b64encode
from collections.abc import Sequence

from gptsh.cli import stdio
from gptsh.cli.slash.session import current
from gptsh.cli.talk import Talk
from gptsh.core import document
from gptsh.errors import UsageError
from gptsh.messages import Message, text_of
from gptsh.render.plain import able
from gptsh.text import counted

_DEAF = ("linux", "vt100", "vt220")  # terminals that are known to have no clipboard
_LIMIT = 100_000  # bytes of a sequence that terminals take; some refuse more


def copy(talk: Talk, args: str) -> None:
    """``/copy``, ``/copy N``, ``/copy code``, ``/copy code N``."""
    text = _chosen(current(talk)["messages"], args.split())
    if not able(os.environ) or os.environ.get("TERM") in _DEAF:
        raise UsageError("this terminal has no clipboard")
    sequence = to_clipboard(text)
    stdio.write_pieces([sequence], safe=True)
    stdio.note(f"{counted(len(text), 'character')} sent to the clipboard of the terminal")
    if len(sequence) > _LIMIT:
        stdio.note(f"that takes {len(sequence):,} bytes, and some terminals refuse more than {_LIMIT:,}")
    if why := _kept_by_tmux():
        stdio.note(why)


def to_clipboard(text: str) -> str:
    """The sequence (OSC 52) by which a terminal puts the text into its clipboard, over ssh and in tmux, too."""
    return f"\x1b]52;c;{b64encode(text.encode('utf-8', 'replace')).decode()}\x07"


def _chosen(messages: Sequence[Message], words: Sequence[str]) -> str:
    """The text that is meant. Raises UsageError."""
    if words[:1] == ["code"]:
        return _block(_answer(messages, None), words[1:])
    number = _number(words)
    starts = document.turns(messages)
    if number is not None and number > len(starts):
        raise UsageError(f"there is no turn {number}", f"the session has {len(starts)}")
    return _answer(messages, number)


def _answer(messages: Sequence[Message], turn: int | None) -> str:
    """The last answer that has words, of all or of a turn."""
    start, end = 0, len(messages)
    if turn is not None:
        starts = [*document.turns(messages), end]
        start, end = starts[turn - 1], starts[turn]
    for place in range(end - 1, start - 1, -1):
        if messages[place]["role"] == "assistant" and (text := text_of(messages[place])):
            return text
    raise UsageError("there is no answer to copy")


def _block(answer: str, words: Sequence[str]) -> str:
    from gptsh.render.markdown import code_blocks  # noqa: PLC0415 - little is copied

    number, found = _number(words), code_blocks(answer)
    if not found:
        raise UsageError("the last answer has no block of code", "/copy takes all of it")
    if number is not None and number > len(found):
        raise UsageError(f"the last answer has no block {number}", f"it has {len(found)}")
    return found[-1 if number is None else number - 1]


def _number(words: Sequence[str]) -> int | None:
    """A number from 1 on; None where there is no word."""
    if not words:
        return None
    if len(words) > 1 or not re.fullmatch("[1-9][0-9]{0,8}", words[0]):
        raise UsageError(f"/copy {' '.join(words)}: expected nothing, a turn's number, code, or code and a number")
    return int(words[0])


def _kept_by_tmux() -> str | None:
    """What to do where tmux is known not to pass it on: by default it takes nothing from what runs in it."""
    if not os.environ.get("TMUX"):
        return None
    import subprocess  # noqa: PLC0415 - in tmux alone

    asked = ["tmux", "show-options", "-sv", "set-clipboard"]
    try:
        said = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=2, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if said.returncode or said.stdout.strip() == b"on":
        return None
    return "tmux keeps it back: 'tmux set -s set-clipboard on' lets it through"
