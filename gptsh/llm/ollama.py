"""The dialect of Ollama's own API: a request to the body of ``/api/chat``.

It is spoken since only here a request can choose the model's window, and have a prompt refused instead of cut.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gptsh.config.providers import Provider
from gptsh.content.answer import Answer, Request
from gptsh.content.attachments import Media, media_of, not_sent
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts
from gptsh.llm.chat_completions import tools
from gptsh.llm.http import Response
from gptsh.llm.ollama_models import Models, Place, place_of
from gptsh.llm.ollama_stream import THINKING, Reader, payloads
from gptsh.llm.parameters import fit
from gptsh.llm.payloads import as_object, read
from gptsh.llm.routes import Route
from gptsh.messages import Event, Message, Part, is_text, parts_of, starts_turn, text_of
from gptsh.models.names import is_by

_BESIDE_OPTIONS = ("keep_alive", "think", "format", "tools", "logprobs", "top_logprobs", "truncate", "shift")
# What a model is loaded with, and how long it stays: a request that says otherwise has it loaded again.
_LOADED_BESIDE = ("keep_alive", "shift")
_LOADED_WITH = (
    "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "numa", "low_vram"
)  # fmt: skip
_REFUSES_THINKING = re.compile(r"support thinking|think value|\bthink must be|ChatRequest\.think", re.IGNORECASE)
_REFUSES_FORMAT = re.compile(r"\bformat\b|schema|grammar", re.IGNORECASE)
_NOT_TAKEN = {"image": "images by URL", "document": "documents", "audio": "audio"}


class Ollama:
    """The dialect. It remembers what a model refuses, and what it was loaded with."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._no_thinking: set[Place] = set()
        self._no_format: set[Place] = set()
        self._loaded: dict[Place, tuple[dict[str, Any], dict[str, Any]]] = {}  # fields, options

    def url(self, route: Route) -> str:
        """Where the request goes."""
        return f"{route.provider.base_url}/api/chat"

    def body(self, request: Request, route: Route) -> dict[str, Any]:
        """What is sent. The server may be asked how the model is loaded."""
        place = place_of(route.provider, route.model)
        sent = body(request, route.model, route.provider)
        if place in self._no_thinking:
            sent.pop("think", None)
        if place in self._no_format:
            sent.pop("format", None)
        beside, options = self._loading(request, route, sent, sent.pop("options", {}))
        return {**sent, **beside, **({"options": options} if options else {})}

    def _loading(
        self, request: Request, route: Route, sent: dict[str, Any], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What to change of the fields, and the options with the window.

        A request beside another, whose size nobody tells (a title), has to leave the model as it was loaded.
        """
        place = place_of(route.provider, route.model)
        if not request.tokens and place in self._loaded:
            beside, loaded = self._loaded[place]
            return beside, {**options, **loaded}
        if "num_ctx" not in options:
            window = self._models.num_ctx(route.provider, route.model, request.tokens)
            options = {**options, **({"num_ctx": window} if window else {})}
        self._loaded[place] = _only(_LOADED_BESIDE, sent), _only(_LOADED_WITH, options)
        return {}, options

    def learns(self, err: ModelError, request: Request, route: Route) -> bool:
        """Whether the model refused to think as asked, or the answer's schema: it can be asked without."""
        place, said = place_of(route.provider, route.model), f"{err} {err.detail}"
        refuses_thinking = err.status == 400 and _REFUSES_THINKING.search(said)  # bad request
        if refuses_thinking and place not in self._no_thinking:
            self._no_thinking.add(place)
            return bool({"think", "reasoning_effort"} & set(request.params))
        if request.schema is not None and _REFUSES_FORMAT.search(said) and place not in self._no_format:
            self._no_format.add(place)
            return True
        return False

    def read(self, response: Response, route: Route, answer: Answer) -> Iterator[Event]:
        """The events of the answer. The server may be asked for its window."""
        reader = Reader(answer, lambda: self._models.allocated(route.provider, route.model))
        return read(payloads(response.chunks()), reader, answer)


def _only(names: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def body(request: Request, model: str, provider: Provider) -> dict[str, Any]:
    """The JSON body, but for a window that nobody asked for. ``model`` is the name by which the server knows it.

    ``truncate`` and ``shift``: a prompt that does not fit is refused, an answer that does not is cut; by default the
    server would drop what is oldest, and say nothing.
    """
    params = fit(request.params, provider.name, model, provider.endpoint).sent
    beside = _only(_BESIDE_OPTIONS, params)
    options = _options({name: value for name, value in params.items() if name not in beside})
    sent = {
        "model": model,
        "messages": messages(request.messages, provider.name, request.model),
        "stream": request.stream,
        "truncate": False,
        "shift": False,
        **beside,
        **tools(request),
    }
    if request.schema is not None:
        sent["format"] = request.schema
    return {**sent, "options": options} if options else sent


def _options(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters under Ollama's names; those that it does not know it only warns about, in its log."""
    options = {**as_dict(params.pop("options", None)), **params}
    if "max_tokens" in options:
        options["num_predict"] = options.pop("max_tokens")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    return options


# ---- messages


def messages(sent: Sequence[Message], provider: str, model: str) -> list[dict[str, Any]]:
    """The messages in Ollama's shape, without what only gptsh, or only another model, knows.

    Thinking goes back only to the model that thought it, while the turn in which it did goes on.
    """
    latest = max((at for at, message in enumerate(sent) if starts_turn(message)), default=0)
    names: dict[str, str] = {}  # of the functions, by call
    made = []
    for at, message in enumerate(sent):
        calls = [_call(call) for call in as_dicts(message.get("tool_calls"))]
        names |= {call["id"]: call["function"]["name"] for call in calls}
        one = _message(message)
        thought = as_dict(message.get("replay")).get(THINKING)
        if at > latest and is_by(message, provider, model) and thought and isinstance(thought, str):
            one[THINKING] = thought
        if calls:
            one["tool_calls"] = calls
        if message["role"] == "tool":
            call_id = message.get("tool_call_id", "")
            about = {"tool_name": message.get("name") or names.get(call_id), "tool_call_id": call_id}
            one |= {key: value for key, value in about.items() if value}
        made.append(one)
    return made


def _message(message: Message) -> dict[str, Any]:
    """Role, text and images."""
    seen = [(part, media_of(part)) for part in parts_of(message)]
    images = [media.data for _, media in seen if media and _is_taken(media)]
    texts = [
        part if is_text(part) else _not_taken(part, media) for part, media in seen if not (media and _is_taken(media))
    ]
    text = text_of({**message, "content": texts}) + (message.get("refusal") or "")
    return {"role": message["role"], "content": text, **({"images": images} if images else {})}


def takes(part: Part) -> bool:
    """Whether the API has a place for what a part carries."""
    media = media_of(part)
    return media is not None and _is_taken(media)


def _is_taken(media: Media) -> bool:
    return media.kind == "image" and media.data is not None


def _not_taken(part: Part, media: Media | None) -> Part:
    """A line that tells the model what it does not get."""
    return not_sent(part, f"Ollama takes no {_NOT_TAKEN[media.kind]}" if media else "Ollama takes text and images")


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call, its arguments as the object that Ollama wants."""
    function = as_dict(call.get("function"))
    named = {"name": str(function.get("name") or ""), "arguments": as_object(str(function.get("arguments") or ""))}
    return {"id": str(call.get("id") or ""), "function": named}
