"""A message in passages, for whoever shows it to people: words, and what is told in a line and can be unfolded."""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from gptsh.content.flat import one_text
from gptsh.content.media import Media, media_in, media_of, name_of, shown
from gptsh.jsonio import as_dict, parsed
from gptsh.messages import WHOLE, Message, Part, blocks_of, parts_of
from gptsh.text import shortened, shown_size

FOLDED = 120  # characters of a tool's arguments and of its result that a line shows
Kind = Literal["words", "file", "media", "thinking", "call", "result", "refusal"]


class Passage(NamedTuple):
    """A stretch of a message. ``words`` and a ``refusal`` are Markdown, all other text is shown as it is.

    ``title`` says what it is and ``line`` what is in it, shortened; ``text`` is the whole, None where none can be read.
    ``part`` is the text part that it is, ``language`` what its text is written in.
    """

    kind: Kind
    title: str = ""
    line: str = ""
    text: str | None = None
    language: str = ""
    media: tuple[Media, ...] = ()
    part: Part | None = None


def passages(message: Message) -> Iterator[Passage]:
    """The passages of a message in our vocabulary (see ``foreign.translated``), in order."""
    for text in _reasoning(message):
        yield _thought(text)
    if message["role"] == "tool":
        yield _result(message)
        return
    for kind, block in blocks_of(message):
        yield _call(block) if kind == "tool_call" else _thinking(block) if kind == "thinking" else _part(block)
    if refusal := message.get("refusal"):
        yield Passage("refusal", "refusal", text=refusal)


def speaker(message: Message) -> str:
    """Who says it, for people: ``You``, a model, a tool."""
    model, name = message.get("model"), message.get("name")
    match message["role"]:
        case "user":
            return "You"
        case "assistant":
            return model if model and isinstance(model, str) else "Assistant"
        case "tool":
            return f"Tool {name}" if name and isinstance(name, str) else "Tool"
    return message["role"].capitalize() or "?"


def partial(message: Message) -> str:
    """Why an answer is not whole, in the provider's word or ours; empty where it is."""
    finish = message.get("finish_reason") or ""
    return "" if finish.lower() in WHOLE else finish


def _reasoning(message: Message) -> list[str]:
    """The reasoning that came beside the answer; it stands under any name."""
    return [text for text in as_dict(message.get("replay")).values() if text and isinstance(text, str)]


def _thinking(block: Part) -> Passage:
    text = block.get("thinking")
    return _thought(text) if isinstance(text, str) else Passage("thinking", "thinking", "thinking, not readable")


def _thought(text: str) -> Passage:
    return Passage("thinking", "thinking", f"thinking, {len(text):,} characters", text)


def _call(call: dict[str, Any]) -> Passage:
    function = as_dict(call.get("function"))
    title, arguments = f"tool call {function.get('name')}", str(function.get("arguments"))
    text, language = _pretty(arguments)
    return Passage("call", title, f"{title}({shortened(arguments, FOLDED)})", text, language)


def _pretty(arguments: str) -> tuple[str, str]:
    """The arguments of a call for reading, and their language: indented where they are JSON."""
    try:
        return json.dumps(parsed(arguments), indent=2, ensure_ascii=False), "json"
    except (ValueError, RecursionError):
        return arguments, ""


def _result(message: Message) -> Passage:
    """A tool's result: of a long one the first line and the size, and what it carries."""
    carried = tuple(media for _, media in media_in(message))
    text = one_text({**message, "content": [part for part in parts_of(message) if media_of(part) is None]})
    first = shortened(text.strip().partition("\n")[0], FOLDED)
    more = "" if first == text.strip() else f"[{shown_size(len(text.encode('utf-8', 'surrogatepass')))}]"
    error = "[error]" if message.get("is_error") is True else ""
    line = " ".join(filter(None, (error, first, more, *map(str, carried)))) or "[nothing]"
    return Passage("result", "result, an error" if error else "result", line, text, media=carried)


def _part(part: Part) -> Passage:
    media, name, text = media_of(part), name_of(part), part.get("text")
    if part.get("type") == "text" and isinstance(text, str):
        return _file(name, text, part) if name else Passage("words", text=text, part=part)
    if media and media.text is not None:
        return _file(name or "document", media.text, None)
    if media:
        told = f"{name}, {media.described}" if name else media.described
        return Passage("media", told, told, media=(media,))
    if part.get("type") == "tool_result":
        text = shown(part)
        return Passage("result", "result", shortened(text, FOLDED) or "[nothing]", text)
    return Passage("media", told := " ".join(filter(None, (name, str(part.get("type") or "part")))), told)


def _file(name: str, text: str, part: Part | None) -> Passage:
    """Text of a file, its language that of the name."""
    stem, _, ending = name.rpartition(".")
    return Passage("file", name, name, text, ending if stem and ending not in ("txt", "log") else "", part=part)
