"""Import the data exports of ChatGPT, DeepSeek and Claude.ai (``conversations.json``)."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

from gptsh.content.passages import link_to
from gptsh.formats.source import (
    MALFORMED,
    Conversation,
    ForeignMessage,
    Results,
    Skipped,
    Source,
    content_of,
    unchecked_call,
    utc,
    without,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str
from gptsh.messages import Part
from gptsh.models.usage import FINISH_REASONS


def _conversations(source: Source, read: Callable[[Source, JsonObject], Conversation]) -> Results:
    """Yield the session of each conversation. A malformed one is skipped, named by its number."""
    for number, record in enumerate(source.records(), 1):
        if isinstance(record, Skipped):
            yield record
            continue
        where = f"{source.name}, session {number}"
        try:
            conversation = read(source, record.value)
        except MALFORMED:
            yield Skipped(where, "not in the format that its tool writes")
            continue
        for result in conversation.results():
            yield result._replace(where=where) if isinstance(result, Skipped) else result


def _branch(
    records: Mapping[object, JsonObject],
    leaf: object,
    *,
    parent_key: str,
    time_key: str,
) -> list[JsonObject]:
    """Return the records of a tree from its root to ``leaf``; without that, to the newest one."""
    ident = leaf if leaf in records else _newest(records, time_key)
    branch: dict[object, JsonObject] = {}
    while ident in records and ident not in branch:
        branch[ident] = records[ident]
        ident = records[ident].get(parent_key)
    return list(reversed(branch.values()))


def _newest(records: Mapping[object, JsonObject], time_key: str) -> object:
    """Return the id of the newest record, of equal ones the last; None if there is none.

    The time is in a record, or in the message in it.
    """
    newest: object = None
    latest = ""
    for ident, record in records.items():
        message = as_dict(record.get("message", record))
        moment = utc(message.get(time_key)) or ""
        if moment >= latest:
            newest = ident
            latest = moment
    return newest


def _attachments(files: object, name_key: str) -> list[Part]:
    """Return references to files beside an export, which are not opened."""
    parts = []
    for file in as_dicts(files):
        name = without({"source": file.get(name_key)})
        parts.append({**file, "type": "attachment", **name})
    return parts


_PAGES = ("items", "supporting_websites", "sources")  # lists of them in a reference


def _pages_in(references: list[JsonObject]) -> dict[str, str | None]:
    """Return the titles of the pages in references, by URL; a reference may have others in it."""
    pages: dict[str, str | None] = {}
    for reference in references:
        url = as_str(reference.get("url"))
        if url:
            title = as_str(reference.get("title")) or as_str(reference.get("attribution"))
            pages[url] = pages.get(url) or title or None
        inner = as_dicts([reference.get("metadata")])
        for key in _PAGES:
            inner += as_dicts(reference.get(key))
        for url, inner_title in _pages_in(inner).items():
            pages[url] = pages.get(url) or inner_title
    return pages


def _sources(references: list[JsonObject]) -> list[JsonObject]:
    """Return the pages in references as an answer cites them."""
    return [{"url": url, "title": title} for url, title in _pages_in(references).items()]


# ---- chatgpt
#
# Import of ChatGPT's data export, ``conversations.json``: each conversation in the branch that was
# last shown.
#
# Messages are nodes of a tree. A tool call is an answer whose ``recipient`` is the tool. Files are
# beside the export: references to them are stored as they are, and no file is opened.

CHATGPT = "chatgpt"
# Content types whose records are left out if they have no parts. Of any other type, the whole
# content becomes a part.
_EMPTY = {
    "text",
    "multimodal_text",
    "thoughts",
    "reasoning_recap",
    "user_editable_context",
    "model_editable_context",
}
# A citation: its kind and the places of its pages in a search, between characters of private use;
# in older answers a number and a name. Only the metadata of the answer has the pages.
_CITATION = re.compile("\ue200[^\ue200\ue201]*+\ue201|【[^【】]*+】")


def read_chatgpt(source: Source) -> Results | None:
    """Return a session for each conversation of an export, or for the one in a file."""
    if any(isinstance(value.get("mapping"), dict) for value in source.first):
        return _conversations(source, _read_chatgpt)
    return None


def _read_chatgpt(source: Source, value: JsonObject) -> Conversation:
    session = Conversation.of_record(
        source,
        CHATGPT,
        str(value.get("conversation_id") or value["id"]),
        value,
        title="title",
        created_at="create_time",
        updated_at="update_time",
        model="default_model_slug",
    )
    session.provider = "openai"
    reader = _ChatgptReader(session)
    leaf = value.get("current_node")
    nodes = _branch(value["mapping"], leaf, parent_key="parent", time_key="create_time")
    for node in nodes:
        session.add_record(reader.messages_of, node)
    return session


class _ChatgptReader:
    """Reads the nodes of a conversation in order.

    The thinking precedes its answer, and only the order tells to which call a result belongs.
    """

    def __init__(self, session: Conversation) -> None:
        self._session = session
        self._thinking: list[Part] = []  # of the next answer
        self._call_id: str | None = None  # of a tool call without a result

    def messages_of(self, node: JsonObject) -> Iterator[ForeignMessage]:
        """Yield the message in a node, if it has one; before the result of no call, a call."""
        record = as_dict(node.get("message"))
        content = as_dict(record.get("content"))
        metadata = as_dict(record.get("metadata"))
        if content.get("content_type") == "user_editable_context":
            prompt = _joined(content, "\n\n", "user_profile", "user_instructions")
            self._session.system = prompt
        self._thinking += _thoughts(content)
        parts = _parts(content, metadata)
        if not parts or metadata.get("is_visually_hidden_from_conversation"):
            return

        message = {
            "id": record["id"],
            "timestamp": record.get("create_time"),
            "role": record["author"]["role"],
            "content": content_of(parts),
        }
        call_id = self._call_id
        self._call_id = None
        if message["role"] == "assistant":
            message |= _answer(record, metadata, parts)
            if self._thinking:
                message["thinking"] = self._thinking
                self._thinking = []
            if "tool_calls" in message:
                self._call_id = record["id"]
        elif message["role"] == "tool":
            name = record["author"].get("name")
            if not call_id:  # a search in uploaded files, for example, has none in the export
                call_id = record["id"]
                call = unchecked_call(call_id, name or "tool", "")
                yield {
                    "timestamp": message["timestamp"],
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call],
                }
            message |= without({"tool_call_id": call_id, "name": name})
            if content.get("content_type") == "system_error":
                message["is_error"] = True
        yield message


def _thoughts(content: JsonObject) -> list[Part]:
    """Return the thinking in a record's content as blocks."""
    blocks = []
    for thought in content.get("thoughts") or ():
        text = _joined(thought, "\n\n", "summary", "content")
        if text:
            blocks.append({"type": "thinking", "thinking": text})
    return blocks


def _joined(record: JsonObject, separator: str, *keys: str) -> str:
    """Return the texts under these keys that are not empty, joined."""
    return separator.join(record[key] for key in keys if record.get(key))


def _parts(content: JsonObject, metadata: JsonObject) -> list[Part]:
    """Return the parts of a message: texts and references to files.

    If the message has none, the whole content is a part, unless its type is known to be empty.
    """
    if not content:
        return []
    text = _joined(content, "\n", "title", "url", "text") or content.get("result")
    contents = content.get("parts") or [text]
    parts = [_part(part) for part in contents if part]
    parts += _attachments(metadata.get("attachments"), "name")
    content_type = content.get("content_type")
    if not parts and content_type not in _EMPTY:
        parts.append({**content, "type": content_type})
    return parts


def _part(part: str | Part) -> Part:
    """Return a text or a transcribed text as text; a reference to a file unchanged."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part["content_type"] == "audio_transcription":
        return {"type": "text", "text": part["text"]}
    return {**part, "type": part["content_type"]}


def _answer(record: JsonObject, metadata: JsonObject, parts: list[Part]) -> ForeignMessage:
    """Return what only an answer has, and its content with links, or the tool call that it is."""
    reason = as_dict(metadata.get("finish_details")).get("type")
    fields = {
        "provider": "openai",
        "model": metadata.get("model_slug"),
        "finish_reason": FINISH_REASONS.get(str(reason), reason),
    }
    answer = without(fields)

    references = as_dicts(metadata.get("content_references"))
    citations = as_dicts(metadata.get("citations"))
    sources = _sources(references + citations)
    if sources:
        answer["sources"] = sources
    recipient = record.get("recipient") or "all"
    if recipient == "all":
        linked = [_with_links(part, references, citations) for part in parts]
        answer["content"] = content_of(linked)
    else:
        arguments = "".join(part.get("text", "") for part in parts)
        answer["content"] = None
        answer["tool_calls"] = [unchecked_call(record["id"], recipient, arguments)]
    return answer


def _with_links(part: Part, references: list[JsonObject], citations: list[JsonObject]) -> Part:
    """Return a text with links in place of its citations.

    A citation whose pages are not known is left out.
    """
    text = part.get("text")
    if part["type"] != "text" or not isinstance(text, str):
        return part
    links = _links_by_citation(text, references, citations)

    def link(citation: re.Match[str]) -> str:
        unknown = "" if citation[0].startswith("\ue200") else citation[0]
        return links.get(citation[0]) or unknown

    return {**part, "text": _CITATION.sub(link, text)}


def _links_by_citation(
    text: str,
    references: list[JsonObject],
    citations: list[JsonObject],
) -> dict[str, str]:
    """Return the links to show, by the text of the citation that each replaces.

    A reference names that text. A citation, in an older answer, tells where in the text it is, and
    several may be there.
    """
    links: dict[str, str] = {}
    for reference in references:
        cited_text = as_str(reference.get("matched_text"))
        as_shown = as_str(reference.get("alt"))
        links[cited_text] = as_shown or _links([reference])
    pages: dict[str, list[JsonObject]] = {}
    for citation in citations:
        start = citation.get("start_ix")
        end = citation.get("end_ix")
        if isinstance(start, int) and isinstance(end, int) and text[start:end] not in links:
            pages.setdefault(text[start:end], []).append(citation)
    for cited_text, cited_pages in pages.items():
        links[cited_text] = _links(cited_pages)
    return links


def _links(references: list[JsonObject]) -> str:
    """Return links to the pages in references."""
    pages = _pages_in(references)
    return ", ".join(link_to(url, title or "") for url, title in pages.items())


# ---- deepseek
#
# Import of the data export of DeepSeek's chat, ``conversations.json``: of each conversation the
# branch with the newest message.
#
# A message has fragments: the question, or the search, the thinking and the text of an answer.

DEEPSEEK = "deepseek"


def read_deepseek(source: Source) -> Results | None:
    """Return a session for each conversation of an export, or for the one in a file."""
    if any(map(_has_fragments, source.first)):
        return _conversations(source, _read_deepseek)
    return None


def _has_fragments(value: JsonObject) -> bool:
    nodes = as_dict(value.get("mapping")).values()
    return any("fragments" in as_dict(as_dict(node).get("message")) for node in nodes)


def _read_deepseek(source: Source, value: JsonObject) -> Conversation:
    session = Conversation.of_record(
        source,
        DEEPSEEK,
        str(value["id"]),
        value,
        title="title",
        created_at="inserted_at",
        updated_at="updated_at",
    )
    session.provider = "deepseek"
    nodes = _branch(value["mapping"], None, parent_key="parent", time_key="inserted_at")
    for node in nodes:
        record = as_dict(node.get("message"))
        if record:
            session.add_record(_fragments, record)
    return session


def _fragments(record: JsonObject) -> Iterator[ForeignMessage]:
    """Yield the question or answer of a message; other kinds of fragments are parts as they are."""
    message: ForeignMessage = {"timestamp": record.get("inserted_at"), "role": "assistant"}
    parts: list[Part] = []
    thinking: list[Part] = []
    for fragment in record["fragments"]:
        fragment_type = fragment["type"]
        text = fragment.get("content")
        if fragment_type == "REQUEST":
            message["role"] = "user"
        if fragment_type == "THINK":
            thinking.append({"type": "thinking", "thinking": text})
        elif fragment_type == "SEARCH":
            message["sources"] = _sources(as_dicts(fragment.get("results")))
        elif isinstance(text, str):
            parts.append({"type": "text", "text": text})
        else:
            parts.append(dict(fragment))
    parts += _attachments(record.get("files"), "file_name")
    message["content"] = content_of(parts)
    if message["role"] == "assistant":
        message |= without({"provider": "deepseek", "model": record.get("model")})
    if thinking:
        message["thinking"] = thinking
    yield message


# ---- claude ai
#
# Import of Claude.ai's data export, ``conversations.json``: each conversation in the branch that
# was last shown.
#
# An answer has its thinking, its tool calls and their results as blocks. Of an uploaded file, the
# export has the name and the extracted text.

CLAUDE_AI = "claude-ai"
_BLOCK_KEYS = {  # the keys that are read of each type; the others are for the web page
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id", "name", "content", "is_error"),
}


def read_claude_ai(source: Source) -> Results | None:
    """Return a session for each conversation of an export, or for the one in a file."""
    if any(isinstance(value.get("chat_messages"), list) for value in source.first):
        return _conversations(source, _read_claude_ai)
    return None


def _read_claude_ai(source: Source, value: JsonObject) -> Conversation:
    session = Conversation.of_record(
        source,
        CLAUDE_AI,
        str(value["uuid"]),
        value,
        title="name",
        created_at="created_at",
        updated_at="updated_at",
        model="model",
    )
    session.provider = "anthropic"
    records = value["chat_messages"]
    if any("parent_message_uuid" in record for record in records):  # older exports have no branches
        by_id = {record["uuid"]: record for record in records}
        leaf = value.get("current_leaf_message_uuid")
        records = _branch(by_id, leaf, parent_key="parent_message_uuid", time_key="created_at")
    for record in records:
        session.add_record(_claude_ai_messages, record)
    return session


def _claude_ai_messages(record: JsonObject) -> Iterator[ForeignMessage]:
    """Yield a question with its files and their texts; or an answer, split at tool results."""
    message = {"id": record["uuid"], "timestamp": record.get("created_at")}
    blocks = _blocks(record)
    if record["sender"] == "human":
        parts = [block for block in blocks if block.get("text")]
        parts += _files(record)
        yield {**message, "role": "user", "content": content_of(parts)}
        return
    for is_result, group in groupby(blocks, _is_result):
        role = "user" if is_result else "assistant"
        yield {**message, "role": role, "content": list(group)}
        message = {"timestamp": message["timestamp"]}  # only the first has the record's id


def _files(record: JsonObject) -> list[Part]:
    """Return the extracted texts of the files in a question, then references to the others."""
    parts = []
    for file in as_dicts(record.get("attachments")):
        text = file.get("extracted_content") or ""
        name = file.get("file_name") or "attachment"
        parts.append({"type": "text", "text": text, "source": name})
    for part in _attachments(record.get("files"), "file_name"):
        parts.append({**part, "source": part.get("source") or "attachment"})
    return parts


def _is_result(block: Part) -> bool:
    return bool(block["type"] == "tool_result")


def _blocks(record: JsonObject) -> list[Part]:
    """Return the blocks as in Anthropic's API.

    Where calls have no ids, results are in the order of the calls.
    """
    converted: list[Part] = []
    open_calls: list[str] = []  # ids of calls without a result
    blocks = record.get("content") or [{"type": "text", "text": record["text"]}]
    for index, block in enumerate(blocks):
        block_type = "text" if block["type"] == "voice_note" else block["type"]
        if block_type == "text" and not block.get("text"):
            continue
        new = {"type": block_type}
        for key in _BLOCK_KEYS.get(block_type, block):
            if block.get(key) not in (None, []):
                new[key] = block[key]
        if block_type == "tool_use":
            call_id = new.setdefault("id", f"{record['uuid']}:{index}")
            open_calls.append(call_id)
        elif block_type == "tool_result" and open_calls:
            call_id = open_calls.pop(0)
            new.setdefault("tool_use_id", call_id)
        for item in as_dicts(new.get("content")):
            if item.get("type") == "knowledge":  # a page that a web search found
                item["text"] = _joined(item, "\n", "title", "url", "text")
                item["type"] = "text"
        converted.append(new)
    return converted
