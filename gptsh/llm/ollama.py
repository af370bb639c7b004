"""Speak Ollama's own API: write requests, read answers."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gptsh.config.accounts import Target
from gptsh.content.answer import Answer
from gptsh.content.attachments import media_of, not_sent
from gptsh.content.passages import one_text
from gptsh.errors import ModelError
from gptsh.jsonio import JsonObject, as_dict, as_dicts, as_str
from gptsh.llm import stream
from gptsh.llm.parameters import fit_params
from gptsh.llm.stream import (
    ADVICE,
    Refusable,
    as_object,
    debug_text,
    lines,
    load,
    reported_error,
)
from gptsh.messages import Call, Event, Message, Part, Request, is_answer_of, is_text, parts_of, starts_turn, text_of
from gptsh.models.usage import usage_from

if TYPE_CHECKING:
    from gptsh.llm.http import Response


# ---- answers
#
# Read an answer of Ollama's own API, a line of JSON for each piece: text, thinking, tool calls,
# usage, the window.

THINKING = "thinking"  # the field of reasoning, in requests and answers
_ANSWER_KEYS = {"message", "done", "error"}
_USAGE_SUFFIXES = ("_count", "_duration")


def json_lines(chunks: Iterator[bytes]) -> Iterator[JsonObject]:
    """Parse each line of a body as an object. Raises ModelError if one is not, or if the first is not an answer."""
    texts = filter(bytes.strip, lines(chunks))
    for number, line in enumerate(texts):
        try:
            payload = load(line)
        except ModelError:
            if number and next(texts, None) is None:  # the last line may be cut off
                return
            raise
        if not number and not _ANSWER_KEYS & set(payload):
            raise ModelError("the response is not an answer of Ollama", ADVICE, detail=debug_text(line))
        yield payload


class Reader(stream.Reader):
    """Writes the lines of one answer into an ``Answer``."""

    def add(self, line: JsonObject) -> bool:
        """Read one line; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer, message = self.answer, as_dict(line.get("message"))
        answer.resolved_model = as_str(line.get("model")) or None
        answer.add_reasoning(as_str(message.get(THINKING)), THINKING)
        answer.add_text(as_str(message.get("content")))
        for call in as_dicts(message.get("tool_calls")):
            answer.add_call(_chat_call(call))
        if line.get("error"):
            raise reported_error(line["error"], line)
        if line.get("done") is not True:
            return False
        usage = usage_from({key: value for key, value in line.items() if key.endswith(_USAGE_SUFFIXES)})
        reason = as_str(line.get("done_reason")) or "stop"  # older servers end a complete answer with ``done`` only
        answer.usage = usage if usage["raw"] else None
        answer.finish("tool_calls" if answer.calls and reason == "stop" else reason)
        return True


def _chat_call(call: JsonObject) -> Call:
    """A tool call in the form of chat completions, whose arguments are a text."""
    function = as_dict(call.get("function"))
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    named = {"name": as_str(function.get("name")), "arguments": arguments}
    return {"id": as_str(call.get("id")), "type": "function", "function": named}


# ---- requests
#
# Write a request of Ollama's own API, ``/api/chat``.
#
# gptsh uses it because only here a request can choose the window, and have a long prompt refused
# instead of truncated.

REFUSABLE = {
    # of older servers
    "level": Refusable(wording=r"(?i)think value .{0,12} is not supported|\bthink must be|ChatRequest\.think"),
    "think": Refusable(wording="(?i)not support thinking"),
    # not "image: unknown format"
    "schema": Refusable(wording=r"(?i)invalid format|schema in format|for format|ChatRequest\.format|grammar"),
}
# Parameters outside ``options``.
_TOP_LEVEL = ("keep_alive", "think", "format", "tools", "logprobs", "top_logprobs", "truncate", "shift")
_UNSUPPORTED = {"image": "images by URL", "document": "documents", "audio": "audio", "video": "video"}


def path(_target: Target) -> str:
    """The path of the request's URL, after the base URL."""
    return "/api/chat"


def body(request: Request, target: Target) -> JsonObject:
    """The JSON body, without what the server refuses.

    With ``truncate`` and ``shift`` off, the server refuses a prompt that is too long; else it drops the oldest messages
    silently.
    """
    params = fit_params(request.params, target).fields
    top_level = {name: params.pop(name) for name in _TOP_LEVEL if name in params}
    if "level" in target.refusals and "think" in top_level:
        top_level["think"] = bool(top_level["think"])
    options = _options(params)
    payload = {
        "model": target.model,
        "messages": list(_messages(request, target)),
        "stream": request.stream,
        "truncate": False,
        "shift": False,
    }
    payload |= top_level
    if request.schema is not None:
        payload["format"] = request.schema
    if options:
        payload["options"] = options
    if request.tools:
        payload["tools"] = [{"type": "function", "function": tool._asdict()} for tool in request.tools]
    return {name: value for name, value in payload.items() if name not in target.refusals}


def _options(params: JsonObject) -> JsonObject:
    """The parameters of the model. The server only logs unknown ones."""
    options = {**as_dict(params.pop("options", None)), **params}
    if "max_tokens" in options:
        options["num_predict"] = options.pop("max_tokens")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    return options


def accepts(part: Part, _target: Target) -> bool:
    """Whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and media.kind == "image" and media.data is not None


def read(response: "Response", answer: Answer) -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events."""
    return stream.read(json_lines(response.chunks()), Reader(answer))


def _messages(request: Request, target: Target) -> Iterator[JsonObject]:
    """The messages in Ollama's form; thinking is sent back only to its own model, within its turn."""
    latest = max((at for at, message in enumerate(request.messages) if starts_turn(message)), default=0)
    names: dict[str, str] = {}  # of functions, by call id
    for at, message in enumerate(request.messages):
        parts, images = _parts_and_images(message, target)
        calls = message.get("tool_calls") or ()
        names |= {call["id"]: call["function"]["name"] for call in calls}
        more: JsonObject = {"images": images}
        if at > latest and is_answer_of(message, target.provider, request.model):
            more[THINKING] = as_dict(message.get("replay")).get(THINKING)
        more["tool_calls"] = [_call(call) for call in calls]
        if message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            more |= {"tool_name": message.get("name") or names.get(call_id), "tool_call_id": call_id}
        joined = text_of if message["role"] == "user" else one_text
        fields = {key: value for key, value in more.items() if value}
        yield {"role": message["role"], "content": joined({**message, "content": parts}), **fields}


def _parts_and_images(message: Message, target: Target) -> tuple[list[Part], list[str | None]]:
    """The texts of a message, also those in place of what is not sent; and the images, in base64."""
    texts: list[Part] = []
    images: list[str | None] = []
    for part in parts_of(message):
        media = media_of(part)
        if media and accepts(part, target):
            images.append(media.data)
        elif is_text(part):
            texts.append(part)
        else:
            reason = f"Ollama takes no {_UNSUPPORTED[media.kind]}" if media else "Ollama takes text and images"
            texts.append(not_sent(part, reason))
    return texts, images


def _call(call: Call) -> JsonObject:
    function = call["function"]
    return {"id": call["id"], "function": {"name": function["name"], "arguments": as_object(function["arguments"])}}
