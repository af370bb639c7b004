"""Record in a session how it is shortened: its compaction, and what ``--truncate`` cuts."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gptsh.context.cuts import truncate
from gptsh.context.tokens import Prompt
from gptsh.core import snapshots, turns
from gptsh.messages import Message, parts_of
from gptsh.render.outline import ChoiceReport, omitted_words
from gptsh.terminal import stdio
from gptsh.turn.session import Session

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction, Cuts


# ---- compaction


def save_compaction(
    session: Session,
    prompt: Prompt,
    max_snapshots: int,
    *,
    fsync: bool,
) -> None:
    """Save a new compaction, with a snapshot of the session before it, and emit its event.

    The notes name the size of the compaction and what it newly leaves out.
    """
    doc = session.doc
    record: Compaction = prompt.compaction or {}
    previous: Compaction = doc["context"]["compaction"] or {}
    end = _snapshot_end(session)
    name = snapshots.automatic_at(doc, end)
    events: list[snapshots.SessionEvent] = []
    # One a turn, though it may compact again; none before the first question.
    if not name and end != 0:
        events = snapshots.record_automatic(
            doc,
            end,
            keep=max_snapshots,
            tokens=record["before"],
        )
        if events:
            name = doc["context"]["snapshots"][-1].get("name")
    doc["context"]["compaction"] = record
    is_saved = session.save(*events, fsync=fsync)

    sizes = f"session compacted from ~{record['before']:,} to ~{record['after']:,} tokens"
    snapshot = f"; snapshot {doc['id']}@{name}" if name and is_saved else ""
    stdio.note(f"{sizes} ({record['strategy']}){snapshot}")
    left_out = omitted_words(record["omitted"])
    if left_out and record["omitted"] != previous.get("omitted"):
        stdio.note(f"left out to fit the window: {left_out}")
    session.emit("compressed", **compaction_report(prompt))


def _snapshot_end(session: Session) -> int | None:
    """Return the index of an open question, before which the snapshot ends.

    A user who returns to the snapshot asks that question again. None means the end of the session.
    """
    messages = session.messages
    if not turns.unfinished(messages):
        return None
    question_id = messages[turns.question_index(messages)]["id"]
    ids = [message["id"] for message in session.doc["messages"]]
    return ids.index(question_id) if question_id in ids else None


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
        self._cut_question(question, limit)
        if earlier and self._session.doc["context"]["compaction"] is None:
            self._cut_earlier(earlier, everything, threshold)

    def _cut_question(self, question: Sequence[Message], limit: int) -> None:
        """Cut the texts of the question until it takes ``limit`` tokens or no text is left."""
        self._replace_cuts(question, self._find_cuts(question, question, limit) or {})

    def _cut_earlier(
        self,
        earlier: Sequence[Message],
        everything: Sequence[Message],
        limit: int,
    ) -> None:
        """Cut texts of earlier messages if then all messages take ``limit`` tokens, else none."""
        if self._size(everything) <= limit:
            return
        cuts = self._find_cuts(earlier, everything, limit)
        if cuts is None:
            return
        all_cuts = {**self._cuts_of_others(earlier), **cuts}
        if self._plan(everything, all_cuts).tokens <= limit:
            self._replace_cuts(earlier, cuts)

    def _find_cuts(
        self,
        messages: Sequence[Message],
        sent: Sequence[Message],
        limit: int,
    ) -> AllCuts | None:
        """Find what to cut from the messages so that ``sent``, which has them, takes ``limit``.

        Return None if nothing has to be cut, or hardly anything of a text would remain.
        """
        excess = self._plan(sent, self._cuts_of_others(messages)).tokens - limit
        if excess <= 0:
            return None
        return truncate(messages, math.ceil(excess / self._scale), self._end)

    def _replace_cuts(self, messages: Sequence[Message], cuts: AllCuts) -> None:
        """Record these cuts of the messages in place of their earlier ones, with a note for each."""
        all_cuts = {**self._cuts_of_others(messages), **cuts}
        self._session.doc["context"] = {**self._session.doc["context"], "cuts": all_cuts}
        for message in messages:
            parts = parts_of(message)
            for index, start, stop in cuts.get(message["id"], ()):
                source = parts[index]["source"]
                length = len(parts[index]["text"])
                cut = f"{stop - start:,} of {length:,} characters cut from its {self._end}"
                stdio.note(f"{source}: {cut}")

    def _cuts_of_others(self, messages: Sequence[Message]) -> "dict[str, Cuts]":
        """Return the cuts that the session has of all messages but these."""
        ids = {message["id"] for message in messages}
        others = {}
        for message_id, cuts in self._session.doc["context"]["cuts"].items():
            if message_id not in ids:
                others[message_id] = cuts
        return others

    def _size(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a prompt of these messages with the cuts that the session has."""
        return self._plan(messages, self._session.doc["context"]["cuts"]).tokens
