"""A message as one string, for servers that want strings."""

from gptsh.content.media import media_of
from gptsh.messages import Message, Part, blocks_of, labelled


def one_text(message: Message) -> str:
    """An answer with its refusal, or a tool's result; what is no text is named in brackets.

    Texts in a row stand together as they came. Where something else stood between two they are parted by a blank line,
    those of a tool by a line break, unless there is white space already.
    """
    gap = "\n" if message["role"] == "tool" else "\n\n"
    texts: list[str] = []
    apart = False
    for kind, block in [*blocks_of(message), ("text", {"type": "refusal", "refusal": message.get("refusal")})]:
        words = _words(block) if kind == "text" else ""
        goes_on = kind == "text" and block.get("type") == "text" and message["role"] != "tool"
        if texts and words and (apart or not goes_on) and not (texts[-1][-1].isspace() or words[0].isspace()):
            texts.append(gap)
        texts += [words] if words else []
        apart = not goes_on or (apart and not words)
    return "".join(texts)


def _words(part: Part) -> str:
    kind, media = part.get("type"), media_of(part)
    if kind in ("text", "refusal"):
        said = part.get(kind)
        return "" if not isinstance(said, str) else labelled(part) if kind == "text" else said
    return f"[{kind or 'part'}]" if media is None else str(media)
