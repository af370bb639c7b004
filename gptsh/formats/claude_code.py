"""Claude Code's sessions: lines of JSON, one for each block of an answer, and among them agents beside the main one.

The lines of one response become one message, its usage counted once. Records that nobody said (titles, progress,
snapshots of files, what the program attaches) are no messages; of them a session has its title.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gptsh.core.document import Document
from gptsh.formats import blocks
from gptsh.formats.draft import SOURCE, Draft
from gptsh.formats.source import Line, Reader, Source, Unread
from gptsh.jsonio import as_dict
from gptsh.messages import Message, parts_of, token_count

NAME = "claude-code"
_SPOKEN = ("user", "assistant")
# Records without an id of their own by which a file is told, with a key that each has.
_RECORDS = {
    "summary": "leafUuid",
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
    "file-history-snapshot": "snapshot",
    "queue-operation": "operation",
}
_TITLES = ("customTitle", "aiTitle", "summary")  # the first that there is; of several of a kind the last
_FLAGS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")
_SYNTHETIC = "<synthetic>"  # the model of what no model said
_ABOUT = ("cwd", "gitBranch", "version")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # a session's folder, beside its file
_AGENT_NOTES = re.compile(r"agent-.+\.meta\.json")


def _recognises(source: Source) -> bool:
    return _is_companion(source) or any(map(_is_ours, source.first))


def _is_companion(source: Source) -> bool:
    """Whether it only goes with sessions: their index, notes on an agent, a result that was too long for its line."""
    if source.path is None:
        return False
    folder, value = source.path.absolute().parent, source.json if source.path.suffix == ".json" else None
    if source.path.name == "sessions-index.json" and isinstance(value, dict):
        entries = value.get("entries")
        return isinstance(entries, list) and all("sessionId" in as_dict(item) for item in entries)
    if folder.name == "subagents" and _AGENT_NOTES.fullmatch(source.path.name):
        return isinstance(value, dict) and isinstance(value.get("agentType"), str)
    return folder.name == "tool-results" and _UUID.fullmatch(folder.parent.name) is not None


def _is_ours(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    return {"uuid", "sessionId"} <= value.keys() or (kind in _RECORDS and _RECORDS[kind] in value)


def _read(source: Source) -> Iterator[Document | Unread]:
    if _is_companion(source):
        return
    file = _File(source)
    yield from file.unread
    for thread in file.threads:
        yield from thread.draft(source).results()


READER = Reader(NAME, _recognises, _read)


@dataclass
class _Said:
    """A message as ``blocks.take`` wants it, the line on which it begins, and what stands beside its results."""

    message: dict[str, Any]
    line: int
    beside: Any = None


@dataclass
class _Thread:
    """What the user and one agent said: the main one (None), or one that it sent off."""

    agent: str | None = None
    session: str = ""
    said: list[_Said] = field(default_factory=list)
    answers: dict[str, _Said] = field(default_factory=dict)  # by the provider's id of a response
    copies: dict[str, str] = field(default_factory=dict)  # the lines that were taken, by their id
    about: dict[str, Any] = field(default_factory=dict)
    titles: dict[str, Any] = field(default_factory=dict)

    def draft(self, source: Source) -> Draft:
        """The session of it."""
        key = self.session or (str(self.said[0].message["id"]) if self.said else "")
        kept = {key: self.about[key] for key in _ABOUT[1:] if isinstance(self.about.get(key), str)}
        if self.agent is not None:
            kept, key = {**kept, "session": key, "agent": self.agent}, f"{key}/{self.agent}"
        models = [one.message["model"] for one in self.said if "model" in one.message]
        draft = Draft(source, NAME, key, provider="anthropic", cwd=self.about.get("cwd"), kept=kept)
        draft.model = models[-1] if models else None
        draft.title = next((self.titles[key] for key in _TITLES if key in self.titles), None)
        for one in self.said:
            blocks.take(draft, one.message, one.line, one.beside)
        return draft


class _File:
    """The lines of a file, sorted by who spoke. Their order is kept; whom one follows is its ``parent`` alone."""

    def __init__(self, source: Source) -> None:
        self.unread = list(source.broken)
        self.threads: list[_Thread] = []
        self._source = source
        self._of: dict[str, _Thread] = {}  # by id of a line
        self._named: dict[tuple[str, str | None], _Thread] = {}  # by session and agent
        self._ids: dict[str, Any] = {}  # by id of a line: the message that it is part of, else the one that it follows
        for line in source.lines:
            self._take(line, _message_of(line.value))
        for line in source.lines:  # some stand in front of what they name
            if not isinstance(line.value.get("uuid"), str):
                self._name(line.value)

    def _name(self, record: dict[str, Any]) -> None:
        """Give a title to the session that it names, or whose line it names."""
        session, leaf = record.get("sessionId"), record.get("leafUuid")
        titled = self._named.get((session, None)) if isinstance(session, str) else None
        if titled is None and isinstance(leaf, str):
            titled = self._of.get(leaf)
        if titled and titled.agent is None:
            titled.titles |= {key: record[key] for key in _TITLES if isinstance(record.get(key), str)}

    def _take(self, line: Line, message: object) -> None:
        value, ident = line.value, line.value.get("uuid")
        if message is None and not isinstance(ident, str):
            return
        thread = self._thread(value)
        parent = value.get("parentUuid") or value.get("logicalParentUuid")
        parent = self._ids.get(parent, parent) if isinstance(parent, str) else None
        is_copy = isinstance(ident, str) and thread.copies.get(ident) == line.raw
        if isinstance(ident, str):
            self._of[ident], thread.copies[ident] = thread, line.raw
            self._ids.setdefault(ident, parent)
        if message is None or is_copy:
            return
        if not isinstance(message, dict) or not blocks.is_sound(message.get("content")):
            self.unread.append(self._source.unread("no message that can be read", line.number))
            return
        belongs = _say(thread, line, message, parent)
        if isinstance(ident, str):
            self._ids[ident] = belongs

    def _thread(self, value: dict[str, Any]) -> _Thread:
        """Whose a line is: its agent's, that of the line that it follows, else that of its session.

        A session that was gone on with in another file begins there with copies, some under the id of the old one.
        """
        session, parent, agent = value.get("sessionId"), value.get("parentUuid"), value.get("agentId")
        session = session if isinstance(session, str) else ""
        followed = self._of.get(parent) if isinstance(parent, str) else None
        if value.get("isSidechain") is not True:
            agent = None
        elif not isinstance(agent, str):
            agent = followed.agent if followed and followed.agent else str(value.get("uuid"))
        if followed is None or followed.agent != agent:
            followed = self._named.get((session, agent))
        if followed is None:
            followed = _Thread(agent)
            self.threads.append(followed)
        self._named[session, agent] = followed
        followed.session = session or followed.session
        followed.about = {**{key: value[key] for key in _ABOUT if key in value}, **followed.about}
        return followed


def _message_of(value: dict[str, Any]) -> object:
    """What was said on a line; None where nothing was. A question that waited for an answer's end stands elsewhere."""
    if value.get("type") in _SPOKEN:
        return value.get("message", ())
    queued = as_dict(value.get("attachment"))
    if queued.get("type") == "queued_command" and "prompt" in queued:
        return {"content": queued["prompt"]}
    said = value.get("message")
    return () if isinstance(said, dict) and "role" in said else None


def _say(thread: _Thread, line: Line, message: dict[str, Any], parent: object) -> Any:
    """Add what a line says to a thread; the id of the message that it is part of."""
    value, response = line.value, message.get("id")
    is_answer = value.get("type") == "assistant"
    told = _told(value, message) if is_answer else {}
    if is_answer and isinstance(response, str) and response in thread.answers:
        return _go_on(thread.answers[response].message, told, value, message)
    new = {"role": "assistant" if is_answer else "user", "content": message.get("content"), "parent": parent, **told}
    new |= {"id": value.get("uuid"), "timestamp": value.get("timestamp")}
    if isinstance(new["content"], list):
        new["content"] = list(new["content"])  # it grows by the lines that belong to it
    if said := {key: value[key] for key in _FLAGS if value.get(key)} | _unmade(message):
        new[SOURCE] = said
    thread.said.append(_Said(new, line.number, value.get("toolUseResult")))
    if is_answer and isinstance(response, str):
        thread.answers[response] = thread.said[-1]
    return new["id"]


def _told(value: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer says of itself."""
    found = {"provider": "anthropic", **blocks.told(message)}
    if isinstance(value.get("requestId"), str):
        found["request_id"] = value["requestId"]
    if found.get("model") == _SYNTHETIC:
        del found["model"], found["provider"]
        found.pop("usage", None)  # zeros, and no call that used them
    if value.get("isApiErrorMessage") is True:
        found["finish_reason"] = "error"
    return found


def _unmade(message: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": _SYNTHETIC} if message.get("model") == _SYNTHETIC else {}


def _go_on(answer: dict[str, Any], told: dict[str, Any], value: Mapping[str, Any], message: Mapping[str, Any]) -> Any:
    """Add a further line of a response: its blocks, why it ended, and its usage where that is the later count."""
    more: Message = {"role": "assistant", "content": message.get("content")}
    if not isinstance(answer["content"], list):
        answer["content"] = parts_of({"role": "assistant", "content": answer["content"]})
    answer["content"] += parts_of(more)
    if _written(told) < _written(answer):
        told.pop("usage", None)
    answer |= told
    lines = answer.setdefault(SOURCE, {}).setdefault("lines", [])
    lines.append({key: value[key] for key in ("uuid", "timestamp") if key in value})
    return answer["id"]


def _written(answer: Mapping[str, Any]) -> int:
    """Tokens of an answer; -1 where they are not known."""
    count = token_count(as_dict(answer.get("usage")).get("completion"))
    return -1 if count is None else count
