"""What a model is not sent: attachments that it does not accept, questions that a filter refused.

The session keeps all of it. The current question is sent whole, or is an error.
"""

from collections.abc import Sequence
from functools import cache

from gptsh.content.answer import filtered_questions
from gptsh.content.attachments import ABILITIES, NAMES, Kind, media_in, not_sent
from gptsh.core import turns
from gptsh.errors import GptshError, ModelError, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message, Part, parts_of
from gptsh.terminal import stdio
from gptsh.text import quantity

_DIGEST = 16  # hexadecimal digits of an image's digest


class NotSent:
    """Leaves out of the messages of a session what one model is not sent.

    ``kinds`` are the attachments that it does not accept. Images that its server refused are known
    for a day; ``learn`` finds out which they are.
    """

    def __init__(self, client: Client, model: str, messages: Sequence[Message]) -> None:
        """Print notes about what is not sent.

        Raises UsageError if the question has an attachment that the model does not accept.
        """
        self._client = client
        self._model = model
        question_at = turns.question_index(messages)
        question = next(iter(messages[question_at:]), None)
        self._question_id = question["id"] if question else None
        self._filtered = filtered_questions(messages[:question_at])
        self._refused: set[str] = set()  # digests of images
        self._to_remember: set[str] = set()
        starts = turns.starts_of(messages[:question_at])
        if starts and messages[starts[-1]]["id"] in self._filtered:
            stdio.note("the last question is not sent: the provider's filter refused it")
        self.kinds = _unsupported_kinds(client, model, messages, question)
        known = client.refused_images(model) if any(map(_images_in, messages)) else ()
        if known:
            self._leave_out(set(known) & {digest for _, digest in self._sent_images(messages)})

    def without_filtered(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages without the turns that a filter ended."""
        return turns.without_turns(messages, self._filtered) if self._filtered else messages

    def without_refused(self, message: Message) -> Message:
        """The message with a text in place of each image that the server refused."""
        if not self._refused or message.get("id") == self._question_id:
            return message
        refused = [part for part, digest in _images_in(message) if digest in self._refused]
        if not refused:
            return message
        parts = []
        for part in parts_of(message):
            parts.append(not_sent(part, "the server refused it") if part in refused else part)
        return {**message, "content": parts}

    def learn(self, err: GptshError, messages: Sequence[Message]) -> bool:
        """Leave out the images that an error is about; return whether the next request differs.

        These are the ones that the model has not answered yet, else all. Those of the question
        itself stay.
        """
        if not (isinstance(err, ModelError) and err.refuses_images):
            return False
        sent = self._sent_images(messages)
        answers = [at for at, message in enumerate(messages) if message.get("model") == self._model]
        newest = [digest for at, digest in sent if not answers or at > answers[-1]]
        digests = set(newest) or {digest for _, digest in sent}
        self._to_remember |= digests
        self._leave_out(digests)
        return bool(digests)

    def remember(self) -> None:
        """Remember the images that ``learn`` left out: the request without them was answered."""
        if self._to_remember:
            self._client.remember_refused_images(self._model, self._to_remember)
            self._to_remember = set()

    def _sent_images(self, messages: Sequence[Message]) -> list[tuple[int, str]]:
        """The images outside the question that are sent: index of the message, digest."""
        sent: list[tuple[int, str]] = []
        if "image" in self.kinds:
            return sent
        for at, message in enumerate(messages):
            if message.get("id") != self._question_id:
                sent += [(at, digest) for _, digest in _images_in(message)]
        return [(at, digest) for at, digest in sent if digest not in self._refused]

    def _leave_out(self, digests: set[str]) -> None:
        if digests:
            self._refused |= digests
            images = quantity(len(digests), "image")
            it = "it" if len(digests) == 1 else "them"
            stdio.note(f"{images} of the session not sent: {self._model} refused {it}")


def _images_in(message: Message) -> list[tuple[Part, str]]:
    """The images of a message, each with its digest."""
    images = [(part, media) for part, media in media_in(message) if media.kind == "image"]
    return [(part, _digest(media.data or media.url or "")) for part, media in images]


@cache
def _digest(data: str) -> str:
    from hashlib import sha256

    return sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]


def _unsupported_kinds(
    client: Client, model: str, messages: Sequence[Message], question: Message | None
) -> frozenset[Kind]:
    """Return the kinds of attachments that the model does not accept.

    A note says how many are not sent, including those that its API cannot carry. Raises UsageError if the question has
    an attachment of these kinds.
    """
    attachments = [(message, part, media) for message in messages for part, media in media_in(message)]
    if not attachments:
        return frozenset()
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
