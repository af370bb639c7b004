"""A scripted Ollama on loopback, strict about what its Go types refuse, that loads models and minds their windows."""

import base64
import binascii
import json
from typing import Any, NamedTuple

from tests.support.server import ModelServer, Script

TOP = {"model", "messages", "stream", "format", "keep_alive", "tools", "options", "think", "truncate", "shift",
       "logprobs", "top_logprobs"}  # fmt: skip
MESSAGE = {"role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id"}
WITHOUT_TRUNCATION = "the prompt is longer than the context length currently available to the model; shorten the prompt"
# The types of its options, in its words and here; a whole number may be any.
WHOLE = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "seed", "num_predict", "top_k")
FLOATS = ("temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
OPTIONS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(WHOLE, ("integer", (int, float))), **dict.fromkeys(FLOATS, ("float32", (int, float))),
    "use_mmap": ("boolean", (bool,)), "stop": ("array", (list,)),
}  # fmt: skip
# What a runner is started with: a request that says otherwise starts another.
RUNNER = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap")


class Known(NamedTuple):
    """A model that the server has: its windows in tokens, and what it can do."""

    trained: int | None = 131072
    num_ctx: int | None = None  # what its file sets
    abilities: tuple[str, ...] | None = ("completion", "tools", "thinking", "vision")


def line(content: str = "", **more: Any) -> dict[str, Any]:
    """One line of an answer; ``thinking`` and ``tool_calls`` stand in its message, all else beside it."""
    inner = {key: more.pop(key) for key in ("thinking", "tool_calls") if key in more}
    message = {"role": "assistant", "content": content, **inner}
    return {"model": "m", "created_at": "2026-11-21T10:00:00Z", "message": message, "done": False, **more}


def last(reason: str | None = "stop", prompt: int | None = 11, completion: int = 5, **more: Any) -> dict[str, Any]:
    """The line that ends an answer."""
    counts: dict[str, Any] = {"prompt_eval_count": prompt} if prompt else {}
    counts |= {"eval_count": completion, "total_duration": 9_000_000, "load_duration": 1_000_000}
    ended = {"done_reason": reason} if reason else {}
    return line(**{**ended, **counts, **more, "done": True})


def ndjson(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in lines)


def complaint(body: dict[str, Any]) -> str | None:
    """What the server refuses about a request; None for a good one."""
    if unknown := set(body) - TOP:
        return f"unknown fields {sorted(unknown)}"
    if body.get("think") not in (None, True, False, "low", "medium", "high"):
        return f"invalid think value: {body['think']!r}"
    if wrong := _wrong_option(body.get("options", {})):
        return wrong
    calls: set[str] = set()
    for message in body["messages"]:
        if wrong := _wrong(message, calls):
            return wrong
        calls -= {message.get("tool_call_id", "")}
        calls |= {call["id"] for call in message.get("tool_calls", ())}
    return "tool call without its result" if calls else None


def _wrong_option(options: dict[str, Any]) -> str | None:
    """What is refused about an option that it knows; others it only warns about, in its log."""
    for name, value in options.items():
        kind, types = OPTIONS.get(name, ("", (object,)))
        odd_flag = isinstance(value, bool) and kind not in ("", "boolean")  # which Python takes for an int
        if value is not None and (odd_flag or not isinstance(value, types)):
            return f'option "{name}" must be of type {kind}'
    return None


def _wrong(message: dict[str, Any], calls: set[str]) -> str | None:
    if set(message) - MESSAGE or message.get("role") not in ("system", "user", "assistant", "tool"):
        return f"unknown role or keys: {message.get('role')!r}, {sorted(message)}"
    if not isinstance(message.get("content"), str):
        return "cannot unmarshal into Go struct field ChatRequest.messages.content of type string"
    if message["role"] == "tool" and message.get("tool_call_id") not in calls:
        return "tool result without its call"
    if any(not isinstance(call["function"]["arguments"], dict) for call in message.get("tool_calls", ())):
        return "cannot unmarshal into Go struct field ToolCallFunction.arguments"
    try:
        for image in message.get("images", ()):
            base64.b64decode(image, validate=True)
    except (binascii.Error, TypeError):
        return "illegal base64 data at input byte 0"
    return None


def size_of(body: dict[str, Any]) -> int:
    """Tokens of the prompt, as this server counts them."""
    return sum(8 + len(message["content"]) // 4 + 768 * len(message.get("images", ())) for message in body["messages"])


class OllamaServer(ModelServer):
    """``models`` are what it has, by name with tag, ``loaded`` what of them is in memory, with what it was started.

    ``loads`` are the starts of runners, each with the model's name and window. ``own`` is the window that the server
    chooses where neither request nor model do. Queued answers are given once a request has passed all of that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = self.base_url.removesuffix("/v1")
        self.models = {"m:latest": Known()}
        self.loaded: dict[str, dict[str, Any]] = {}
        self.loads: list[tuple[str, int]] = []
        self.own = 4096

    def answer(self, *lines: dict[str, Any], model: str = "") -> None:
        """Queue an answer of these lines."""
        self.script(ndjson(*lines), model=model, headers={"Content-Type": "application/x-ndjson"})

    def paths(self) -> list[str]:
        """What was asked, in order."""
        return [asked.path for asked in self.asked]

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The bodies of the questions."""
        return [asked.body for asked in self.asked if asked.path == "/api/chat"]

    def _next(self, body: Any) -> Script:
        path = self.asked[-1].path
        if path == "/api/tags":
            return _json({"models": [{"name": name, "model": name} for name in self.models]})
        if path == "/v1/models":
            return _json({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})
        if path == "/api/ps":
            running = [{"name": name, "model": name, "context_length": r["num_ctx"]} for name, r in self.loaded.items()]
            return _json({"models": running})
        if path not in ("/api/show", "/api/chat"):
            return Script(404, {"Content-Type": "text/plain"}, (b"404 page not found",), "length")
        name = body["model"] if ":" in body["model"] else f"{body['model']}:latest"
        if name not in self.models:
            return _json({"error": f"model '{body['model']}' not found"}, 404)
        return self._show(self.models[name]) if path == "/api/show" else self._chat(name, self.models[name], body)

    def _show(self, known: Known) -> Script:
        shown: dict[str, Any] = {"model_info": {"general.architecture": "llama"}, "details": {}}
        if known.trained:
            shown["model_info"]["llama.context_length"] = known.trained
        if known.num_ctx:
            shown["parameters"] = f'stop         "<|eot|>"\nnum_ctx      {known.num_ctx}'
        if known.abilities is not None:
            shown["capabilities"] = known.abilities
        return _json(shown)

    def _chat(self, name: str, known: Known, body: dict[str, Any]) -> Script:
        abilities = known.abilities or ("completion",)
        if wrong := complaint(body):
            return _json({"error": wrong}, 500 if wrong.startswith("option ") else 400)  # found as it loads the model
        if body.get("think") and "thinking" not in abilities:
            return _json({"error": f'"{body["model"]}" does not support thinking'}, 400)
        if body.get("tools") and "tools" not in abilities:
            return _json({"error": f"registry.ollama.ai/library/{name} does not support tools"}, 400)
        window = self._load(name, known, body)
        if size_of(body) > window and not body.get("truncate", True):
            return _json({"error": WITHOUT_TRUNCATION}, 400)
        queue = self._scripts[body["model"]] or self._scripts[""]
        return queue.popleft() if queue else self._echo(body)

    def _load(self, name: str, known: Known, body: dict[str, Any]) -> int:
        options = {"num_ctx": known.num_ctx, **body.get("options", {})}
        runner = {key: options[key] for key in RUNNER if options.get(key)} | {"shift": body.get("shift", True)}
        before = self.loaded.get(name, {})
        own = min(self.own, known.trained or self.own)
        runner["num_ctx"] = min(runner.get("num_ctx") or before.get("num_ctx", own), known.trained or 1 << 40)
        if runner != before:
            self.loaded[name] = runner
            self.loads.append((name, runner["num_ctx"]))
        return int(runner["num_ctx"])

    def _echo(self, body: dict[str, Any]) -> Script:
        said, counts = f"You said: {body['messages'][-1]['content']}", {"prompt": size_of(body), "completion": 5}
        if body.get("stream") is False:
            return _json({**last(**counts), "message": {"role": "assistant", "content": said}})
        pieces = [line(said[at : at + 8]) for at in range(0, len(said), 8)]
        steps = tuple(ndjson(each) for each in (*pieces, last(**counts)))
        return Script(200, {"Content-Type": "application/x-ndjson"}, steps, "chunked")


def _json(payload: Any, status: int = 200) -> Script:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return Script(status, headers, (json.dumps(payload).encode(),), "length")
