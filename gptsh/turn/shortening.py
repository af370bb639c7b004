"""Compact a session that outgrew its window, or truncate attachments with ``--truncate``."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gptsh.context.cuts import truncate
from gptsh.context.tokens import Prompt
from gptsh.core import snapshots, turns
from gptsh.core.document import Document
from gptsh.messages import Message, parts_of
from gptsh.render.outline import ChoiceReport, omitted_words
from gptsh.terminal import stdio
from gptsh.turn.session import Session

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction, Cuts

# ---- compacting
#
# Save a compaction: with a snapshot of the session before it, notes of what it saves and leaves
# out, its event.


def save_compaction(
    session: Session,
    prompt: Prompt,
    messages: Sequence[Message],
    keep_snapshots: int,
    *,
    fsync: bool,
) -> None:
    """Save a new compaction of these messages. Notes name its size and what it leaves out newly."""
    doc = session.doc
    context = doc["context"]
    record: Compaction = prompt.compaction or {}
    previous: Compaction = context["compaction"] or {}
    end = _snapshot_end(doc, messages)
    name = snapshots.automatic_at(doc, end)
    events: list[snapshots.SessionEvent] = []
    # One a turn, though it may compact again; none before the first question.
    if not name and end != 0:
        events = snapshots.record(doc, keep_snapshots, tokens=record["before"], end=end)
        name = doc["context"]["snapshots"][-1].get("name") if events else None
    doc["context"]["compaction"] = record
    is_saved = session.save(*events, fsync=fsync)
    sizes = f"~{record['before']:,} tokens of the session are sent as ~{record['after']:,}"
    snapshot = f"; snapshot {doc['id']}@{name}" if name and is_saved else ""
    stdio.note(f"{sizes} ({record['strategy']}){snapshot}")
    left_out = omitted_words(record["omitted"])
    if left_out and record["omitted"] != previous.get("omitted"):
        stdio.note(f"left out, since the session outgrew the window: {left_out}")
    session.emit("compressed", **compaction_report(prompt))


def _snapshot_end(doc: Document, messages: Sequence[Message]) -> int | None:
    """Before which message the snapshot ends: before an open question.

    A user who returns to it asks that again. None: at the end of the session.
    """
    if not turns.unfinished(messages):
        return None
    question = messages[turns.question_index(messages)]["id"]
    ids = [message["id"] for message in doc["messages"]]
    return ids.index(question) if question in ids else None


def compaction_report(prompt: Prompt) -> ChoiceReport:
    """Return the result of a compaction, for events and JSON."""
    record: Compaction = prompt.compaction or {}
    return {
        "strategy": prompt.strategy,
        "reason": record.get("reason"),
        "before": record.get("before"),
        "after": record.get("after"),
        "included": prompt.included,
        "summarized": prompt.summarized,
        "left_out": prompt.left_out,
        "omitted": prompt.omitted,
    }


# ---- truncation
#
# ``--truncate``: cut piped and attached text until the prompt fits, and record in the session what
# was cut.

# Of the prompt, for a question that is cut; the rest is for the earlier messages.
_QUESTION_SHARE = 0.6

AllCuts = Mapping[str, "Cuts"]  # by message id

# (messages, cuts) -> the prompt of these messages, cut so
Plan = Callable[[Sequence[Message], AllCuts], Prompt]


class Truncation:
    """Cuts texts of one session at one ``end``: head, tail or middle.

    ``plan`` makes a prompt, ``scale`` of whose tokens are one token as gptsh counts.
    """

    def __init__(self, session: Session, end: str, plan: Plan, scale: float) -> None:
        self._session = session
        self._end = end
        self._plan = plan
        self._scale = scale

    def cut_to_fit(
        self,
        earlier: Sequence[Message],
        question: Sequence[Message],
        limit: int,
        threshold: int,
    ) -> None:
        """Cut texts until all messages take ``limit`` tokens or no text is left.

        The question is cut first: the earlier messages keep their share of the prompt, or their
        size if that is smaller. Then their texts are cut if no compaction is needed then, which
        begins at the ``threshold``.
        """
        everything = [*earlier, *question]
        if earlier:
            earlier_size = self._size(everything) - self._size(question)
            limit = max(round(_QUESTION_SHARE * limit), threshold - earlier_size)
        self._cut(question, question, limit, must_reach=False)
        if earlier and self._session.doc["context"]["compaction"] is None:
            self._cut(earlier, everything, threshold, must_reach=True)

    def _cut(
        self, texts_of: Sequence[Message], sent: Sequence[Message], limit: int, *, must_reach: bool
    ) -> None:
        """Cut texts of some messages so that ``sent``, of which they are a part, takes ``limit``.

        The cuts take the place of their earlier ones; there is a note for each. ``must_reach``:
        cut nothing if even then ``sent`` takes more.
        """
        ids = {message["id"] for message in texts_of}
        context = self._session.doc["context"]
        before = context["cuts"]
        others = {ident: cuts for ident, cuts in before.items() if ident not in ids}
        excess = self._plan(sent, others).tokens - limit
        if must_reach and self._size(sent) <= limit:
            return
        cuts = None
        if excess > 0:
            cuts = truncate(texts_of, math.ceil(excess / self._scale), self._end)
        if must_reach and (cuts is None or self._plan(sent, {**others, **cuts}).tokens > limit):
            return
        self._session.doc["context"] = {**context, "cuts": {**others, **(cuts or {})}}
        for message in texts_of:
            parts = parts_of(message)
            for at, start, stop in (cuts or {}).get(message["id"], ()):
                source = parts[at]["source"]
                text = parts[at]["text"]
                cut = f"{stop - start:,} of {len(text):,} characters cut from its {self._end}"
                stdio.note(f"{source}: {cut}")

    def _size(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt of these messages with the cuts that the session has."""
        return self._plan(messages, self._session.doc["context"]["cuts"]).tokens
