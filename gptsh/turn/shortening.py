"""Compact a session that outgrew its window, or truncate attachments with ``--truncate``."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gptsh.context import sendable
from gptsh.context.tokens import Prompt
from gptsh.core import snapshots, turns
from gptsh.core.document import Document
from gptsh.messages import Message, Part
from gptsh.render.session import ChoiceReport, omitted_words
from gptsh.terminal import stdio
from gptsh.turn.session import Session

if TYPE_CHECKING:
    from gptsh.core.document_types import Compaction, Cuts

# ---- compacting
#
# Save a compaction: with a snapshot of the session before it, notes of what it saves and leaves
# out, its event.


def save_compaction(
    session: Session, prompt: Prompt, messages: Sequence[Message], keep_snapshots: int, *, fsync: bool
) -> None:
    """Save a new compaction of these messages, and print a note of its size and of what it leaves out newly."""
    doc = session.doc
    record: Compaction = prompt.compaction or {}
    previous: Compaction = doc["context"]["compaction"] or {}
    end = _snapshot_end(doc, messages)
    events: list[snapshots.SessionEvent] = []
    name = snapshots.automatic_at(doc, end)
    if not name and end != 0:  # one snapshot a turn, though it may compact again; none before the first question
        events = snapshots.record(doc, keep_snapshots, tokens=record.get("before"), end=end)
        name = doc["context"]["snapshots"][-1].get("name") if events else None
    doc["context"]["compaction"] = record
    is_saved = session.save(*events, fsync=fsync)
    report = f"~{record['before']:,} tokens of the session are sent as ~{record['after']:,} ({record['strategy']})"
    stdio.note(f"{report}; snapshot {doc['id']}@{name}" if name and is_saved else report)
    left_out = omitted_words(record["omitted"])
    if left_out and record["omitted"] != previous.get("omitted"):
        stdio.note(f"left out, since the session outgrew the window: {left_out}")
    session.emit("compressed", **compaction_report(prompt))


def _snapshot_end(doc: Document, messages: Sequence[Message]) -> int | None:
    """Before which message the snapshot ends: before an open question, which a user who returns to it asks again.

    None: at the end of the session.
    """
    if not turns.unfinished(messages):
        return None
    question = messages[turns.question_index(messages)].get("id")
    return next((at for at, message in enumerate(doc["messages"]) if message["id"] == question), None)


def compaction_report(prompt: Prompt) -> ChoiceReport:
    """The result of a compaction, for events and JSON."""
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

_QUESTION_SHARE = 0.6  # of the prompt, for a question that is cut; the rest is for the earlier messages

AllCuts = Mapping[str, "Cuts"]  # by message id

# (messages, cuts) -> the tokens of a prompt of these messages, cut so
Measure = Callable[[Sequence[Message], AllCuts], int]


class Truncation:
    """Cuts texts of one session at one ``end``: head, tail or middle.

    ``measure`` returns the tokens of the model, ``scale`` of which are one token as gptsh counts.
    """

    def __init__(self, session: Session, end: str, measure: Measure, scale: float) -> None:
        self._session, self._end, self._measure, self._scale = session, end, measure, scale

    def cut_to_fit(self, earlier: Sequence[Message], question: Sequence[Message], limit: int, mark: int) -> None:
        """Cut texts until all messages take ``limit`` tokens or no text is left.

        The question is cut first: the earlier messages keep their share of the prompt, or their size if that is
        smaller. Then their texts are cut if that makes a compaction unnecessary, which begins at the ``mark``.
        """
        if not earlier:
            cuts, _ = self._find_cuts(question, question, limit)
            self._record(question, cuts)
            return
        everything = [*earlier, *question]
        earlier_size = self._size(everything) - self._size(question)
        question_limit = max(round(_QUESTION_SHARE * limit), mark - earlier_size)
        cuts, _ = self._find_cuts(question, question, question_limit)
        self._record(question, cuts)
        if self._session.doc["context"]["compaction"] is None and self._size(everything) > mark:
            cuts, size = self._find_cuts(earlier, everything, mark)
            if size <= mark:
                self._record(earlier, cuts)

    def _find_cuts(self, cuttable: Sequence[Message], sent: Sequence[Message], limit: int) -> tuple[AllCuts, int]:
        """Find the cuts of ``cuttable`` with which ``sent``, of which they are a part, takes ``limit`` tokens.

        Return them and the tokens that it takes with them: more if hardly anything of a text would remain.
        """
        other_cuts = self._cuts_outside(cuttable)
        cut_all = {
            message["id"]: [[at, 0, len(part["text"])] for at, part in sendable.attached_texts(message).items()]
            for message in cuttable
        }
        rest = self._measure(sent, {**other_cuts, **cut_all})  # what remains when all text is cut
        size = self._measure(sent, other_cuts)
        cuts = sendable.truncate(cuttable, int((limit - rest) / self._scale), self._end) if size > limit else None
        if cuts is None:
            return {}, size
        return cuts, self._measure(sent, {**other_cuts, **cuts})

    def _record(self, cuttable: Sequence[Message], cuts: AllCuts) -> None:
        """Record the cuts of these messages in the session, in place of their earlier ones; print a note for each."""
        context = self._session.doc["context"]
        self._session.doc["context"] = {**context, "cuts": {**self._cuts_outside(cuttable), **cuts}}
        for message in cuttable:
            texts = sendable.attached_texts(message)
            for place, start, stop in cuts.get(message["id"], ()):
                self._note(texts[place], stop - start)

    def _note(self, text: Part, amount: int) -> None:
        cut = f"{amount:,} of {len(text['text']):,} characters cut from its {self._end}"
        stdio.note(f"{text['source']}: {cut}")

    def _size(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt of these messages with the cuts that the session has."""
        return self._measure(messages, self._session.doc["context"]["cuts"])

    def _cuts_outside(self, cuttable: Sequence[Message]) -> "dict[str, Cuts]":
        """The session's cuts of other messages than these."""
        ids = {message["id"] for message in cuttable}
        return {ident: cuts for ident, cuts in self._session.doc["context"]["cuts"].items() if ident not in ids}
