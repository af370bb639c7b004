"""Find out what of a session a model is not sent: attachments, images, filtered questions."""

from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

from gptsh.content.answer import filtered_questions
from gptsh.content.attachments import ABILITIES, NAMES, Kind, Media, media_in, not_sent
from gptsh.core import turns
from gptsh.errors import GptshError, ModelError, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message, Part, parts_of
from gptsh.terminal import stdio
from gptsh.text import quantity

# The session keeps all of it. The current question is sent whole, or is an error.

_DIGEST = 16  # hexadecimal digits of an image's digest


class _Attachment(NamedTuple):
    message: Message
    part: Part
    media: Media


class _SentImage(NamedTuple):
    message_index: int
    digest: str


class Exclusions:
    """Leaves out of the messages of a session what one model is not sent.

    ``kinds`` are the attachments that it does not accept. Images that its server refused are known
    for a day; ``learn`` finds out which they are.
    """

    def __init__(self, client: Client, model: str) -> None:
        self.kinds: frozenset[Kind] = frozenset()
        self._filtered: Collection[str] = ()  # ids of questions that a filter refused
        self._refused: set[str] = set()  # digests of images
        self._client = client
        self._model = model
        self._question_id: str | None = None
        self._to_remember: set[str] = set()

    def find_in(self, messages: Sequence[Message]) -> None:
        """Find out what of a session is not sent, and print notes about it.

        Raises UsageError if the question has an attachment that the model does not accept.
        """
        question_index = turns.question_index(messages)
        if question_index < len(messages):
            self._question_id = messages[question_index]["id"]

        earlier = messages[:question_index]
        self._filtered = filtered_questions(earlier)
        if self._filtered:
            last_question = earlier[turns.starts_of(earlier)[-1]]
            if last_question["id"] in self._filtered:
                stdio.note("the last question is not sent: the provider's filter refused it")

        attachments = []
        for message in messages:
            for part, media in media_in(message):
                attachments.append(_Attachment(message, part, media))
        if not attachments:  # the servers' reports are not read for nothing
            return
        self._find_unsupported(attachments)
        digests = {image.digest for image in self._sent_images(messages)}
        if digests:
            self._refuse(digests & self._client.refused_images(self._model))

    def _find_unsupported(self, attachments: Sequence[_Attachment]) -> None:
        """Find the kinds of attachments that the model does not accept.

        A note says how many are not sent, including those that its API cannot carry.
        """
        model = self._model
        unsupported = set()
        for kind in {attachment.media.kind for attachment in attachments}:
            if self._client.can(model, ABILITIES[kind]) is False:  # None: nobody knows
                unsupported.add(kind)
        self.kinds = frozenset(unsupported)

        left_out = []
        for message, part, media in attachments:
            name = NAMES[media.kind]
            if media.kind in self.kinds:
                if message["id"] == self._question_id:
                    problem = f"{model} does not accept {name}"
                    raise UsageError(problem, "choose another model with -m")
                left_out.append(name)
            elif message["role"] != "assistant" and not self._client.accepts(model, part):
                left_out.append(f"{name} of that form")
        if left_out:
            number = quantity(len(left_out), "attachment")
            names = " or ".join(sorted(set(left_out)))
            stdio.note(f"{number} not sent: {model} does not accept {names}")

    def apply(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages without filtered turns, and with texts in place of refused images."""
        if self._filtered:
            messages = turns.without_turns(messages, self._filtered)
        if self._refused:
            messages = [self._without_refused(message) for message in messages]
        return messages

    def _without_refused(self, message: Message) -> Message:
        if message["id"] == self._question_id:
            return message
        refused = []
        for part, digest in _images_in(message):
            if digest in self._refused:
                refused.append(part)
        if not refused:
            return message
        parts = []
        for part in parts_of(message):
            if part in refused:
                part = not_sent(part, "the server refused it")
            parts.append(part)
        return {**message, "content": parts}

    def learn(self, err: GptshError, messages: Sequence[Message]) -> bool:
        """Leave out the images that an error is about; return whether the next request differs.

        These are the ones that the model has not answered yet, else all. Those of the question
        itself stay.
        """
        if not (isinstance(err, ModelError) and err.refuses_images):
            return False
        last_answer = -1
        for index, message in enumerate(messages):
            if message.get("model") == self._model:
                last_answer = index
        sent = self._sent_images(messages)
        digests = {image.digest for image in sent if image.message_index > last_answer}
        if not digests:
            digests = {image.digest for image in sent}
        self._to_remember |= digests
        self._refuse(digests)
        return bool(digests)

    def remember(self) -> None:
        """Remember the images that ``learn`` left out: the request without them was answered."""
        if self._to_remember:
            self._client.remember_refused_images(self._model, self._to_remember)
            self._to_remember = set()

    def _sent_images(self, messages: Sequence[Message]) -> list[_SentImage]:
        """Return the images outside the question that are sent."""
        if "image" in self.kinds:
            return []
        sent = []
        for index, message in enumerate(messages):
            if message["id"] == self._question_id:
                continue
            for _, digest in _images_in(message):
                if digest not in self._refused:
                    sent.append(_SentImage(index, digest))
        return sent

    def _refuse(self, digests: set[str]) -> None:
        """Leave out images from now on; a note says how many."""
        if digests:
            self._refused |= digests
            images = quantity(len(digests), "image")
            it = "it" if len(digests) == 1 else "them"
            stdio.note(f"{images} not sent: {self._model} refused {it}")


def _images_in(message: Message) -> list[tuple[Part, str]]:
    """Return the images of a message, each with its digest."""
    images = []
    for part, media in media_in(message):
        if media.kind == "image":
            images.append((part, _digest(media.data or media.url or "")))
    return images


@cache
def _digest(data: str) -> str:
    from hashlib import sha256

    return sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
