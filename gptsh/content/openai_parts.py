"""The parts of a message as OpenAI's chat API takes them, and others that follow it."""

from collections.abc import Iterable

from gptsh.content.attachments import media_in, media_of, not_sent, part_label
from gptsh.messages import Message, Part, is_text, labelled_text, parts_of, text_of


def question_content(message: Message, shapes: str) -> str | list[Part]:
    """The content of a question: one text where it is all text, as every server takes it, else a list of parts.

    ``shapes`` says whose shapes documents and audio have: ``openai`` or ``mistral``.
    """
    parts = [part if is_text(part) else _sent(part, shapes) for part in parts_of(message)]
    if all(map(is_text, parts)):
        return text_of({**message, "content": parts})
    texts = [{"type": "text", "text": labelled_text(part)} if is_text(part) else part for part in parts]
    return [part for part in texts if part.get("text") != ""]


def accepts(part: Part, shapes: str) -> bool:
    """Whether there is a shape for what a part carries: documents go by URL in Mistral's alone."""
    media = media_of(part)
    return media is not None and (media.data is not None or media.kind == "image" or shapes == "mistral")


def _sent(part: Part, shapes: str) -> Part:
    """What is no text, or a text that says what is not sent."""
    media = media_of(part)
    if media is None or not accepts(part, shapes):
        return not_sent(part, "this API does not take it")
    if shapes == "mistral" and media.kind == "document":
        return {"type": "document_url", "document_url": part["file"]["file_data"]}
    if shapes == "mistral" and media.kind == "audio":
        return {"type": "input_audio", "input_audio": media.data}
    kind = part["type"]
    inner = part[kind]
    return {"type": kind, kind: inner if isinstance(inner, dict) else {"url": inner}}


def move_tool_media(messages: Iterable[Message]) -> list[Message]:
    """The messages, with what tools gave besides text in a question behind their results: these are text alone here."""
    sent: list[Message] = []
    carried: list[Part] = []
    for message in messages:
        if message["role"] == "tool":
            if found := list(media_in(message)):
                of = message.get("name") or message.get("tool_call_id")
                for part, media in found:
                    carried += [{"type": "text", "text": f"{media.kind} of the tool result above ({of}):"}, part]
                message = {**message, "content": "\n".join(map(part_label, parts_of(message)))}
        elif carried and message["role"] == "user":  # in front of it: roles alternate
            message = {**message, "content": [*carried, *parts_of(message)]}
            carried = []
        elif carried:
            sent.append({"role": "user", "content": carried})
            carried = []
        sent.append(message)
    return [*sent, {"role": "user", "content": carried}] if carried else sent
