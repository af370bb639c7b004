"""A server on loopback with Google's generateContent, which refuses what the real one refuses.

It signs thoughts, and checks that a signature comes back in the part that it was sent with.
"""

import hashlib
import json
import re
from typing import Any
from urllib.parse import urlsplit

from tests.support.server import ModelServer, Script

USAGE = {
    "promptTokenCount": 11, "cachedContentTokenCount": 4, "candidatesTokenCount": 2, "thoughtsTokenCount": 3,
    "toolUsePromptTokenCount": 5, "totalTokenCount": 21,
}  # fmt: skip
FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "cachedContent", "generationConfig",
          "store", "labels", "serviceTier"}  # fmt: skip
CONFIG = {
    "temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "presencePenalty", "frequencyPenalty",
    "responseMimeType", "responseJsonSchema", "responseModalities", "thinkingConfig",
}  # fmt: skip
DATA = {"text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult",
        "toolCall", "toolResponse"}  # fmt: skip
CORRUPTED = "Corrupted thought signature."
UNANSWERED = "Please ensure that the number of function response parts equals that of the calls."
UNSIGNED = "skip_thought_signature_validator"


def signed(part: dict[str, Any]) -> dict[str, Any]:
    """A part with its signature."""
    return {**part, "thoughtSignature": signature(part)}


def signature(part: dict[str, Any]) -> str:
    """The signature of a part: it is valid for this part alone. A call's id does not count."""
    call = part.get("functionCall")
    data = {**part, "functionCall": [call["name"], call.get("args")]} if call else part
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def thought(text: str) -> dict[str, Any]:
    """A part with the summary of a thought."""
    return {"text": text, "thought": True}


def call(name: str, args: dict[str, Any], call_id: str = "") -> dict[str, Any]:
    """A part with a call of a function; older models send no id."""
    return {"functionCall": {**({"id": call_id} if call_id else {}), "name": name, "args": args}}


def document(
    *parts: dict[str, Any], finish: str = "", usage: Any = USAGE, **more: Any
) -> dict[str, Any]:
    """One document of a stream."""
    content: dict[str, Any] = {"parts": list(parts), "role": "model"} if parts else {}
    candidate = {"content": content, "index": 0, **({"finishReason": finish} if finish else {})}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3.8-flash",
            "responseId": "r1", **more}  # fmt: skip


def documents(*parts: dict[str, Any], finish: str = "STOP") -> list[dict[str, Any]]:
    """The documents of an answer: one for each part, its text in pieces if it is not signed."""
    pieces: list[dict[str, Any]] = []
    for part in parts:
        text = part.get("text", "")
        is_whole = "thoughtSignature" in part or not text
        pieces += (
            [part]
            if is_whole
            else [{**part, "text": text[at : at + 8]} for at in range(0, len(text), 8)]
        )
    early = {"promptTokenCount": 11, "totalTokenCount": 11}
    found = [document(piece, usage=early) for piece in pieces[:-1]]
    return [*found, document(*pieces[-1:], finish=finish)]


def event(payload: Any) -> bytes:
    """One server-sent event, with the line ends of Google."""
    return b"data: " + json.dumps(payload).encode() + b"\r\n\r\n"


def stream(*parts: dict[str, Any], finish: str = "STOP") -> list[bytes]:
    """A streamed answer with these parts."""
    return [event(found) for found in documents(*parts, finish=finish)]


def error(code: int, message: str, status: str = "INVALID_ARGUMENT", **more: Any) -> dict[str, Any]:
    """The body of an error."""
    return {"error": {"code": code, "message": message, "status": status, **more}}


def complaint(body: dict[str, Any], model: str = "gemini-3.8-flash") -> str | None:
    """The API's error for a request; None if it is valid."""
    config = body.get("generationConfig", {})
    if unknown := [*(set(body) - FIELDS), *(set(config) - CONFIG)]:
        return f'Invalid JSON payload received. Unknown name "{min(unknown)}": Cannot find field.'
    thinking = config.get("thinkingConfig", {})
    if {"thinkingLevel", "thinkingBudget"} <= set(thinking):
        return "You can only set only one of thinking budget and thinking level."
    if "thinkingLevel" in thinking and model.startswith("gemini-2"):
        return "Thinking level is not supported for this model."
    if thinking.get("thinkingLevel") == "MINIMAL" and re.match(r"gemini-3\.[78]|gemini-4", model):
        return "Thinking level is unsupported: THINKING_LEVEL_MINIMAL"
    for tool in body.get("tools", ()):
        for function in tool.get("functionDeclarations", ()):
            if not {"name", "parametersJsonSchema"} <= set(function):
                return "function_declarations[0].name: [FIELD_INVALID]"
    return _wrong_contents(body.get("contents") or [], model)


def _wrong_contents(contents: list[dict[str, Any]], model: str) -> str | None:
    if not contents:
        return "contents is not specified"
    roles = [content["role"] for content in contents]
    alternating = ["user", "model"] * len(roles)
    if roles != alternating[: len(roles)] or roles[-1] != "user":
        return f"Please ensure that roles alternate and that the last one is the user's: {roles}"
    open_calls: list[tuple[str, str]] = []
    for content in contents:
        for part in content["parts"]:
            if wrong := _wrong_part(part, content["role"]):
                return wrong
        if sorted(_results(content)) != sorted(open_calls):
            return UNANSWERED
        calls = [part for part in content["parts"] if "functionCall" in part]
        needs_signature = not model.startswith("gemini-2")
        if needs_signature and calls and "thoughtSignature" not in calls[0]:
            return "Function call is missing a thought_signature in functionCall parts."
        open_calls = [(part["functionCall"]["id"], part["functionCall"]["name"]) for part in calls]
    return None


def _results(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The id and the function's name of each result in a content."""
    results = []
    for part in content["parts"]:
        if "functionResponse" in part:
            result = part["functionResponse"]
            results.append((result["id"], result["name"]))
    return results


def _wrong_part(part: dict[str, Any], role: str) -> str | None:
    if len(DATA & set(part)) != 1 or set(part) - DATA - {"thought", "thoughtSignature"}:
        return f"Unable to submit request because a part must have one data field: {sorted(part)}"
    if role == "user" and not {"text", "inlineData", "fileData", "functionResponse"} & set(part):
        return "a user's part"
    if part.get("text") == "" and "thoughtSignature" not in part:
        return "Unable to submit request because it must have a text parameter."
    sign = part.get("thoughtSignature")
    bare = {key: value for key, value in part.items() if key != "thoughtSignature"}
    if sign not in (None, UNSIGNED, signature(bare)):
        return CORRUPTED
    if "functionResponse" in part and set(part["functionResponse"]) != {"id", "name", "response"}:
        return "function_response.name: Name cannot be empty."
    if "functionResponse" in part and not isinstance(part["functionResponse"]["response"], dict):
        return "response: must be an object"
    if "functionCall" in part and not isinstance(part["functionCall"]["args"], dict):
        return "args: must be an object"
    return None


class GeminiServer(ModelServer):
    """Echoes the last text of the user. A queued answer waits for a valid request."""

    @property
    def google_url(self) -> str:
        """The base URL with Google's version."""
        return self.base_url.replace("/v1", "/v1beta")

    def answer(self, *parts: dict[str, Any], model: str = "", finish: str = "STOP") -> None:
        """Queue a streamed answer of these parts."""
        self.script(*stream(*parts, finish=finish), model=model)

    def _next(self, body: Any) -> Script:
        if "contents" not in (body or {}):
            return super()._next(body)
        found = re.fullmatch(
            r"/v1beta/models/([^:/]+):streamGenerateContent", urlsplit(self.requests[-1].path).path
        )
        if not found:
            return _json(404, error(404, "Requested entity was not found.", "NOT_FOUND"))
        if wrong := complaint(body, found[1]):
            return _json(400, error(400, wrong))
        queue = self._scripts[found[1]] or self._scripts[""]
        return queue.popleft() if queue else self._default(body)

    def _default(self, body: Any) -> Script:
        texts = [part.get("text") or next(iter(part)) for part in body["contents"][-1]["parts"]]
        said = signed({"text": f"You said: {' '.join(texts)}"})
        return Script(
            200,
            {"Content-Type": "text/event-stream"},
            tuple(stream(thought("Thinking."), said)),
            "chunked",
        )


def _json(status: int, payload: Any) -> Script:
    return Script(
        status, {"Content-Type": "application/json"}, (json.dumps(payload).encode(),), "length"
    )
