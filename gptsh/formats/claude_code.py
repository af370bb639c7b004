"""Claude Code's sessions: lines of JSON, one for each block of an answer, and among them agents beside the main one.

The lines of one response become one message, its usage counted once. Of a conversation that was rewound only the
branch comes along that was gone on with. Records that nobody said (titles, progress) are no messages.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from gptsh.formats.conversation import NO_MESSAGE, Conversation, answer_fields, read_each, without
from gptsh.formats.source import Line, Results, Source
from gptsh.jsonio import as_dict, as_dicts
from gptsh.messages import token_count

NAME = "claude-code"
IGNORED_PATHS = r"/tool-results/|/sessions-index\.json$|/subagents/agent-[^/]+\.meta\.json$"
# Records without an id of their own by which a file is recognised, with a key that each has.
_RECORDS = {"summary": "leafUuid", "custom-title": "customTitle", "ai-title": "aiTitle",
            "file-history-snapshot": "snapshot", "queue-operation": "operation"}  # fmt: skip
_SPOKEN = ("user", "assistant")
_TITLES = ("customTitle", "aiTitle", "summary")  # the first that there is; of several of a kind the last
_FLAGS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")
_COMPACTED = "compact_boundary"
_SYNTHETIC = "<synthetic>"  # the model of what no model said


@dataclass(eq=False)
class _Thread:
    """The lines of the user and one agent: the main one (None), or one that it sent off."""

    agent: str | None
    session: str = ""
    lines: list[Line] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # of lines, by their uuid
    titles: dict[str, str] = field(default_factory=dict)


def read(source: Source) -> Results | None:
    """The sessions of a file: the main one, and each agent that it sent off. None where it is another tool's."""
    if not any(_is_ours(value) for value in source.first):
        return None
    return chain(source.broken, read_each(source, lambda thread: _conversation(source, thread), _threads(source)))


def _is_ours(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and ({"uuid", "sessionId"} <= value.keys() or _RECORDS.get(kind) in value)


def _threads(source: Source) -> Iterable[_Thread]:
    """The lines by who speaks, in their order, each uuid once.

    A session that was continued in another file begins there with copies, some under the id of the old one: a line
    belongs to the thread of the line that it follows.
    """
    threads: dict[tuple[str, str | None], _Thread] = {}  # by session and agent
    by_line: dict[str, _Thread] = {}
    for line in source.lines:
        value = line.value
        ident, parent, session = (str(value.get(key) or "") for key in ("uuid", "parentUuid", "sessionId"))
        if not ident and value.get("type") not in _SPOKEN:
            continue
        thread = by_line.get(parent)
        agent = str(value.get("agentId") or (thread and thread.agent) or ident) if value.get("isSidechain") else None
        if thread is None or thread.agent != agent:
            thread = threads.get((session, agent)) or _Thread(agent)
        threads[session, agent] = thread
        thread.session = session
        if ident not in thread.places:
            thread.lines.append(line)
        if ident:
            by_line[ident] = thread
            thread.places.setdefault(ident, len(thread.lines) - 1)
    for value in (line.value for line in source.lines if "uuid" not in line.value):  # some stand in front
        named = threads.get((str(value.get("sessionId")), None)) or by_line.get(str(value.get("leafUuid")))
        if named and named.agent is None:
            named.titles |= {key: value[key] for key in _TITLES if isinstance(value.get(key), str)}
    return dict.fromkeys(threads.values())


def _conversation(source: Source, thread: _Thread) -> Conversation:
    first = thread.lines[0].value
    session = Conversation(
        source, NAME, thread.session or str(first.get("uuid")), provider="anthropic", cwd=first.get("cwd")
    )
    session.title = next((thread.titles[key] for key in _TITLES if key in thread.titles), None)
    session.extra = {key: first[key] for key in ("gitBranch", "version") if isinstance(first.get(key), str)}
    if thread.agent is not None:
        session.extra |= {"session": thread.session, "agent": thread.agent}
        session.key += f"/{thread.agent}"
    answers: dict[str, dict[str, Any]] = {}  # by the provider's id of a response
    said: list[tuple[dict[str, Any], Line]] = []
    for line in _branch(thread):
        try:
            message = _message(line.value)
        except (AttributeError, KeyError, TypeError, ValueError):  # of another shape than Claude Code writes
            session.skipped.append(source.skipped(NO_MESSAGE, line.number))
            continue
        if message is None:
            continue
        if answer := answers.get(message.get("response_id", "")):  # one more line of it
            answer["content"] += message["content"]
            used, before = (token_count(as_dict(one.get("usage")).get("completion")) for one in (message, answer))
            later = without(message, "id", "timestamp", "content", *(["usage"] if (used or 0) < (before or 0) else []))
            answer |= later
            continue
        if "response_id" in message:
            answers[message["response_id"]] = message
        said.append((message, line))
    for message, line in said:
        session.add_message(message, line.number)
        session.model = message.get("model", session.model)
    return session


def _branch(thread: _Thread) -> list[Line]:
    """The lines that lead to the last one that was said, in their order; where a lead is torn, the line before.

    Beside them stand all lines of their answers, and all results of their calls: those of calls at once fork.
    """
    values = [line.value for line in thread.lines]
    at = max((place for place, value in enumerate(values) if value.get("type") in _SPOKEN), default=-1)
    led: set[int] = set()
    while at >= 0 and at not in led:
        led.add(at)
        parent = values[at].get("parentUuid") or values[at].get("logicalParentUuid")
        is_first = "parentUuid" in values[at] and not parent
        if is_first and not values[at].get("isCompactSummary") and values[at].get("subtype") != _COMPACTED:
            break
        at = thread.places.get(str(parent), at - 1)
    messages = [as_dict(value.get("message")) for value in values]
    answers = {str(messages[at].get("id")) for at in led if values[at].get("type") == "assistant"}
    led |= {at for at, message in enumerate(messages) if "id" in message and str(message["id"]) in answers}
    calls = {str(part.get("id")) for at in led for part in as_dicts(messages[at].get("content"))}
    for at, message in enumerate(messages):
        if any(str(part["tool_use_id"]) in calls for part in as_dicts(message.get("content")) if "tool_use_id" in part):
            led.add(at)
    return [thread.lines[at] for at in sorted(led)]


def _message(value: dict[str, Any]) -> dict[str, Any] | None:
    """What was said on a line; None where nothing was. A question that waited for an answer's end stands elsewhere."""
    said: Any = value.get("message")
    queued = as_dict(value.get("attachment"))
    if queued.get("type") == "queued_command":
        said = {"content": queued["prompt"]}
    elif value.get("type") not in _SPOKEN:
        if "role" in as_dict(said):
            raise ValueError("a message of an unknown type")
        return None
    content = said["content"]
    found = {"id": value.get("uuid"), "timestamp": value.get("timestamp"), "role": "user", "content": content}
    marks = {key: value[key] for key in _FLAGS if value.get(key)}
    if value["type"] == "assistant":
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        found |= {"role": "assistant", "content": [*parts], "provider": "anthropic", **answer_fields(said)}
        if isinstance(value.get("requestId"), str):
            found["request_id"] = value["requestId"]
        if found.get("model") == _SYNTHETIC:  # zeros, and no call that used them
            marks["model"] = _SYNTHETIC
            found = without(found, "model", "provider", "usage")
        if value.get("isApiErrorMessage") is True:
            found["finish_reason"] = "error"
    elif "toolUseResult" in value and isinstance(content, list):
        beside = {"tool_use_result": value["toolUseResult"]}
        found["content"] = [{**part, **beside} if part["type"] == "tool_result" else part for part in content]
    return found | ({"source": marks} if marks else {})
