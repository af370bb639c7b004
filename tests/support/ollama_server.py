"""A scripted Ollama on loopback: refuses what Go's types refuse, loads models, and enforces their windows."""

import base64
import binascii
import json
from typing import Any, NamedTuple

from tests.support.server import ModelServer, Script

TOP = {"model", "messages", "stream", "format", "keep_alive", "tools", "options", "think", "truncate", "shift",
       "logprobs", "top_logprobs"}  # fmt: skip
MESSAGE = {"role", "content", "thinking", "images", "tool_calls", "tool_name", "tool_call_id"}
WITHOUT_TRUNCATION = "the prompt is longer than the context length currently available to the model; shorten the prompt"
# The types of its options: their names in Ollama and in Python. An integer may be a float.
INTEGERS = (
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "num_keep",
    "seed",
    "num_predict",
    "top_k",
)
FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)
OPTIONS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(INTEGERS, ("integer", (int, float))), **dict.fromkeys(FLOATS, ("float32", (int, float))),
    "use_mmap": ("boolean", (bool,)), "stop": ("array", (list,)),
}  # fmt: skip
# Options of a runner: a request with other values starts another runner.
RUNNER = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap")


class Model(NamedTuple):
    """A model of the server: its windows in tokens, its abilities, and the bytes of its file."""

    trained: int | None = 131072
    num_ctx: int | None = None  # set in its Modelfile
    abilities: tuple[str, ...] | None = ("completion", "tools", "thinking", "vision")
    size: int = 4_900_000_000


def line(content: str = "", **more: Any) -> dict[str, Any]:
    """One line of an answer; ``thinking`` and ``tool_calls`` go into its message, other keys into the line."""
    inner = {key: more.pop(key) for key in ("thinking", "tool_calls") if key in more}
    message = {"role": "assistant", "content": content, **inner}
    return {
        "model": "m",
        "created_at": "2026-11-21T10:00:00Z",
        "message": message,
        "done": False,
        **more,
    }


def last(
    reason: str | None = "stop", prompt: int | None = 11, completion: int = 5, **more: Any
) -> dict[str, Any]:
    """The last line of an answer."""
    counts: dict[str, Any] = {"prompt_eval_count": prompt} if prompt else {}
    counts |= {"eval_count": completion, "total_duration": 9_000_000, "load_duration": 1_000_000}
    ended = {"done_reason": reason} if reason else {}
    return line(**{**ended, **counts, **more, "done": True})


def ndjson(*lines: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in lines)


def complaint(body: dict[str, Any]) -> str | None:
    """Why the server refuses a request; None if it is valid."""
    if unknown := set(body) - TOP:
        return f"unknown fields {sorted(unknown)}"
    if body.get("think") not in (None, True, False, "low", "medium", "high", "max"):
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
    """The error for a known option; about others, Ollama only logs a warning."""
    for name, value in options.items():
        kind, types = OPTIONS.get(name, ("", (object,)))
        odd_flag = isinstance(value, bool) and kind not in (
            "",
            "boolean",
        )  # a bool is an int in Python
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
    if any(
        not isinstance(call["function"]["arguments"], dict)
        for call in message.get("tool_calls", ())
    ):
        return "cannot unmarshal into Go struct field ToolCallFunction.arguments"
    try:
        for image in message.get("images", ()):
            base64.b64decode(image, validate=True)
    except (binascii.Error, TypeError):
        return "illegal base64 data at input byte 0"
    return None


def size_of(body: dict[str, Any]) -> int:
    """Tokens of the prompt, as counted by this server."""
    return sum(
        8 + len(message["content"]) // 4 + 768 * len(message.get("images", ()))
        for message in body["messages"]
    )


class OllamaServer(ModelServer):
    """``models`` has the models by name with tag, ``loaded`` those in memory with the options of their runners.

    ``loads`` has the starts of runners, each with the model's name and window. ``own`` is the default window, if
    neither the request nor the model sets one. A queued answer waits for a valid request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.root = self.base_url.removesuffix("/v1")
        self.models = {"m:latest": Model()}
        self.loaded: dict[str, dict[str, Any]] = {}
        self.loads: list[tuple[str, int]] = []
        self.own = 4096

    def answer(self, *lines: dict[str, Any], model: str = "") -> None:
        """Queue an answer of these lines."""
        self.script(ndjson(*lines), model=model, headers={"Content-Type": "application/x-ndjson"})

    def paths(self) -> list[str]:
        """The paths of the requests, in order."""
        return [asked.path for asked in self.requests]

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The bodies of the chat requests."""
        return [asked.body for asked in self.requests if asked.path == "/api/chat"]

    def _next(self, body: Any) -> Script:
        path = self.requests[-1].path
        if path == "/api/tags":
            return _json(
                {
                    "models": [
                        {"name": name, "model": name, "size": m.size}
                        for name, m in self.models.items()
                    ]
                }
            )
        if path == "/v1/models":
            return _json(
                {
                    "object": "list",
                    "data": [{"id": name, "object": "model"} for name in self.models],
                }
            )
        if path == "/api/ps":
            running = [
                {"name": name, "model": name, "context_length": r["num_ctx"]}
                for name, r in self.loaded.items()
            ]
            return _json({"models": running})
        if path not in ("/api/show", "/api/chat"):
            return Script(404, {"Content-Type": "text/plain"}, (b"404 page not found",), "length")
        name = body["model"] if ":" in body["model"] else f"{body['model']}:latest"
        if name not in self.models:
            return _json({"error": f"model '{body['model']}' not found"}, 404)
        return (
            self._show(self.models[name])
            if path == "/api/show"
            else self._chat(name, self.models[name], body)
        )

    def _show(self, model: Model) -> Script:
        shown: dict[str, Any] = {"model_info": {"general.architecture": "llama"}, "details": {}}
        if model.trained:
            shown["model_info"]["llama.context_length"] = model.trained
        if model.num_ctx:
            shown["parameters"] = f'stop         "<|eot|>"\nnum_ctx      {model.num_ctx}'
        if model.abilities is not None:
            shown["capabilities"] = model.abilities
        return _json(shown)

    def _chat(self, name: str, model: Model, body: dict[str, Any]) -> Script:
        abilities = model.abilities or ("completion",)
        if wrong := complaint(body):
            return _json(
                {"error": wrong}, 500 if wrong.startswith("option ") else 400
            )  # an error while loading the model
        if body.get("think") and "thinking" not in abilities:
            return _json({"error": f'"{body["model"]}" does not support thinking'}, 400)
        if body.get("tools") and "tools" not in abilities:
            return _json(
                {"error": f"registry.ollama.ai/library/{name} does not support tools"}, 400
            )
        window = self._load(name, model, body)
        if size_of(body) > window and not body.get("truncate", True):
            return _json({"error": WITHOUT_TRUNCATION}, 400)
        queue = self._scripts[body["model"]] or self._scripts[""]
        return queue.popleft() if queue else self._echo(body)

    def _load(self, name: str, model: Model, body: dict[str, Any]) -> int:
        options = {"num_ctx": model.num_ctx, **body.get("options", {})}
        runner = {key: options[key] for key in RUNNER if options.get(key)} | {
            "shift": body.get("shift", True)
        }
        before = self.loaded.get(name, {})
        own = min(self.own, model.trained or self.own)
        runner["num_ctx"] = min(
            runner.get("num_ctx") or before.get("num_ctx", own), model.trained or 1 << 40
        )
        if runner != before:
            self.loaded[name] = runner
            self.loads.append((name, runner["num_ctx"]))
        return int(runner["num_ctx"])

    def _echo(self, body: dict[str, Any]) -> Script:
        echo = f"You said: {body['messages'][-1]['content']}"
        counts = {"prompt": size_of(body), "completion": 5}
        if body.get("stream") is False:
            return _json({**last(**counts), "message": {"role": "assistant", "content": echo}})
        pieces = [line(echo[at : at + 8]) for at in range(0, len(echo), 8)]
        steps = tuple(ndjson(each) for each in (*pieces, last(**counts)))
        return Script(200, {"Content-Type": "application/x-ndjson"}, steps, "chunked")


def _json(payload: Any, status: int = 200) -> Script:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    return Script(status, headers, (json.dumps(payload).encode(),), "length")
