"""Ollama's own API, ``/api/chat``: a request to its JSON body, response bytes, an object a line, to an ``Answer``.

It is spoken since only here a request can choose the model's window, and have a prompt refused instead of cut.
"""

import json
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from gptsh.content.answer import Answer, Request
from gptsh.content.attachments import media_of, not_sent
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm import sse
from gptsh.llm.errors import reported
from gptsh.llm.parameters import fit
from gptsh.llm.sse import ADVICE, as_object, debug_text, load
from gptsh.messages import Event, Part, is_text, parts_of, starts_turn, text_of
from gptsh.models.cost import WINDOW_KEY, usage_from
from gptsh.models.names import is_answer_of
from gptsh.models.providers import Provider

if TYPE_CHECKING:
    from gptsh.llm.http import Response
    from gptsh.llm.servers import Servers

PATH = "/api/chat"
REFUSABLE = {
    "think": r"(?i)support thinking|think value|\bthink must be|ChatRequest\.think",
    "format": r"(?i)\bformat\b|schema|grammar",
}
THINKING = "thinking"  # the field of reasoning, in both directions
_BESIDE_OPTIONS = ("keep_alive", "think", "format", "tools", "logprobs", "top_logprobs", "truncate", "shift")
_NOT_TAKEN = {"image": "images by URL", "document": "documents", "audio": "audio"}
_KNOWN = {"message", "done", "error"}
_OF_USAGE = ("_count", "_duration")


def body(
    request: Request, provider: Provider, refused: Collection[str] = (), servers: "Servers | None" = None
) -> dict[str, Any]:
    """The JSON body, without the fields that are refused. The server may be asked how the model is loaded.

    Without ``truncate`` and ``shift`` it drops what is oldest and reports nothing; with them it refuses.
    """
    params = fit(request.params, provider).sent
    beside = {name: params.pop(name) for name in _BESIDE_OPTIONS if name in params}
    options = {**as_dict(params.pop("options", None)), **params}  # what it does not know it only logs
    if "max_tokens" in options:
        options["num_predict"] = options.pop("max_tokens")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    if servers and (window := servers.num_ctx(provider, request.tokens, options.get("num_ctx"))):
        options["num_ctx"] = window
    sent = {
        "model": provider.model,
        "messages": list(_messages(request, provider)),
        "stream": request.stream,
        "truncate": False,
        "shift": False,
        **beside,
        **({"format": request.schema} if request.schema is not None else {}),
        **({"options": options} if options else {}),
    }
    if request.tools:
        sent["tools"] = [{"type": "function", "function": tool._asdict()} for tool in request.tools]
    return {name: value for name, value in sent.items() if name not in refused}


def accepts(part: Part, _provider: Provider) -> bool:
    """Whether a question has a place for what a part carries."""
    media = media_of(part)
    return media is not None and media.kind == "image" and media.data is not None


def read(response: "Response", provider: Provider, answer: Answer, servers: "Servers") -> Iterator[Event]:
    """What is seen of the answer. The server may be asked for its window."""
    return sse.read(json_lines(response.chunks()), Reader(answer, lambda: servers.loaded_window(provider)))


def _messages(request: Request, provider: Provider) -> Iterator[dict[str, Any]]:
    """The messages in Ollama's shape; thinking goes back to its own model alone, within its turn."""
    latest = max((at for at, message in enumerate(request.messages) if starts_turn(message)), default=0)
    names: dict[str, str] = {}  # of the functions, by call
    for at, message in enumerate(request.messages):
        parts, images = [], []
        for part in parts_of(message):
            media = media_of(part)
            if media and accepts(part, provider):
                images.append(media.data)
            elif is_text(part):
                parts.append(part)
            else:
                lacks = f"Ollama takes no {_NOT_TAKEN[media.kind]}" if media else "Ollama takes text and images"
                parts.append(not_sent(part, lacks))
        calls = []
        for call in message.get("tool_calls") or ():
            name = call["function"]["name"]
            names[call["id"]] = name
            calls.append(
                {"id": call["id"], "function": {"name": name, "arguments": as_object(call["function"]["arguments"])}}
            )
        thought = as_dict(message.get("replay")).get(THINKING)
        is_own = at > latest and is_answer_of(message, provider.name, request.model)
        more = {"images": images, THINKING: thought if is_own else None, "tool_calls": calls}
        if message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            more |= {"tool_name": message.get("name") or names.get(call_id), "tool_call_id": call_id}
        text = text_of({**message, "content": parts}) + (message.get("refusal") or "")
        yield {"role": message["role"], "content": text, **{key: value for key, value in more.items() if value}}


# ---- answers


def json_lines(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Each line of a body as an object. Raises ModelError for one that is none, and for what is no answer."""
    lines = filter(bytes.strip, sse.lines(chunks))
    for number, line in enumerate(lines):
        try:
            found = load(line)
        except ModelError:
            if number and next(lines, None) is None:  # the end of the stream has cut it off
                return
            raise
        if not number and not _KNOWN & set(found):
            raise ModelError("the response is no answer of Ollama", ADVICE, detail=debug_text(line))
        yield found


class Reader(sse.Reader):
    """Writes the lines of one answer into it. ``window`` looks up with which one the model was used."""

    def __init__(self, answer: Answer, window: Callable[[], int | None]) -> None:
        super().__init__(answer)
        self._window = window

    def add(self, line: dict[str, Any]) -> bool:
        """One line; whether it was the last. Raises ModelError or TooLong for an error."""
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
            called = {"name": name if isinstance(name, str) else "", "arguments": arguments}
            answer.add_call({"id": call_id if isinstance(call_id, str) else "", "type": "function", "function": called})
        if line.get("error"):
            raise reported(line["error"], line)
        if line.get("done") is not True:
            return False
        usage = usage_from({key: value for key, value in line.items() if key.endswith(_OF_USAGE)})
        window = self._window()
        reason = line.get("done_reason")  # older servers end a whole answer with ``done`` alone
        reason = reason if isinstance(reason, str) and reason else "stop"
        if reason == "length" and window:
            usage["raw"][WINDOW_KEY] = window
        answer.usage = usage if usage["raw"] else None
        answer.finish("tool_calls" if answer.calls and reason == "stop" else reason)
        return True
