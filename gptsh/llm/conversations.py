"""Write the messages of a request: turns that alternate, and earlier answers as they were sent."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from gptsh.config.accounts import Target
from gptsh.content.attachments import not_sent
from gptsh.jsonio import JsonObject, as_dict, as_dicts
from gptsh.messages import (
    COMPLETE_REASONS,
    Block,
    Message,
    Part,
    blocks_of,
    is_text,
    labelled_text,
    parts_of,
)


def called_functions(messages: Iterable[Message]) -> dict[str, str]:
    """Return the names of the functions that were called, by the ids of their calls."""
    names = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
    return names


NO_QUESTION = "(no question)"


def add_turn(
    turns: list[JsonObject],
    role: str,
    key: str,
    parts: list[Part],
    *,
    no_question: Part,
) -> None:
    """Add a turn of one role with its parts under ``key``, or join it to the last of that role.

    ``no_question`` is the part before an answer that is the first: it must follow a question.
    """
    if role != "user" and not turns:
        turns.append({"role": "user", key: [no_question]})
    if turns and turns[-1]["role"] == role:
        turns[-1][key] += parts
    else:
        turns.append({"role": role, key: parts})


def placeholder(part: Part) -> str:
    """Return the text in place of a part that is not sent."""
    return labelled_text(not_sent(part, "this API does not accept it"))


# ---- answers to be sent again
#
# An earlier answer as the model itself sent it, or as any other model may get it.
#
# A message has keys for texts, calls and signed thinking. Some APIs send more: encrypted reasoning,
# searches, a signature or an id beside a text. They save all blocks of such an answer as a list in
# ``replay``, in order of arrival. What the message holds itself, a text or a call, is left out of
# its block there: that block is a frame, filled again from the message when it is sent.

Frame = Literal["text", "tool_call"]


def own_blocks(
    message: Message,
    target: Target,
    key: str,
    frame_of: Callable[[Part], Frame | None],
) -> list[tuple[Part, Block | None]]:
    """Return the saved blocks of a complete answer of this model, each with its content.

    The content is the text or the call which the message has, or None for a block that is complete.
    ``frame_of`` returns what a saved block lacks. The list is empty if no blocks were saved under
    ``key`` of ``replay``, or if the message has other texts or calls than they: then it was joined
    with another answer, or imported.
    """
    is_complete = (message.get("finish_reason") or "").lower() in COMPLETE_REASONS
    parts = parts_of(message)
    if not is_complete or not target.gave(message) or not all(map(is_text, parts)):
        return []
    saved = as_dicts(as_dict(message.get("replay")).get(key))
    frames = [frame_of(block) for block in saved]
    calls = as_dicts(message.get("tool_calls"))
    if frames.count("text") != len(parts) or frames.count("tool_call") != len(calls):
        return []
    contents = {"text": iter(parts), "tool_call": iter(calls)}
    blocks: list[tuple[Part, Block | None]] = []
    for block, frame in zip(saved, frames, strict=True):
        content = (frame, next(contents[frame])) if frame else None
        blocks.append((block, content))
    return blocks


def texts_and_calls(message: Message) -> Iterator[Block]:
    """Yield the texts and calls of an answer, of whatever model, in order.

    Adjacent texts are joined.
    """
    text = ""
    for kind, block in blocks_of(message):
        if kind == "text":
            text += block["text"] if is_text(block) else placeholder(block)
        elif kind == "tool_call":
            if text:
                yield "text", {"text": text}
            yield kind, block
            text = ""
    text += message.get("refusal") or ""
    if text:
        yield "text", {"text": text}
