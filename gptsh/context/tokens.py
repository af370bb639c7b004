"""Count or estimate tokens, and work out how many of them still fit into the window."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gptsh.config.settings import ContextRules
from gptsh.content.attachments import Media, media_of
from gptsh.core.turns import starts_of
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import (
    PROVIDER_FIELDS,
    REASONING_DETAILS,
    TAGGED,
    THOUGHT_SIGNATURES,
    Message,
    Request,
    Tool,
    is_answer_of,
    is_text,
    labelled_text,
    parts_of,
    token_count,
)

if TYPE_CHECKING:
    from tiktoken import Encoding

    from gptsh.core.document_types import Compaction, Omissions


# ---- tokens
#
# Count or estimate the tokens of a text, a message or media; cut a text to a number of tokens.
#
# No tokenizer makes more tokens than a text has bytes, so most runs need none. What that does not
# prove small is counted with the vocabulary in litellm's package.

MARK = "[…]"  # in place of omitted text
FRAMING = 8  # tokens around a message, and around a tool call in it
_CL100K = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"  # the file of cl100k_base in litellm's package
# For other tokenizers: times the count of cl100k, plus tokens per digit.
_MARGIN, _PER_DIGIT = 1.15, 0.5
_PIECE = 100_000  # characters that are counted at once
_MAX_PIECES = 100  # of a text that are counted
MAX_BYTES = 30  # per token, in text that people write
BYTES = 4  # per token, in an estimate without a tokenizer
_IMAGE_TOKENS = 1600  # what most providers count for a large image; also for media of unknown size
# Tokens for that many bytes: about a page; a second; a second of a video of 1 Mbit/s.
_MEDIA_RATES = {"document": (2000, 50_000), "audio": (32, 16_000), "video": (300, 125_000)}


# ---- texts


def upper_bound(text: str) -> int:
    """The most tokens that any tokenizer makes of a text: its bytes."""
    return len(text) if text.isascii() else _count_bytes(text)


@lru_cache(50_000)
def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


@lru_cache(50_000)
def count_text(text: str) -> int:
    """Count the tokens of a text, erring high:

    OpenAI's count plus a seventh and half a token per digit. It is counted piece by piece, since a
    list of all tokens takes ten times the memory of the text. Of a text longer than nearly any
    window, evenly spread pieces are counted.
    """
    encoding = _encoding()
    if encoding is None:
        return math.ceil(upper_bound(text) / 2)
    step = max(_PIECE, len(text) // _MAX_PIECES)
    counted = sum(
        len(encoding.encode_ordinary(text[at : at + _PIECE])) for at in range(0, len(text), step)
    )
    digits = sum(map(text.count, "0123456789"))
    return math.ceil(_MARGIN * counted * step / _PIECE + _PER_DIGIT * digits)


@cache
def _encoding() -> "Encoding | None":
    """The tokenizer; None if its vocabulary is missing, which tiktoken would download."""
    from importlib.util import find_spec

    spec = find_spec("litellm")
    folder = (
        Path(spec.origin or "").parent / "litellm_core_utils" / "tokenizers" if spec else Path()
    )
    if not (folder / _CL100K).is_file():
        return None
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    import tiktoken

    return tiktoken.get_encoding("cl100k_base")


def truncate_tokens(text: str, max_tokens: int, *, ends: bool = False) -> str:
    """Cut a text to ``max_tokens``: its head, or with ``ends`` both ends, and a mark.

    It is "" if not even that fits.
    """
    if upper_bound(text) <= max_tokens:
        return text
    shorter, length, size = text, len(text), count_text(text)
    while size > max_tokens:
        if not length:
            return ""
        length = min(length - 1, length * max(0, max_tokens) // size)
        head = 2 * length // 3 if ends else length
        end = text[len(text) - (length - head) :]
        shorter = f"{text[:head].rstrip()} {MARK} {end.lstrip()}".strip()
        size = count_text(shorter)
    return shorter


# ---- messages


def count_message(message: Message) -> int:
    """Count the tokens of a message as it is sent, with the reasoning sent back, erring high."""
    return sum(sizes([message], count_text))


def sizes(messages: Iterable[Message], count: Callable[[str], int]) -> tuple[int, int]:
    """The tokens of the messages' texts, by ``count``, and those of their media."""
    texts = media = 0
    for message in messages:
        parts = parts_of(message)
        texts += FRAMING * (1 + len(message.get("tool_calls") or ()) + len(parts))
        texts += sum(map(count, texts_of(message)))
        for part in parts:
            attachment = media_of(part)
            if attachment:
                media += count_media(attachment)
    return texts, media


def texts_of(message: Message) -> Iterator[str]:
    """Every text that is sent with a message."""
    for part in parts_of(message):
        if is_text(part):
            yield labelled_text(part)
        elif media := media_of(part):
            yield media.title or ""
        elif part.get("type") not in ("thinking", "redacted_thinking"):
            yield json.dumps(part, ensure_ascii=False)  # a part of an unknown type
    if message["role"] == "assistant":
        yield message.get("refusal") or ""
        for call in message.get("tool_calls") or ():
            yield from (str(call["function"].get(key, "")) for key in ("name", "arguments"))
        yield from (text for text in _replayed(message) if isinstance(text, str))


def _replayed(message: Message) -> Iterator[object]:
    """The reasoning that may be sent back: signed blocks, and what each API wants of ``replay``."""
    for block in as_dicts(message.get("thinking")):
        if block.get("signature") or block.get("type") != "thinking":
            yield block.get("thinking", block.get("data"))
    replay = as_dict(message.get("replay"))
    for detail in as_dicts(replay.get(REASONING_DETAILS)):
        yield from (detail.get(key) for key in ("text", "summary", "data"))
    # A token of encrypted reasoning takes seven characters or more; a tokenizer would count five.
    for item in as_dicts(replay.get("items")):
        yield str(item.get("encrypted_content") or "")[::5]
    for item in as_dicts(replay.get("parts")):
        yield str(item.get("thoughtSignature") or "")[::5]
    signatures = as_dict(replay.get(PROVIDER_FIELDS)).get(THOUGHT_SIGNATURES)
    yield from signatures if isinstance(signatures, list) else ()
    if message.get("tool_calls"):
        yield from (text for key, text in replay.items() if key != TAGGED)


def count_media(media: Media) -> int:
    """Estimate an image, document or recording at a flat rate, until a report replaces it.

    Providers differ threefold.
    """
    size = 3 * len(media.data) // 4 if isinstance(media.data, str) else 0  # base64
    tokens, unit = _MEDIA_RATES.get(media.kind, (0, 1))
    return math.ceil(size / unit) * tokens or _IMAGE_TOKENS


def estimate(messages: Sequence[Message]) -> int:
    """Estimate the tokens of messages without a tokenizer."""
    texts, media = sizes(messages, upper_bound)
    return texts // BYTES + media


def count_tools(tools: Sequence[Tool]) -> int:
    """Count the tokens of tool definitions as sent, erring high."""
    return sum(
        FRAMING + count_text(json.dumps(tool._asdict(), ensure_ascii=False)) for tool in tools
    )


# ---- budget
#
# How much fits. Code and pages use each word for this alone:
#
# window     what the model reads and writes in one request
# reserve    of the window: for the answer
# whole      what remains, for the prompt
# fixed      of the prompt: system prompt, schema, tool definitions
# limit      what remains, for the messages of the session; the pages call it the budget
# threshold  of the limit: a session that takes more is compacted (``compact_at``)
# room       of the limit: what a text, a summary, or the block of older messages may take


class Budget(NamedTuple):
    """How many tokens a prompt may have; None: unknown."""

    window: int | None
    reserve: int
    fixed: int
    whole: int | None = None
    limit: int | None = None
    threshold: int | None = None


# ---- prompt

FULL = "full"
# The strategies of a compaction.
PRUNED, SUMMARY, MINIMAL = "pruned-tools", "summary", "minimal"
# The reasons of a compaction: the user requested it (it applies whatever the settings are); the
# session outgrew the window; the server refused the prompt for its length.
ASKED, AUTO, REFUSED = "asked", "auto", "refused"
_NOTHING: "Omissions" = {"questions": [], "media": []}


class Prompt(NamedTuple):
    """What is sent of a session, and by which strategy.

    ``tokens`` is the estimate that decides, shown with a ``~``; ``at_most`` is rarely exceeded; a
    report of the provider covers ``reported`` of both. ``included``, ``summarized`` and
    ``left_out`` count the session's messages, the last one media, too. ``compaction`` is to be
    saved if ``is_new``.
    """

    request: Request
    budget: Budget
    strategy: str = FULL
    tokens: int = 0
    at_most: int = 0
    reported: int = 0
    fixed_bytes: int = 0  # of the texts beside the messages: later they show how much these grew
    included: int = 0
    summarized: int = 0
    left_out: int = 0
    omitted: "Omissions" = _NOTHING
    compaction: "Compaction | None" = None
    is_new: bool = False

    @property
    def message_tokens(self) -> int:
        """Tokens of the messages alone."""
        return max(0, self.tokens - self.budget.fixed)

    @property
    def fits(self) -> bool:
        """Whether the budget has room for it, or is unknown."""
        limit = self.budget.limit
        return limit is None or self.message_tokens <= limit


# ---- estimator
#
# The size of a prompt in tokens. The tokens reported with the newest answer, plus the bytes of
# that and of all newer text, are an upper bound. A prompt that this does not prove small is counted
# with the tokenizer, and scaled by what the model has reported for earlier prompts of the session.

_UNKNOWN_RESERVE = 1000  # tokens for the answer if the window is not known
_OLLAMA_MIN_WINDOW = 4096  # tokens of the smallest window that Ollama is asked for
# Limits of the scale that reports may give, and a margin for other text.
_MIN_SCALE, _MAX_SCALE, _SCALE_MARGIN = 0.3, 1.5, 1.05
_MIN_SCALE_TOKENS = 200  # a report on fewer is no basis for a scale
_ABSURD = 1e9  # tokens: no prompt has as many
# A server has truncated a prompt of more than _TRUNCATED_FROM tokens if it reports less than this
# share of the tokens that earlier reports predict, or of those that gptsh counts.
_TRUNCATED_FROM, _MIN_SHARE_REPORTED, _MIN_SHARE_COUNTED = 3000, 0.8, 0.4


class Estimator:
    """Estimates the prompts of one session for one ``model``; the owner of their budget.

    ``history`` returns the whole session as the model reads it; ``max_tokens`` is the length of the
    answer, if a parameter sets it.
    """

    def __init__(
        self,
        model: str,
        provider: str,
        rules: ContextRules,
        max_tokens: int | None,
        history: Callable[[], Sequence[Message]],
        *,
        is_ollama: bool,
    ) -> None:
        self.window: int | None = None
        self.max_tokens = max_tokens
        self.texts: Sequence[str] = ()  # beside the messages: system prompt, schema, tools
        self.counts = False  # from the first prompt on that is not certainly small
        self._model, self._provider, self._rules = model, provider, rules
        self._history = history
        self._is_ollama = is_ollama
        self._uses_reports = True  # those on earlier prompts of the session
        self._scale: float | None = None

    @property
    def budget(self) -> Budget:
        """What fits now."""
        window, reserve = self.window, self.max_tokens
        if reserve is None:
            share = self._rules.reserve
            reserve = _UNKNOWN_RESERVE if window is None else int(share * window)
        if self.counts:
            fixed = round(self.scale * sum(map(count_text, self.texts)))
        else:
            fixed = sum(map(upper_bound, self.texts)) // BYTES
        if window is None:
            return Budget(window, reserve, fixed)
        whole = max(0, window - reserve)
        limit = max(0, whole - fixed)
        return Budget(window, reserve, fixed, whole, limit, int(self._rules.compact_at * limit))

    @property
    def scale(self) -> float:
        """Tokens of the model for each that gptsh counts; 1 without a report."""
        if self._scale is None:
            ratio = self._reported_ratio() if self._uses_reports else None
            self._scale = 1.0 if ratio is None else _SCALE_MARGIN * ratio
        return self._scale

    def learn(self, actual: int, counted: int) -> None:
        """Scale by a prompt that the server refused as too long, whatever it reported before."""
        self.forget_reports()
        self._scale = _SCALE_MARGIN * max(1.0, actual / max(1, counted))

    def forget_reports(self) -> None:
        """Count without the reports on earlier prompts, which were of other texts."""
        self._uses_reports = False
        self.counts = True

    def estimated(self, draft: Prompt, messages: Sequence[Message]) -> Prompt:
        """The prompt that sends these messages, with its tokens.

        A prompt that is certainly below the threshold is not counted, nor for Ollama one below its
        smallest window.
        """
        fixed_bytes = sum(map(upper_bound, self.texts))
        compaction = draft.compaction["id"] if draft.compaction else None
        reported, new = self._latest_report(messages, compaction, fixed_bytes)
        texts = [] if reported else self.texts
        size, media = sizes(new, upper_bound)
        size += sum(map(upper_bound, texts))
        tokens = reported + size // BYTES + media
        at_most = reported + size + media
        limits = [self.budget.threshold, _OLLAMA_MIN_WINDOW if self._is_ollama else None]
        if any(limit is not None and at_most > limit for limit in limits):
            self.counts = True
        if self.counts:
            counted = sum(sizes(new, count_text)) + sum(map(count_text, texts))
            tokens = reported + round(self.scale * counted)
            at_most = max(tokens, reported + counted)
        return draft._replace(
            request=draft.request._replace(messages=[*messages]),
            budget=self.budget,
            tokens=tokens,
            at_most=at_most,
            reported=reported,
            fixed_bytes=fixed_bytes,
        )

    # ---- reports

    def _latest_report(
        self, messages: Sequence[Message], compaction: str | None, fixed_bytes: int
    ) -> tuple[int, Sequence[Message]]:
        """The tokens that the newest report on such a prompt covers, and the messages it does not.

        Answers that parallel runs have saved before its question since were not sent with it.
        """
        for at, prompt in self._reports(messages) if self._uses_reports else ():
            if _origin(messages[at]) != (compaction, fixed_bytes):
                continue
            size = sizes(messages[:at], upper_bound)[0] + fixed_bytes
            if size / MAX_BYTES > prompt:  # the report is not of these messages
                break
            start = max(starts_of(messages[:at]), default=0)
            asked_at = messages[start].get("timestamp") or ""
            late = [one for one in messages[:start] if (one.get("timestamp") or "") > asked_at]
            return prompt, [*late, *messages[at:]]
        return 0, messages

    def _reported_ratio(self) -> float | None:
        """The tokens that the model reports for each that gptsh counts; None if nothing tells.

        Between two prompts that begin alike only known messages were added: the difference is what
        those take. Else it is a whole prompt, if that was not compacted. Media tell nothing: their
        tokens are a guess.
        """
        messages = self._history()
        fixed_bytes = sum(map(upper_bound, self.texts))
        reports = [(at, tokens, _origin(messages[at])) for at, tokens in self._reports(messages)]
        for origin, group in groupby(reports, key=itemgetter(2)):
            (newest, tokens, _), *earlier = group
            spans = [(at, known, 0) for at, known, _ in earlier[-1:]]
            if origin == (None, fixed_bytes):
                spans.append((0, 0, sum(map(count_text, self.texts))))
            for start, known, fixed in spans:
                counted, media = sizes(messages[start:newest], count_text)
                ratio = (tokens - known) / (counted + fixed)
                # A ratio far outside the limits means that the reports are not of these messages.
                is_plausible = _MIN_SCALE / 2 <= ratio <= 2 * _MAX_SCALE
                if is_plausible and counted > _MIN_SCALE_TOKENS and not media:
                    return min(max(ratio, _MIN_SCALE), _MAX_SCALE)
        return None

    def _reports(self, messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
        """The answers of the model that report their prompt: index and tokens, newest first."""
        for at in reversed(range(len(messages))):
            answer = messages[at]
            if is_answer_of(answer, self._provider, self._model):
                prompt = token_count(as_dict(answer.get("usage")).get("prompt"))
                if prompt and prompt < _ABSURD and not answer.get("server_truncated"):
                    yield at, prompt


def _origin(answer: Message) -> tuple[str | None, int]:
    """What prompts have in common that begin alike: compaction, size of system prompt and tools."""
    return answer.get("compaction"), answer.get("prefix_bytes") or 0


def was_truncated(reported_tokens: int, prompt: Prompt) -> bool:
    """Whether the server has truncated the prompt silently, as it reports so few tokens."""
    if prompt.tokens <= _TRUNCATED_FROM:
        return False
    if prompt.reported:
        return reported_tokens < _MIN_SHARE_REPORTED * prompt.reported
    texts = [text for message in prompt.request.messages for text in texts_of(message)]
    if reported_tokens > sum(map(upper_bound, texts)) / BYTES:
        return False
    return reported_tokens < _MIN_SHARE_COUNTED * sum(map(count_text, texts))
