"""Import Claude Code's sessions (``~/.claude``), with their subagents and branches.

The lines of one response become one message, with its usage counted once. Of a conversation that
was rewound, only the branch that was continued is read. Other records (titles, progress) are not
messages.
"""

from dataclasses import dataclass, field

from gptsh.formats.source import (
    BAD_MESSAGE,
    MALFORMED,
    Conversation,
    ForeignMessage,
    Line,
    Results,
    Source,
    answer_fields,
    not_empty,
    with_raw,
    without,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str
from gptsh.messages import token_count

NAME = "claude-code"
IGNORED_PATHS = r"/tool-results/|/sessions-index\.json$|/subagents/agent-[^/]+\.meta\.json$"
# Records without an id by which a file is recognised, and a key that each has.
_RECORDS = {
    "summary": "leafUuid",
    "custom-title": "customTitle",
    "ai-title": "aiTitle",
    "file-history-snapshot": "snapshot",
    "queue-operation": "operation",
}
_MESSAGE_TYPES = ("user", "assistant")
# In order of preference; of several of a kind, the last one counts.
_TITLES = ("customTitle", "aiTitle", "summary")
_FLAGS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")
_COMPACTED = "compact_boundary"
_SYNTHETIC = "<synthetic>"  # the model of an answer that Claude Code wrote itself


def read(source: Source) -> Results | None:
    """Return the sessions in a file, one for each agent. None for another tool's file."""
    return _sessions(source) if any(map(_is_record, source.first)) else None


def _is_record(value: JsonObject) -> bool:
    """Return whether an object is a record of Claude Code."""
    record_type = as_str(value.get("type"))
    if _RECORDS.get(record_type) in value:
        return True
    return record_type != "" and {"uuid", "sessionId"} <= value.keys()


def _sessions(source: Source) -> Results:
    yield from source.bad_lines
    threads = _Threads()
    for line in source.lines:
        threads.add_line(line)
    for line in source.lines:  # some titles precede their thread
        threads.add_title(line.value)
    for thread in threads.in_order():
        yield from _conversation(source, thread).results()


# ---- threads


@dataclass(eq=False)
class _Thread:
    """The lines of a conversation with one agent: the main agent (None) or a subagent."""

    agent: str | None
    session: str = ""
    lines: list[Line] = field(default_factory=list)
    indexes: dict[str, int] = field(default_factory=dict)  # uuid of a line: its index in ``lines``
    titles: dict[str, str] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Add a line, unless it is there."""
        uuid = as_str(line.value.get("uuid"))
        if uuid in self.indexes:
            return
        if uuid:
            self.indexes[uuid] = len(self.lines)
        self.lines.append(line)


class _Threads:
    """The threads of a file.

    A session that was continued in another file begins there with copies of lines, some with the
    old session's id. So a line belongs to the thread of its parent line.
    """

    def __init__(self) -> None:
        self._by_agent: dict[tuple[str, str | None], _Thread] = {}  # by session and agent
        self._by_line: dict[str, _Thread] = {}  # by the uuids of their lines

    def in_order(self) -> list[_Thread]:
        """Return the threads, each once."""
        return list(dict.fromkeys(self._by_agent.values()))

    def add_line(self, line: Line) -> None:
        """Add a record to the thread of its agent. One without a uuid is added if a message."""
        value = line.value
        uuid = as_str(value.get("uuid"))
        if not uuid and value.get("type") not in _MESSAGE_TYPES:
            return
        session = as_str(value.get("sessionId"))
        thread = self._by_line.get(as_str(value.get("parentUuid")))
        agent = None
        if value.get("isSidechain"):
            parent_agent = thread.agent if thread else None
            agent = as_str(value.get("agentId")) or parent_agent or uuid
        if thread is None or thread.agent != agent:
            thread = self._by_agent.get((session, agent)) or _Thread(agent)
        self._by_agent[session, agent] = thread
        thread.session = session
        if uuid and uuid not in thread.indexes:
            self._by_line[uuid] = thread
        thread.add(line)

    def add_title(self, value: JsonObject) -> None:
        """Give the main agent's thread the title in a record, if it has one."""
        if "uuid" in value:
            return
        main_agent = (as_str(value.get("sessionId")), None)
        leaf = as_str(value.get("leafUuid"))
        thread = self._by_agent.get(main_agent) or self._by_line.get(leaf)
        if thread is None or thread.agent is not None:
            return
        for key in _TITLES:
            if isinstance(value.get(key), str):
                thread.titles[key] = value[key]


def _conversation(source: Source, thread: _Thread) -> Conversation:
    """Return the session of a thread, with what its first line says of the whole."""
    first = thread.lines[0].value
    key = thread.session or as_str(first.get("uuid"))
    session = Conversation(source, NAME, key, provider="anthropic", cwd=first.get("cwd"))
    for title in _TITLES:
        session.title = session.title or thread.titles.get(title)
    for fact in ("gitBranch", "version"):
        if isinstance(first.get(fact), str):
            session.extra[fact] = first[fact]
    if thread.agent is not None:
        session.extra |= {"session": thread.session, "agent": thread.agent}
        session.key += f"/{thread.agent}"
    for message, line in _messages(thread, session):
        session.add_message(message, line.number)
    return session


# ---- messages


def _messages(thread: _Thread, session: Conversation) -> list[tuple[ForeignMessage, Line]]:
    """Return the messages of a thread with their first lines; the lines of a response as one."""
    messages: list[tuple[ForeignMessage, Line]] = []
    answers: dict[str, ForeignMessage] = {}  # by response id
    for line in _branch(thread):
        try:
            message = _message(line.value)
        except MALFORMED:
            session.skip(BAD_MESSAGE, line.number)
            continue
        if message is None:
            continue
        response_id = message.get("response_id")
        answer = answers.get(response_id or "")
        if answer:
            _join(answer, message)
            continue
        if response_id:
            answers[response_id] = message
        elif all(part.get("type") != "tool_result" for part in as_dicts(message["content"])):
            answers.clear()  # a question: some gateways give all responses one id
        messages.append((message, line))
    return messages


def _join(answer: ForeignMessage, message: ForeignMessage) -> None:
    """Add another line of the same response to an answer.

    Each line repeats the usage; the last one has the final count.
    """
    answer["content"] += message.pop("content")
    answer |= without(message, "id", "timestamp", "usage")
    answer["usage"] = max(answer.get("usage"), message.get("usage"), key=_completion)


def _completion(usage: object) -> int:
    return token_count(as_dict(usage).get("completion")) or 0


def _branch(thread: _Thread) -> list[Line]:
    """Return the lines of the branch that was continued, in order, without what was rewound.

    All lines of its answers and all results of their tool calls are included: parallel calls fork
    the tree.
    """
    branch = _path_to_newest(thread)

    messages = [as_dict(line.value.get("message")) for line in thread.lines]
    response_ids = [as_str(message.get("id")) for message in messages]
    branch_ids = {response_ids[index] for index in branch}
    for index, response_id in enumerate(response_ids):
        if response_id and response_id in branch_ids:
            branch.add(index)

    call_ids: set[str] = set()
    for index in branch:
        for part in as_dicts(messages[index].get("content")):
            call_ids.add(as_str(part.get("id")))
    for index, message in enumerate(messages):
        for part in as_dicts(message.get("content")):
            call_id = as_str(part.get("tool_use_id"))
            if call_id and call_id in call_ids:
                branch.add(index)
    return [thread.lines[index] for index in sorted(branch)]


def _path_to_newest(thread: _Thread) -> set[int]:
    """Return the indexes of the newest message and of its parents, up to the session's first.

    Where a parent is missing, it is the line before. A compaction begins no session: the messages
    before it remain.
    """
    values = [line.value for line in thread.lines]
    index = len(values) - 1
    while index >= 0 and values[index].get("type") not in _MESSAGE_TYPES:
        index -= 1
    path: set[int] = set()
    while index >= 0 and index not in path:
        path.add(index)
        value = values[index]
        parent = value.get("parentUuid") or value.get("logicalParentUuid")
        is_compaction = value.get("isCompactSummary") or value.get("subtype") == _COMPACTED
        if "parentUuid" in value and not parent and not is_compaction:
            break  # the first message
        index = thread.indexes.get(as_str(parent), index - 1)
    return path


def _message(value: JsonObject) -> ForeignMessage | None:
    """Return the message on a line in our format, None if it has none."""
    message = _api_message(value)
    if message is None:
        return None
    new = {
        "id": value.get("uuid"),
        "timestamp": value.get("timestamp"),
        "role": "user",
        "content": message["content"],
    }
    flags = not_empty(value, _FLAGS)
    if value["type"] == "assistant":
        new |= _answer(value, message)
        if new.get("model") == _SYNTHETIC:  # without a request; its usage is all zeros
            flags["model"] = _SYNTHETIC
            new = without(new, "model", "provider", "usage")
        if "isApiErrorMessage" in flags:
            new["finish_reason"] = "error"
    elif "toolUseResult" in value and isinstance(message["content"], list):
        new["content"] = with_raw(message["content"], value["toolUseResult"])
    if flags:
        new["source"] = flags
    return new


def _answer(value: JsonObject, message: JsonObject) -> ForeignMessage:
    """Return what an answer has besides id and time; its content is a list, to add lines to."""
    content = message["content"]
    if not isinstance(content, list):
        content = [{"type": "text", "text": content}]
    answer = {"role": "assistant", "content": list(content), "provider": "anthropic"}
    answer |= answer_fields(message)
    if isinstance(value.get("requestId"), str):
        answer["request_id"] = value["requestId"]
    return answer


def _api_message(value: JsonObject) -> JsonObject | None:
    """Return the message of Anthropic's API on a line, None if it has none.

    A question that was asked during an answer is in ``attachment``.
    """
    queued = as_dict(value.get("attachment"))
    if queued.get("type") == "queued_command":
        return {"content": queued["prompt"]}
    message = as_dict(value.get("message"))
    if value.get("type") in _MESSAGE_TYPES:
        return message
    if "role" in message:
        raise ValueError("a message of an unknown type")
    return None
