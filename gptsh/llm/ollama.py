"""Speak Ollama's own API: write requests, read answers."""

from collections.abc import Iterator

from gptsh.config.accounts import Refused, Target
from gptsh.content.attachments import media_of, not_sent
from gptsh.content.passages import one_text
from gptsh.errors import ModelError
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str
from gptsh.llm import stream
from gptsh.llm.conversations import (
    called_functions,
)
from gptsh.llm.stream import (
    Refusable,
    as_object,
    lines,
    load,
    not_an_answer,
    reported_error,
)
from gptsh.messages import (
    Call,
    Message,
    Part,
    Request,
    is_text,
    make_call,
    parts_of,
    starts_turn,
    text_of,
)
from gptsh.models.usage import usage_from

# ---- answers
#
# Read an answer, a line of JSON for each piece: text, thinking, tool calls, usage.

THINKING = "thinking"  # the field of reasoning, in requests and answers
_USAGE_SUFFIXES = ("_count", "_duration")


def _json_lines(chunks: Iterator[bytes]) -> Iterator[JsonObject]:
    """Parse each line of a body as an object.

    Raises ModelError if one is not, or if the first is not an answer.
    """
    is_first = True
    damage: ModelError | None = None  # of the last line, which may be cut off
    for line in lines(chunks):
        if not line.strip():
            continue
        if damage:
            raise damage
        try:
            payload = load(line)
        except ModelError as err:
            if is_first:
                raise
            damage = err
            continue
        if is_first and not payload.keys() & {"message", "done", "error"}:
            raise not_an_answer("an answer of Ollama", payload)
        is_first = False
        yield payload


class Reader(stream.Reader):
    """Writes the lines of one answer into an ``Answer``."""

    def payloads(self, chunks: Iterator[bytes], content_type: str) -> Iterator[JsonObject]:
        """Yield the lines of a body, whatever its type."""
        return _json_lines(chunks)

    def add(self, line: JsonObject) -> bool:
        """Read one line; return whether it was the last."""
        answer = self.answer
        message = as_dict(line.get("message"))
        self.add_names(None, line.get("model"))
        answer.add_reasoning(as_str(message.get(THINKING)), THINKING)
        answer.add_text(as_str(message.get("content")))
        for call in as_dicts(message.get("tool_calls")):
            function = as_dict(call.get("function"))
            name = function.get("name")
            answer.add_call(make_call(call.get("id"), name, function.get("arguments")))
        if line.get("error"):
            raise reported_error(line["error"], line)
        if line.get("done") is not True:
            return False
        counts = {key: value for key, value in line.items() if key.endswith(_USAGE_SUFFIXES)}
        answer.usage = usage_from(counts) if counts else None
        # Older servers end a complete answer with ``done`` only.
        reason = as_str(line.get("done_reason")) or "stop"
        if reason == "stop" and answer.calls:
            reason = "tool_calls"
        answer.finish(reason)
        return True


# ---- requests
#
# Write a request of ``/api/chat``: only here it can choose the window, and have a long prompt
# refused instead of truncated.

_LEVEL_REFUSED = r"think value .{0,12} is not supported|\bthink must be|ChatRequest\.think"
_SCHEMA_REFUSED = r"invalid format|schema in format|for format|ChatRequest\.format|grammar"
REFUSABLE = {
    Refused.LEVEL: Refusable(wording=f"(?i){_LEVEL_REFUSED}"),  # by older servers
    Refused.THINK: Refusable(wording="(?i)not support thinking"),
    Refused.SCHEMA: Refusable(wording=f"(?i){_SCHEMA_REFUSED}"),  # not "image: unknown format"
}
# Parameters outside ``options``.
_TOP_LEVEL = (
    "keep_alive",
    "think",
    "format",
    "tools",
    "logprobs",
    "top_logprobs",
    "truncate",
    "shift",
)
_UNSUPPORTED = {
    "image": "images by URL",
    "document": "documents",
    "audio": "audio",
    "video": "video",
}


def path(_target: Target) -> str:
    """Return the path of the request's URL, after the base URL."""
    return "/api/chat"


def body(request: Request, target: Target) -> JsonObject:
    """Return the JSON body, without what the server refuses.

    If ``truncate`` and ``shift`` are off, the server refuses a prompt that is too long; otherwise
    it drops the oldest messages silently.
    """
    params = {**request.params}
    payload = {
        "model": target.model,
        "messages": list(_messages(request, target)),
        "stream": request.stream,
        "truncate": False,
        "shift": False,
    }
    for name in _TOP_LEVEL:
        if name in params:
            payload[name] = params.pop(name)
    if Refused.LEVEL in target.refusals and "think" in payload:
        payload["think"] = bool(payload["think"])
    if request.schema is not None:
        payload["format"] = request.schema
    options = _options(params)
    if options:
        payload["options"] = options
    if request.tools:
        tools = [{"type": "function", "function": tool._asdict()} for tool in request.tools]
        payload["tools"] = tools
    return {name: value for name, value in payload.items() if name not in target.refusals}


def _options(params: JsonObject) -> JsonObject:
    """Return the parameters of the model. The server only logs unknown ones."""
    options = {**as_dict(params.pop("options", None)), **params}
    if "max_tokens" in options:
        options["num_predict"] = options.pop("max_tokens")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    return options


def accepts(part: Part, _target: Target) -> bool:
    """Return whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and media.kind == "image" and media.data is not None


def _messages(request: Request, target: Target) -> Iterator[JsonObject]:
    """Yield the messages in Ollama's form; thinking goes back to its own model, within its turn."""
    starts = [index for index, message in enumerate(request.messages) if starts_turn(message)]
    last_start = starts[-1] if starts else 0
    names = called_functions(request.messages)
    for index, message in enumerate(request.messages):
        texts, images = _texts_and_images(message, target)
        as_text = text_of if message["role"] == "user" else one_text
        content = as_text({**message, "content": texts})
        optional: JsonObject = {"images": images}
        if index > last_start and target.gave(message):
            optional[THINKING] = as_dict(message.get("replay")).get(THINKING)
        optional["tool_calls"] = [_call(call) for call in message.get("tool_calls") or ()]
        if message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            optional["tool_name"] = message.get("name") or names.get(call_id)
            optional["tool_call_id"] = call_id
        fields = {key: value for key, value in optional.items() if value}
        yield {"role": message["role"], "content": content, **fields}


def _texts_and_images(message: Message, target: Target) -> tuple[list[Part], list[str | None]]:
    """Return the texts of a message, and its images in base64.

    What is not sent is replaced by a text.
    """
    texts: list[Part] = []
    images: list[str | None] = []
    for part in parts_of(message):
        media = media_of(part)
        if media and accepts(part, target):
            images.append(media.data)
        elif is_text(part):
            texts.append(part)
        elif media:
            texts.append(not_sent(part, f"Ollama does not accept {_UNSUPPORTED[media.kind]}"))
        else:
            texts.append(not_sent(part, "Ollama accepts text and images"))
    return texts, images


def _call(call: Call) -> JsonObject:
    name = call["function"]["name"]
    arguments = as_object(call["function"]["arguments"])
    return {"id": call["id"], "function": {"name": name, "arguments": arguments}}
