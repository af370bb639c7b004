"""Ollama's own API, ``/api/chat``: write a request's JSON body, read a response of JSON lines into an ``Answer``.

gptsh uses it because only here a request can choose the window, and have a long prompt refused instead of truncated.
"""

import json
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from gptsh.content.answer import Answer
from gptsh.content.attachments import media_of, not_sent
from gptsh.content.passages import one_text
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import reading_loop
from gptsh.llm.error_bodies import reported_error
from gptsh.llm.json_bodies import ADVICE, as_object, debug_text, load
from gptsh.llm.sse import lines
from gptsh.messages import Event, Part, Request, is_text, parts_of, starts_turn, text_of
from gptsh.models.accepted_parameters import fit_params
from gptsh.models.names import is_answer_of
from gptsh.models.providers import Provider
from gptsh.models.token_usage import WINDOW_KEY, usage_from

if TYPE_CHECKING:
    from gptsh.llm.http import Response
    from gptsh.llm.ollama_models import OllamaModels

REFUSABLE = {
    "level": r"(?i)think value .{0,12} is not supported|\bthink must be|ChatRequest\.think",  # older servers
    "think": r"(?i)support thinking",
    "format": "(?i)invalid format|for format|ChatRequest.format|schema|grammar",  # not "image: unknown format"
}
THINKING = "thinking"  # the field of reasoning, in requests and answers
# Parameters outside ``options``.
_TOP_LEVEL = ("keep_alive", "think", "format", "tools", "logprobs", "top_logprobs", "truncate", "shift")
_UNSUPPORTED = {"image": "images by URL", "document": "documents", "audio": "audio", "video": "video"}
_ANSWER_KEYS = {"message", "done", "error"}
_USAGE_SUFFIXES = ("_count", "_duration")


def path(_request: Request, _provider: Provider) -> str:
    """The path of the request's URL, after the base URL."""
    return "/api/chat"


def body(
    request: Request, provider: Provider, refusals: Collection[str] = (), models: "OllamaModels | None" = None
) -> dict[str, Any]:
    """The JSON body, without the refused fields. The server may be asked how the model is loaded.

    With ``truncate`` and ``shift`` off, the server refuses a prompt that is too long; else it drops the oldest messages
    silently.
    """
    params = fit_params(request.params, provider, refusals).fields
    top_level = {name: params.pop(name) for name in _TOP_LEVEL if name in params}
    if "level" in refusals and "think" in top_level:
        top_level["think"] = bool(top_level["think"])
    options = {**as_dict(params.pop("options", None)), **params}  # the server only logs unknown options
    if "max_tokens" in options:
        options["num_predict"] = options.pop("max_tokens")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    window = models.window_to_request(provider, request.tokens, options.get("num_ctx")) if models else None
    if window:
        options["num_ctx"] = window
    payload = {
        "model": provider.model,
        "messages": list(_messages(request, provider)),
        "stream": request.stream,
        "truncate": False,
        "shift": False,
        **top_level,
        **({"format": request.schema} if request.schema is not None else {}),
        **({"options": options} if options else {}),
    }
    if request.tools:
        payload["tools"] = [{"type": "function", "function": tool._asdict()} for tool in request.tools]
    return {name: value for name, value in payload.items() if name not in refusals}


def accepts(part: Part, _provider: Provider) -> bool:
    """Whether a question can carry this part, which is not text."""
    media = media_of(part)
    return media is not None and media.kind == "image" and media.data is not None


def read(response: "Response", provider: Provider, answer: Answer, models: "OllamaModels") -> Iterator[Event]:
    """Write the response into ``answer`` and yield its events. The server may be asked for its window."""
    return reading_loop.read(json_lines(response.chunks()), Reader(answer, lambda: models.loaded_window(provider)))


def _messages(request: Request, provider: Provider) -> Iterator[dict[str, Any]]:
    """The messages in Ollama's form; thinking is sent back only to its own model, within its turn."""
    latest = max((at for at, message in enumerate(request.messages) if starts_turn(message)), default=0)
    names: dict[str, str] = {}  # of functions, by call id
    for at, message in enumerate(request.messages):
        parts, images = [], []
        for part in parts_of(message):
            media = media_of(part)
            if media and accepts(part, provider):
                images.append(media.data)
            elif is_text(part):
                parts.append(part)
            else:
                reason = f"Ollama takes no {_UNSUPPORTED[media.kind]}" if media else "Ollama takes text and images"
                parts.append(not_sent(part, reason))
        calls = []
        for call in message.get("tool_calls") or ():
            name = call["function"]["name"]
            names[call["id"]] = name
            calls.append(
                {"id": call["id"], "function": {"name": name, "arguments": as_object(call["function"]["arguments"])}}
            )
        thinking = as_dict(message.get("replay")).get(THINKING)
        is_own = at > latest and is_answer_of(message, provider.name, request.model)
        more = {"images": images, THINKING: thinking if is_own else None, "tool_calls": calls}
        if message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            more |= {"tool_name": message.get("name") or names.get(call_id), "tool_call_id": call_id}
        text = (text_of if message["role"] == "user" else one_text)({**message, "content": parts})
        yield {"role": message["role"], "content": text, **{key: value for key, value in more.items() if value}}


# ---- answers


def json_lines(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
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


class Reader(reading_loop.Reader):
    """Writes the lines of one answer into an ``Answer``. ``window`` looks up the window that the server used."""

    def __init__(self, answer: Answer, window: Callable[[], int | None]) -> None:
        super().__init__(answer)
        self._window = window

    def add(self, line: dict[str, Any]) -> bool:
        """Read one line; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer, message = self.answer, as_dict(line.get("message"))
        thinking, content, model = message.get(THINKING), message.get("content"), line.get("model")
        answer.resolved_model = model if isinstance(model, str) else None
        answer.add_reasoning(thinking if isinstance(thinking, str) else "", THINKING)
        answer.add_text(content if isinstance(content, str) else "")
        for call in as_dicts(message.get("tool_calls")):
            function, call_id = as_dict(call.get("function")), call.get("id")
            name, arguments = function.get("name"), function.get("arguments")
            if not isinstance(arguments, str):
                arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
            function = {"name": name if isinstance(name, str) else "", "arguments": arguments}
            call_id = call_id if isinstance(call_id, str) else ""
            answer.add_call({"id": call_id, "type": "function", "function": function})
        if line.get("error"):
            raise reported_error(line["error"], line)
        if line.get("done") is not True:
            return False
        usage = usage_from({key: value for key, value in line.items() if key.endswith(_USAGE_SUFFIXES)})
        window = self._window()
        reason = line.get("done_reason")  # older servers end a complete answer with ``done`` only
        reason = reason if isinstance(reason, str) and reason else "stop"
        if reason == "length" and window:
            usage["raw"][WINDOW_KEY] = window
        answer.usage = usage if usage["raw"] else None
        answer.finish("tool_calls" if answer.calls and reason == "stop" else reason)
        return True
