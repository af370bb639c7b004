"""Attachments that the model does not accept: an error in the question, left out of earlier messages with a note."""

from collections.abc import Sequence

from gptsh.content.attachments import ABILITIES, NAMES, Kind, media_in
from gptsh.core import turns
from gptsh.errors import UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message
from gptsh.process import stdio
from gptsh.text import quantity


def find_unsupported(client: Client, model: str, messages: Sequence[Message]) -> frozenset[Kind]:
    """Return the kinds of attachments that the model does not accept.

    A note says how many are not sent, including those that its API cannot carry. Raises UsageError if the current
    question has an attachment of these kinds.
    """
    attachments = [(message, part, media) for message in messages for part, media in media_in(message)]
    if not attachments:
        return frozenset()
    question = next(iter(messages[turns.question_index(messages) :]), None)
    kinds = {media.kind for *_, media in attachments}
    unsupported_kinds = frozenset(kind for kind in kinds if client.can(model, ABILITIES[kind]) is False)
    left_out = []
    for message, part, media in attachments:
        if message is question and media.kind in unsupported_kinds:
            raise UsageError(f"{model} takes no {NAMES[media.kind]}", "choose another model with -m")
        if media.kind in unsupported_kinds:
            left_out.append(NAMES[media.kind])
        elif message["role"] != "assistant" and not client.accepts(model, part):
            left_out.append(f"{NAMES[media.kind]} of that form")
    if left_out:
        number = quantity(len(left_out), "attachment")
        stdio.note(f"{number} of the session not sent: {model} takes no {', no '.join(sorted(set(left_out)))}")
    return unsupported_kinds
