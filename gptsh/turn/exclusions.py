"""Find out what of a session a model is not sent: attachments, images, filtered questions."""

from collections.abc import Collection, Sequence
from functools import cache

from gptsh.content.answer import filtered_questions
from gptsh.content.attachments import ABILITIES, NAMES, Kind, media_in, not_sent
from gptsh.core import turns
from gptsh.errors import GptshError, ModelError, UsageError
from gptsh.llm.client import Client
from gptsh.messages import Message, Part, parts_of
from gptsh.terminal import stdio
from gptsh.text import quantity

# The session keeps all of it. The current question is sent whole, or is an error.

_DIGEST = 16  # hexadecimal digits of an image's digest


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

        self._find_unsupported(messages)
        images = self._sent_images(messages)
        if images:
            self._refuse(images & self._client.refused_images(self._model))

    def _find_unsupported(self, messages: Sequence[Message]) -> None:
        """Find the kinds of attachments that the model does not accept.

        A note says how many are not sent, including those that its API cannot carry.
        """
        model = self._model
        accepts: dict[Kind, bool] = {}
        left_out = []
        for message in messages:
            for part, media in media_in(message):
                kind = media.kind
                if kind not in accepts:
                    can_read = self._client.can(model, ABILITIES[kind])
                    accepts[kind] = can_read is not False  # None: nobody knows
                if accepts[kind]:
                    if message["role"] != "assistant" and not self._client.accepts(model, part):
                        left_out.append(f"{NAMES[kind]} in that form")
                    continue
                if message["id"] == self._question_id:
                    problem = f"{model} does not accept {NAMES[kind]}"
                    raise UsageError(problem, "choose another model with -m")
                left_out.append(NAMES[kind])
        self.kinds = frozenset(kind for kind in accepts if not accepts[kind])
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

        These images are the ones that the model has not answered yet, or else all. Those of the
        question itself stay.
        """
        if not (isinstance(err, ModelError) and err.refuses_images):
            return False
        last_answer = -1
        for index, message in enumerate(messages):
            if message.get("model") == self._model:
                last_answer = index
        images = self._sent_images(messages[last_answer + 1 :]) or self._sent_images(messages)
        self._to_remember |= images
        self._refuse(images)
        return bool(images)

    def remember(self) -> None:
        """Remember the images that ``learn`` left out: the request without them was answered."""
        if self._to_remember:
            self._client.remember_refused_images(self._model, self._to_remember)
            self._to_remember = set()

    def _sent_images(self, messages: Sequence[Message]) -> set[str]:
        """Return the digests of the images outside the question that are sent."""
        if "image" in self.kinds:
            return set()
        digests: set[str] = set()
        for message in messages:
            if message["id"] != self._question_id:
                digests.update(digest for _, digest in _images_in(message))
        return digests - self._refused

    def _refuse(self, images: set[str]) -> None:
        """Leave out images from now on; a note says how many."""
        if images:
            self._refused |= images
            count = quantity(len(images), "image")
            it = "it" if len(images) == 1 else "them"
            stdio.note(f"{count} not sent: {self._model} refused {it}")


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
