"""The size of a whole prompt in tokens: from the report of the last answer, estimated or counted, and scaled.

The tokens reported with the newest answer plus the bytes of all newer text are an upper bound. A prompt that this does
not prove small is counted, and scaled by the model's earlier reports for the session. A report also shows whether the
server has truncated the prompt silently.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gptsh.context.tokens import BYTES, MAX_BYTES, count_message, count_text, replayed, sizes, texts_of, upper_bound
from gptsh.messages import Message, is_answer_of, starts_turn, token_count
from gptsh.records import NamedTuple

_MIN_SCALE, _MAX_SCALE, _SCALE_MARGIN = 0.3, 1.5, 1.05  # limits of the reported scale; the margin is for other text
_MIN_SCALE_TOKENS = 200  # a report on fewer is no basis for a scale
_ENOUGH_SCALE_TOKENS = 2000  # a report on so many needs no older ones
_ABSURD = 1e9  # tokens: no prompt has as many
# A server has truncated a prompt of more than _TRUNCATED_FROM tokens if it reports less than this share of the tokens
# that earlier reports predict, or of those that gptsh counts.
_TRUNCATED_FROM, _MIN_SHARE_REPORTED, _MIN_SHARE_COUNTED = 3000, 0.8, 0.4


class Target(NamedTuple):
    """The model that a prompt is for, and the id of the session's compaction that it is sent under, if any."""

    model: str | None
    provider: str | None
    compaction: str | None = None


class Size(NamedTuple):
    """Tokens of a prompt: ``tokens`` is the estimate that decides, shown with a ``~``; ``at_most`` is rarely exceeded.

    Both include ``reported`` tokens that a report of the provider covers.
    """

    tokens: int
    at_most: int
    reported: int = 0


def size_of(
    messages: Sequence[Message],
    before: Sequence[str],
    target: Target,
    *,
    estimate_below: int | None,
    estimate_above: int | None = None,
    scale: Callable[[], float | None],
) -> Size:
    """Measure a prompt of the messages and the texts before them: system prompt, schema, tools.

    It is only estimated if it certainly takes at most ``estimate_below`` tokens (None: always), or more than
    ``estimate_above``. Otherwise it is counted, and ``scale()`` returns the factor of the count (see ``scale_of``).
    """
    reported, new, new_bytes = _latest_report(messages, sum(map(upper_bound, before)), target)
    bound, media = sizes(new, upper_bound)
    bound += new_bytes
    is_small = estimate_below is None or reported + bound + media <= estimate_below
    if is_small or (estimate_above is not None and bound > MAX_BYTES * estimate_above):
        return Size(reported + bound // BYTES + media, reported + bound + media, reported)
    counted = sum(map(count_message, new)) + _count_share(before, new_bytes)
    factor = scale()
    if factor is None:
        return Size(reported + counted, reported + counted, reported)
    scaled = round(_SCALE_MARGIN * factor * counted)
    return Size(reported + scaled, reported + max(scaled, counted), reported)


def _latest_report(messages: Sequence[Message], before_bytes: int, target: Target) -> tuple[int, list[Message], int]:
    """The tokens that the newest report under this compaction covers; the messages and bytes that it does not cover.

    Answers that parallel runs have saved before its question since were not sent with it.
    """
    for at, usage in _reports(messages, target):
        if messages[at].get("compaction") != target.compaction:
            continue
        size = sizes(messages[:at], upper_bound)[0] + before_bytes
        if size / MAX_BYTES > usage["prompt"]:  # the report is not of these messages
            break
        start = next((index for index in reversed(range(at)) if starts_turn(messages[index])), 0)
        asked_at = messages[start].get("timestamp") or ""
        late = [message for message in messages[:start] if (message.get("timestamp") or "") > asked_at]
        new_bytes = max(0, before_bytes - messages[at].get("prefix_bytes", before_bytes))
        return usage["prompt"] + _replayed_tokens(messages[at]), [*late, *messages[at + 1 :]], new_bytes
    return 0, list(messages), before_bytes


def scale_of(messages: Sequence[Message], before: Sequence[str], target: Target) -> float | None:
    """The ratio of the tokens that the model reports to those that gptsh counts; None without a usable report.

    ``messages`` are the whole session, and ``before`` the texts before them. Between two prompts under the same
    compaction and system prompt only known messages were added, however both begin: the difference is what those take.
    With a single report it is the whole prompt, if that was not compacted and has no media, whose tokens are a guess.
    """
    reports = [(at, usage["prompt"], _origin(messages[at])) for at, usage in _reports(messages, target)]
    for newer, prompt, origin in reports:
        ratio = None
        counted, end = 0, newer
        for older, earlier_prompt, earlier_origin in reports:
            if older >= newer or earlier_origin != origin:
                continue
            counted, end = counted + sum(map(count_message, messages[older:end])), older
            if counted > _MIN_SCALE_TOKENS:
                ratio = (prompt - earlier_prompt) / counted
            if counted > _ENOUGH_SCALE_TOKENS:
                break
        answer, has_media = messages[newer], any(sizes(messages[:newer], len)[1:])
        if ratio is None and not answer.get("compaction") and not has_media:
            sent_bytes = answer.get("prefix_bytes", sum(map(upper_bound, before)))
            counted = sum(map(count_message, messages[:newer])) + _count_share(before, sent_bytes)
            ratio = prompt / counted if counted > _MIN_SCALE_TOKENS else None
        # A ratio far outside the limits means that the reports are not of these messages.
        if ratio is not None and _MIN_SCALE / 2 <= ratio <= 2 * _MAX_SCALE:
            return min(max(ratio, _MIN_SCALE), _MAX_SCALE)
    return None


def _origin(answer: Message) -> tuple[str | None, int | None]:
    """What prompts must have in common to begin alike: the compaction, and the size of system prompt and tools."""
    return answer.get("compaction"), answer.get("prefix_bytes")


def _count_share(texts: Sequence[str], size: int) -> int:
    """Count the tokens of ``size`` bytes of these texts."""
    return math.ceil(sum(map(count_text, texts)) * size / max(1, sum(map(upper_bound, texts)))) if size else 0


def was_truncated(prompt_tokens: int, size: Size, messages: Sequence[Message]) -> bool:
    """Whether the server must have truncated the prompt silently, as it reports so few ``prompt_tokens``.

    ``messages`` are those that were sent, ``size`` their expected size.
    """
    if size.tokens <= _TRUNCATED_FROM:
        return False
    if size.reported:
        return prompt_tokens < _MIN_SHARE_REPORTED * size.reported
    texts = [text for message in messages for text in texts_of(message)]
    if prompt_tokens > sum(map(upper_bound, texts)) / BYTES:
        return False
    return prompt_tokens < _MIN_SHARE_COUNTED * sum(map(count_text, texts))


def _reports(messages: Sequence[Message], target: Target) -> Iterator[tuple[int, dict[str, int]]]:
    """The answers of the target model that report prompt and completion tokens: index and usage, newest first."""
    for at in reversed(range(len(messages))):
        answer = messages[at]
        is_of_target = target.model is not None and is_answer_of(answer, target.provider or "", target.model)
        if is_of_target and not answer.get("server_truncated") and (usage := _usage(answer)):
            yield at, usage


def _usage(message: Message) -> dict[str, int]:
    """The plausible figures of a message's usage; empty without prompt and completion."""
    usage: Any = message.get("usage")
    figures = usage if isinstance(usage, dict) else {}
    valid = {key: size for key in figures if (size := token_count(figures[key])) is not None and size < _ABSURD}
    return valid if valid.get("prompt") and "completion" in valid else {}


def _replayed_tokens(message: Message) -> int:
    """Tokens of an answer that are sent back with the next question, which excludes plain reasoning."""
    usage = _usage(message)
    completion, reasoning = usage["completion"], usage.get("reasoning_tokens", 0)
    if replayed(message):
        return completion
    if 0 < reasoning < completion:
        return completion - reasoning
    if reasoning or message.get("thinking") or message.get("replay"):  # the reported figures do not separate it
        return min(completion, sizes([message], upper_bound)[0] // 2)
    return completion
