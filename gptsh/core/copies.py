"""Two documents of one session, one of them from elsewhere: whether they are copies of it, and joined.

No files here. Nothing that is held is told otherwise or left out by what comes in.
"""

from gptsh.core import document, snapshots
from gptsh.core.document import Document, is_imported, tags_of
from gptsh.jsonio import as_dict
from gptsh.messages import Block, Message, blocks_of

OURS = "gptsh"  # the format of a session that came from no other tool
_WHOLE = (OURS, "markdown")  # whose answers do not grow: who tells one further tells it otherwise


def is_copy(one: Document, other: Document) -> bool:
    """Whether two documents of one origin are copies of one session.

    They share a message, and none of those that they share is told otherwise; or neither has any.
    """
    ours = {message["id"]: message for message in one["messages"]}
    shared = [(ours[message["id"]], message) for message in other["messages"] if message["id"] in ours]
    if not (ours and other["messages"]):
        return bool(one["created_at"] == other["created_at"])
    may_grow = _format_of(one) not in _WHOLE
    return bool(shared) and all(_agree(new, old, may_grow=may_grow) for new, old in shared)


def joined(doc: Document, theirs: Document) -> Document:
    """What we hold with what is new in a copy of it, and how its source tells of it now; all else stays as it is."""
    told = {message["id"]: message for message in doc["messages"]}
    held = {message["id"]: _further(message, told.get(message["id"])) for message in theirs["messages"]}
    if [ident for ident in told if ident in held] == [*held]:  # all of it came from there, in this order
        messages = [held.get(message["id"], message) for message in doc["messages"]]
    else:
        messages = document.join_messages(doc["messages"], [*held.values()])
    new = {**theirs, "messages": messages}
    if _format_of(doc) == OURS:
        _labelled(new, doc, theirs)
    elif _format_of(theirs) == _format_of(doc):
        _retold(new, doc, theirs)
    return {**new, "updated_at": max(theirs["updated_at"], doc["updated_at"])} if new != theirs else theirs


def completed(new: Document, old: Document) -> int:
    """How many messages a document has more of than it had."""
    before = {message["id"]: message for message in old["messages"]}
    return sum(before.get(message["id"], message) != message for message in new["messages"])


def _format_of(head: Document) -> str:
    return str(as_dict(head["meta"].get("imported")).get("format", OURS))


def _agree(one: Message, other: Message, *, may_grow: bool) -> bool:
    """Whether two messages of one id are the same, or one of them is an answer that the other tells further."""
    ways = (_goes_on(one, other), _goes_on(other, one))
    return all(ways) or (may_grow and one["role"] == "assistant" and any(ways))


def _goes_on(new: Message, old: Message) -> bool:
    """Whether a message is the other one, or begins with all of it."""
    ours, theirs = blocks_of(new), blocks_of(old)
    if new["role"] != old["role"] or len(ours) < len(theirs):
        return False
    pairs = list(zip(ours, theirs, strict=False))
    return not pairs or (all(one == other for one, other in pairs[:-1]) and _begins(*pairs[-1]))


def _begins(one: Block, other: Block) -> bool:
    """Whether a block is the other one, or a text that begins with it."""
    texts = (one[1].get("text"), other[1].get("text"))
    longer = isinstance(texts[0], str) and isinstance(texts[1], str) and texts[0].startswith(texts[1])
    return one == other or (longer and one[0] == other[0] and {**one[1], "text": ""} == {**other[1], "text": ""})


def _further(old: Message, new: Message | None) -> Message:
    """The message that is kept, or the one that its source tells further now: it had not ended when it was read."""
    if (
        new is None
        or new["role"] != "assistant"
        or not _goes_on(new, old)
        or (_goes_on(old, new) and not (new.get("finish_reason") and not old.get("finish_reason")))
    ):
        return old
    whole: Message = {**old, **new}
    return whole


def _labelled(new: Document, doc: Document, theirs: Document) -> None:
    """Take over the labels of a copy of ours and what its turns used; who answers next is not the copy's to say."""
    new["title"] = theirs["title"] or doc["title"]
    if len(new["messages"]) == len(theirs["messages"]):
        return
    new["meta"] = {**theirs["meta"], "tags": list(dict.fromkeys([*tags_of(theirs), *tags_of(doc)]))}
    new["context"] = {**theirs["context"], **snapshots.united({**doc, "updated_at": ""}, theirs, None)}
    if new["messages"][-1]["id"] == doc["messages"][-1]["id"]:
        new["usage"] = {**theirs["usage"], "tokens": doc["usage"]["tokens"]}


def _retold(new: Document, doc: Document, theirs: Document) -> None:
    """Take over what a source says of its session now; who answers next only where nothing was asked here.

    An older copy of the source, or one that lacks something, says nothing new.
    """
    new["title"] = theirs["title"] or doc["title"]
    told = {message["id"] for message in doc["messages"]}
    came = {message["id"] for message in theirs["messages"] if is_imported(message)}
    if not came <= told or doc["meta"]["imported"]["as_of"] < str(theirs["meta"]["imported"].get("as_of") or ""):
        return
    held, now = theirs["meta"]["imported"], doc["meta"]["imported"]
    if {**held, "as_of": None} != {**now, "as_of": None}:
        new["meta"] = {**theirs["meta"], "imported": now}
    new["context"] = {**theirs["context"], "consolidated": document.further(new["messages"], doc, theirs)}
    if len(came) == len(theirs["messages"]):
        carried = {key: value for key, value in doc["usage"].items() if key == "carried_tokens"}
        new["usage"] = {**theirs["usage"], "tokens": doc["usage"]["tokens"], **carried}
        new["agent"], new["provider"] = doc["agent"], doc["provider"]
