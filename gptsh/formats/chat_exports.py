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
    tool_call,
    utc,
    without,
)
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str
from gptsh.messages import Part
from gptsh.models.usage import FINISH_REASONS


def _conversations(
    source: Source,
    read: Callable[[Source, JsonObject], Conversation],
) -> Results:
    """The session of each conversation. A malformed one is skipped, named by its number."""
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


def _branch_to(
    leaf: object,
    records: Mapping[object, JsonObject],
    parent_key: str,
) -> list[JsonObject]:
    """The records of a tree from the root to the one with the id ``leaf``."""
    branch: dict[object, JsonObject] = {}
    while leaf in records and leaf not in branch:
        branch[leaf] = records[leaf]
        leaf = records[leaf].get(parent_key)
    return [*branch.values()][::-1]


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
_PAGES = ("items", "supporting_websites", "sources")  # lists of them in a reference


def read_chatgpt(source: Source) -> Results | None:
    """A session for each conversation of an export, or for a file with a single conversation."""
    if any(isinstance(value.get("mapping"), dict) for value in source.first):
        return _conversations(source, _read_chatgpt)
    return None


def _read_chatgpt(source: Source, value: JsonObject) -> Conversation:
    session = Conversation(
        source,
        CHATGPT,
        str(value.get("conversation_id") or value["id"]),
        title=value.get("title"),
        created_at=value.get("create_time"),
        updated_at=value.get("update_time"),
        provider="openai",
        model=value.get("default_model_slug"),
    )
    nodes = value["mapping"]
    leaf = value.get("current_node")
    if leaf not in nodes:
        leaf = _newest(nodes, "create_time")
    thinking: list[Part] = []  # of the next answer
    call_id = None  # of a tool call without a result

    def messages_of(node: JsonObject) -> Iterator[ForeignMessage]:
        nonlocal thinking, call_id
        record = as_dict(node.get("message"))
        content = as_dict(record.get("content"))
        metadata = as_dict(record.get("metadata"))
        kind = content.get("content_type")
        if kind == "user_editable_context":
            session.system = _joined(content, "\n\n", "user_profile", "user_instructions")
        thinking += _thoughts(content)
        parts = _parts(content, metadata)
        if not parts or metadata.get("is_visually_hidden_from_conversation"):
            return

        message = _message(record, metadata, parts)
        session.model = message.get("model", session.model)
        last_call, call_id = call_id, None
        if message["role"] == "assistant":
            if thinking:
                message["thinking"] = thinking
                thinking = []
            if "tool_calls" in message:
                call_id = record["id"]
        elif message["role"] == "tool":
            name = record["author"].get("name")
            if not last_call:  # the export has none for a search in uploaded files, for example
                last_call = record["id"]
                call = tool_call(last_call, name or "tool", "")
                yield {
                    "timestamp": message["timestamp"],
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call],
                }
            is_error = kind == "system_error" or None
            message |= without({"tool_call_id": last_call, "name": name, "is_error": is_error})
        yield message

    for node in _branch_to(leaf, nodes, "parent"):
        session.add_record(messages_of, node)
    return session


def _thoughts(content: JsonObject) -> list[Part]:
    thoughts = content.get("thoughts") or ()
    texts = [_joined(thought, "\n\n", "summary", "content") for thought in thoughts]
    return [{"type": "thinking", "thinking": text} for text in texts if text]


def _newest(nodes: Mapping[object, JsonObject], key: str) -> object:
    """The id of the node whose message has the latest time under a key; of equal ones the last."""

    def time_of(ident: object) -> str:
        return utc(as_dict(nodes[ident].get("message")).get(key)) or ""

    return max([*nodes][::-1], key=time_of, default=None)


def _joined(record: JsonObject, separator: str, *keys: str) -> str:
    """The texts under these keys that are not empty."""
    return separator.join(record[key] for key in keys if record.get(key))


def _parts(content: JsonObject, metadata: JsonObject) -> list[Part]:
    """The parts of a message: texts, references to files, else the content if it may matter."""
    alone = _joined(content, "\n", "title", "url", "text") or content.get("result")
    parts = [_part(part) for part in content.get("parts") or [alone] if part]
    for file in as_dicts(metadata.get("attachments")):
        parts.append({**file, "type": "attachment", **without({"source": file.get("name")})})
    kind = content.get("content_type")
    if content and not parts and kind not in _EMPTY:
        return [{**content, "type": kind}]
    return parts if content else []


def _part(part: str | Part) -> Part:
    """A text or a transcribed text as text; a reference to a file unchanged."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part["content_type"] == "audio_transcription":
        return {"type": "text", "text": part["text"]}
    return {**part, "type": part["content_type"]}


def _message(record: JsonObject, metadata: JsonObject, parts: list[Part]) -> ForeignMessage:
    message = {
        "id": record["id"],
        "timestamp": record.get("create_time"),
        "role": record["author"]["role"],
        "content": content_of(parts),
    }
    if message["role"] == "assistant":
        reason = as_dict(metadata.get("finish_details")).get("type")
        message["provider"] = "openai"
        message |= without(
            {
                "model": metadata.get("model_slug"),
                "finish_reason": FINISH_REASONS.get(str(reason), reason),
            }
        )
        references = as_dicts(metadata.get("content_references"))
        pages = _pages_in([*references, *as_dicts(metadata.get("citations"))])
        if pages:
            message["sources"] = [{"url": url, "title": title} for url, title in pages.items()]
        message["content"] = content_of([_with_links(part, metadata) for part in parts])
        recipient = record.get("recipient") or "all"
        if recipient != "all":
            text = "".join(part.get("text", "") for part in parts)
            message |= {"content": None, "tool_calls": [tool_call(record["id"], recipient, text)]}
    return message


def _with_links(part: Part, metadata: JsonObject) -> Part:
    """A text with links in place of its citations; one whose pages are not known is left out."""
    text = part.get("text")
    if part["type"] != "text" or not isinstance(text, str):
        return part
    pages: dict[str, dict[str, str | None]] = {}
    links: dict[str, str] = {}  # as the page of ChatGPT shows them
    for reference in as_dicts(metadata.get("content_references")):
        mark = as_str(reference.get("matched_text"))
        pages[mark] = _pages_in([reference])
        links[mark] = as_str(reference.get("alt"))
    for citation in as_dicts(metadata.get("citations")):
        start, end = citation.get("start_ix"), citation.get("end_ix")
        if isinstance(start, int) and isinstance(end, int) and text[start:end] not in links:
            pages.setdefault(text[start:end], {}).update(_pages_in([citation]))

    def link(mark: re.Match[str]) -> str:
        own = [link_to(url, title or "") for url, title in pages.get(mark[0], {}).items()]
        known = links.get(mark[0]) or ", ".join(own)
        return known or ("" if mark[0].startswith("\ue200") else mark[0])

    return {**part, "text": _CITATION.sub(link, text)}


def _pages_in(references: list[JsonObject]) -> dict[str, str | None]:
    """The titles of the pages in references, by URL; other pages may stand below one."""
    pages: dict[str, str | None] = {}
    for reference in references:
        url = as_str(reference.get("url"))
        if url:
            title = as_str(reference.get("title")) or as_str(reference.get("attribution")) or None
            pages[url] = pages.get(url) or title
        inner = [as_dict(reference.get("metadata"))]
        for key in _PAGES:
            inner += as_dicts(reference.get(key))
        for url, title in _pages_in([item for item in inner if item]).items():
            pages[url] = pages.get(url) or title
    return pages


# ---- deepseek
#
# Import of the data export of DeepSeek's chat, ``conversations.json``: of each conversation the
# branch with the newest message.
#
# A message has fragments: the question, or the search, the thinking and the text of an answer.

DEEPSEEK = "deepseek"


def read_deepseek(source: Source) -> Results | None:
    """A session for each conversation of an export, or for a file with a single conversation."""
    if any(map(_has_fragments, source.first)):
        return _conversations(source, _read_deepseek)
    return None


def _has_fragments(value: JsonObject) -> bool:
    nodes = as_dicts([*as_dict(value.get("mapping")).values()])
    return any("fragments" in as_dict(node.get("message")) for node in nodes)


def _read_deepseek(source: Source, value: JsonObject) -> Conversation:
    session = Conversation(
        source,
        DEEPSEEK,
        str(value["id"]),
        title=value.get("title"),
        created_at=value.get("inserted_at"),
        updated_at=value.get("updated_at"),
        provider="deepseek",
    )
    nodes = value["mapping"]
    for node in _branch_to(_newest(nodes, "inserted_at"), nodes, "parent"):
        record = as_dict(node.get("message"))
        if record:
            session.add_record(_fragments, record)
            session.model = record.get("model") or session.model
    return session


def _fragments(record: JsonObject) -> Iterator[ForeignMessage]:
    """The question or answer of a message; fragments of other kinds are parts as they are."""
    fragments = record["fragments"]
    message: ForeignMessage = {"timestamp": record.get("inserted_at"), "role": "assistant"}
    parts: list[Part] = []
    thinking: list[Part] = []
    for fragment in fragments:
        kind, text = fragment["type"], fragment.get("content")
        if kind == "REQUEST":
            message["role"] = "user"
        if kind == "THINK":
            thinking.append({"type": "thinking", "thinking": text})
        elif kind == "SEARCH":
            pages = _pages_in(as_dicts(fragment.get("results")))
            message["sources"] = [{"url": url, "title": title} for url, title in pages.items()]
        elif isinstance(text, str):
            parts.append({"type": "text", "text": text})
        else:
            parts.append({**fragment, "type": kind})
    for file in as_dicts(record.get("files")):
        parts.append({**file, "type": "attachment", **without({"source": file.get("file_name")})})
    message["content"] = content_of(parts)
    if message["role"] == "assistant":
        message |= without({"provider": "deepseek", "model": record.get("model")})
    yield {**message, "thinking": thinking} if thinking else message


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
    """A session for each conversation of an export, or for a file with a single conversation."""
    if any(isinstance(value.get("chat_messages"), list) for value in source.first):
        return _conversations(source, _read_claude_ai)
    return None


def _read_claude_ai(source: Source, value: JsonObject) -> Conversation:
    session = Conversation(
        source,
        CLAUDE_AI,
        str(value["uuid"]),
        title=value.get("name"),
        created_at=value.get("created_at"),
        updated_at=value.get("updated_at"),
        provider="anthropic",
        model=value.get("model"),
    )
    records = value["chat_messages"]
    if any("parent_message_uuid" in record for record in records):  # older exports have no branches
        by_id = {record["uuid"]: record for record in records}
        leaf = value.get("current_leaf_message_uuid")
        if leaf not in by_id:  # the newest, and of equal times the last
            leaf = max(reversed(by_id), key=lambda ident: by_id[ident].get("created_at") or "")
        records = _branch_to(leaf, by_id, "parent_message_uuid")
    for record in records:
        session.add_record(_messages, record)
    return session


def _messages(record: JsonObject) -> Iterator[ForeignMessage]:
    """A question with attached texts and names of files; or an answer, split at tool results."""
    message = {"id": record["uuid"], "timestamp": record.get("created_at")}
    blocks = _blocks(record)
    if record["sender"] == "human":
        parts = [block for block in blocks if block.get("text")]
        for file in as_dicts(record.get("attachments")):
            name = file.get("file_name") or "attachment"
            text = file.get("extracted_content") or ""
            parts.append({"type": "text", "text": text, "source": name})
        for file in as_dicts(record.get("files")):
            name = file.get("file_name") or "attachment"
            parts.append({**file, "type": "attachment", "source": name})
        yield {**message, "role": "user", "content": content_of(parts)}
        return
    for is_result, group in groupby(blocks, lambda block: block["type"] == "tool_result"):
        yield {**message, "role": "user" if is_result else "assistant", "content": [*group]}
        message.pop("id", None)  # it is that of the first


def _blocks(record: JsonObject) -> list[Part]:
    """The blocks as in Anthropic's API. Without call ids, results are in the order of the calls."""
    converted: list[Part] = []
    pending: list[str] = []  # ids of calls without a result
    blocks = record.get("content") or [{"type": "text", "text": record["text"]}]
    for index, block in enumerate(blocks):
        kind = "text" if block["type"] == "voice_note" else block["type"]
        if kind == "text" and not block.get("text"):
            continue
        keys = _BLOCK_KEYS.get(kind, tuple(block))
        new = {
            "type": kind,
            **{key: block[key] for key in keys if block.get(key) not in (None, [])},
        }
        if new["type"] == "tool_use":
            pending.append(new.setdefault("id", f"{record['uuid']}:{index}"))
        elif new["type"] == "tool_result" and pending:
            new.setdefault("tool_use_id", pending.pop(0))
        for item in as_dicts(new.get("content")):
            if item.get("type") == "knowledge":  # a page that a web search found
                item |= {"type": "text", "text": _joined(item, "\n", "title", "url", "text")}
        converted.append(new)
    return converted
