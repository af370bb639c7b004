"""Messages as the lines that the small model reads, for summaries and for an agent's memory: shortened, none forged."""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from gptsh.content.attachments import name_of, part_label
from gptsh.content.passages import one_text
from gptsh.context.tokens import MARK
from gptsh.messages import Message, is_text, parts_of, text_parts_of
from gptsh.records import NamedTuple
from gptsh.text import shorten

_NAME_WIDTH = 80  # characters
_TAGS = re.compile(r"(?i)<\s*+(/?)\s*+(memory|conversation|summary)\s*+>")


class Lengths(NamedTuple):
    """The maximum characters that the small model reads: of a question's words, of an answer, of anything else."""

    user: int = 400
    answer: int = 1500
    rest: int = 200


def in_tags(name: str, text: str) -> str:
    """Wrap a text in tags, with any such tag inside it defused."""
    inner = _TAGS.sub(r"[\1\2]", text)
    return f"<{name}>\n{inner}\n</{name}>"


def lines_of(messages: Iterable[Message], lengths: Lengths, *, dated: bool = False) -> Iterator[str]:
    """Each message as the small model reads it; empty for a message without content.

    A text's own lines are indented, so that none can pass for a message. ``dated``: each question starts with its day,
    and system prompts are left out.
    """
    names: dict[str, str] = {}  # of tools, by the ids of their calls
    for message in messages:
        line = "" if dated and message["role"] == "system" else _line_of(message, names, lengths)
        text = line.replace("\n", "\n ")
        moment = moment_of(message) if dated and text and message["role"] == "user" else None
        yield f"[{moment.date().isoformat()}]\n{text}" if moment else text


def moment_of(message: Message) -> datetime | None:
    """The message's time as local time; None if it has no valid one."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromisoformat(message.get("timestamp") or "").astimezone()
    return None


def _without_middle(line: str, max_length: int) -> str:
    """Cut the middle out of a line; two thirds of the result are its beginning, one third its end."""
    length = max_length - len(MARK) - 2
    if len(line) <= max_length or length < len(MARK):
        return line[: max(1, max_length)]
    return f"{line[: length - length // 3]} {MARK} {line[len(line) - length // 3 :]}"


def _line_of(message: Message, names: dict[str, str], lengths: Lengths) -> str:
    """One message; empty without content. Adds the message's calls to ``names``, the names of tools by call id."""
    if message["role"] == "tool":
        tool = message.get("name") or names.get(message.get("tool_call_id") or "") or "unknown"
        failed = " failed" if message.get("is_error") is True else ""
        return f"[tool {_name(tool)}{failed}: {shorten(one_text(message), lengths.rest)}]"
    words = [part["text"] for part in text_parts_of(message) if "source" not in part]
    if message["role"] == "assistant":
        lines = [_without_middle("".join(words).strip(), lengths.answer), message.get("refusal") or ""]
    else:
        lines = [_without_middle(" ".join("\n\n".join(words).split()), lengths.user)]
    for part in parts_of(message):
        if not is_text(part) or "source" in part:
            what = f"attached {_name(name)}" if (name := name_of(part)) else "attached"
            lines.append(f"[{what}: {shorten(part_label(part), lengths.rest)}]")
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments")
        names[call["id"]] = _name(call["function"].get("name"))
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        lines.append(f"[call {names[call['id']]}: {shorten(arguments, lengths.rest)}]")
    text = "\n".join(filter(None, lines))
    return f"{message['role'].upper()}: {text}" if text else ""


def _name(value: object) -> str:
    return shorten(value, _NAME_WIDTH) if isinstance(value, str) and value else "unknown"
