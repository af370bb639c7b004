"""The blocks of an answer as its provider sent them, so that they can go back to it unchanged and in their order.

A message has keys for texts, calls and signed thinking. Some APIs send more: encrypted reasoning, searches, a signature
or an id beside a text. Their files in ``llm/`` save all blocks of such an answer as a list in ``replay``, in order of
arrival. What the message holds itself, a text or a call, is left out of its block there: that block is a frame, filled
again from the message when it is sent.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import PROVIDER_FIELDS, Block, Call, Message, Part, is_text, parts_of

Frame = Literal["text", "tool_call"]


def filled(
    message: Message, saved: Sequence[Part], frame_of: Callable[[Part], Frame | None]
) -> list[tuple[Part, Block | None]] | None:
    """Pair each saved block with the text or call that belongs into it, None for a whole one.

    ``frame_of`` returns what a saved block lacks. None if the message has other texts or calls than the saved blocks:
    then it was joined with another answer, or imported, and its own blocks count.
    """
    contents: dict[Frame, list[Any]] = {"text": parts_of(message), "tool_call": as_dicts(message.get("tool_calls"))}
    if not all(map(is_text, contents["text"])):
        return None
    frames = [frame_of(block) for block in saved]
    if any(frames.count(kind) != len(items) for kind, items in contents.items()):
        return None
    rest = {kind: iter(items) for kind, items in contents.items()}
    return [(block, (kind, next(rest[kind])) if kind else None) for block, kind in zip(saved, frames, strict=True)]


def call_signature(call: Call) -> str | None:
    """Return Google's signature of a call that came through its OpenAI-compatible API or through litellm."""
    beside = as_dict(as_dict(call.get("extra_content")).get("google"))
    inside = as_dict(as_dict(call.get("function")).get(PROVIDER_FIELDS))
    signature = beside.get("thought_signature") or inside.get("thought_signature")
    return signature if isinstance(signature, str) else None
