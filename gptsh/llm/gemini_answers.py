"""Read an answer of Google's Gemini API: text, thoughts, signatures, tool calls, sources (citations), web searches."""

import json
from collections.abc import Iterator
from typing import Any

from gptsh.content.answer import Answer
from gptsh.errors import ModelError
from gptsh.jsonio import as_dict, as_dicts, as_str
from gptsh.llm import reading_loop, sse
from gptsh.llm.json_bodies import ADVICE, debug_text
from gptsh.llm.reported_errors import reported_error
from gptsh.messages import Part
from gptsh.models.usage import usage_from

PARTS = "parts"  # key of ``replay``: the parts of an answer, if they are more than a text and calls
SIGNATURE = "thoughtSignature"
_REASONING = "reasoning"  # the key under which ``replay`` has the thoughts as text
_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}  # by the names of chat completions; others stay
_TEXT: Part = {"text": None}  # the frame of a text without a signature
_CALL: Part = {"functionCall": None}


def as_documents(document: dict[str, Any], body: bytes) -> Iterator[dict[str, Any]]:
    """An answer that is not streamed: the one document of its stream. --debug shows ``body`` if it is not one."""
    if not document.keys() & {"candidates", "promptFeedback", "error"}:
        raise ModelError("the response is not one of Google's generateContent", ADVICE, detail=debug_text(body))
    yield document


class Reader(reading_loop.Reader):
    """Writes the documents of one answer into an ``Answer``; each has the next parts. There is no last one."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self._frames: list[Part] = []  # the parts, without the texts and calls that the message holds
        self._finish = ""
        self._searches: set[str] = set()  # what Google's own search was asked

    def add(self, payload: dict[str, Any]) -> bool:
        """Read one document; whether it was the last. Raises ModelError or TooLong for an error in it."""
        answer = self.answer
        if payload.get("error"):
            raise reported_error(payload["error"], payload)
        answer.response_id = as_str(payload.get("responseId")) or answer.response_id
        answer.resolved_model = as_str(payload.get("modelVersion")) or answer.resolved_model
        self._finish = as_str(as_dict(payload.get("promptFeedback")).get("blockReason")) or self._finish
        for candidate in as_dicts(payload.get("candidates")):
            if candidate.get("index") in (0, None):  # only the first of several answers
                self._add_candidate(candidate)
        usage = as_dict(payload.get("usageMetadata"))
        if "totalTokenCount" in usage or (usage and answer.usage is None):  # the last counts count
            answer.usage = usage_from(usage, searches=len(self._searches))
        if self._finish:
            answer.finish(self._reason())
        return payload is sse.DONE  # not Google's, but some gateways'

    def _add_candidate(self, candidate: dict[str, Any]) -> None:
        for part in as_dicts(as_dict(candidate.get("content")).get("parts")):
            self._add_part(part)
        self._finish = as_str(candidate.get("finishReason")) or self._finish
        found = as_dict(candidate.get("groundingMetadata"))  # by Google's own search
        queries = found.get("webSearchQueries")
        self._searches |= {str(query) for query in queries} if isinstance(queries, list) else set()
        for chunk in as_dicts(found.get("groundingChunks")):
            page = as_dict(chunk.get("web"))
            self.answer.add_source(page.get("uri"), page.get("title"))

    def end(self) -> None:
        """Save the parts, if they are more than a text and calls."""
        if self._finish:
            self.answer.finish(self._reason())
        if any(frame not in (_TEXT, _CALL) for frame in self._frames):
            self.answer.replay[PARTS] = self._frames

    def _add_part(self, part: Part) -> None:
        """Add a part. Texts without a signature continue each other; one with a signature stands alone."""
        if not part.keys() - {"thought", SIGNATURE}:  # it cannot go back without data
            part = {**part, "text": ""}
        text, call = part.get("text"), part.get("functionCall")
        if isinstance(call, dict):
            self._add_call(part, call)
        elif not isinstance(text, str):
            self._frames.append(part)  # of the provider's own tools
        elif part.get("thought") is True:
            self.answer.add_reasoning(text, _REASONING)
            if part.get(SIGNATURE):  # Google reads no summary of a thought, only its own
                self._frames.append(part)
        elif text:
            self._add_text(part, text)
        elif part.keys() - {"text"}:
            self._frames.append(part)

    def _add_call(self, part: Part, call: dict[str, Any]) -> None:
        arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
        function = {"name": as_str(call.get("name")), "arguments": arguments}
        self.answer.add_call({"id": as_str(call.get("id")), "type": "function", "function": function})
        self._frames.append({**part, "functionCall": None})

    def _add_text(self, part: Part, text: str) -> None:
        frame = {**part, "text": None}
        continues = frame == _TEXT and self._frames[-1:] == [_TEXT]
        if not continues:
            self.answer.begin_text()
            self._frames.append(frame)
        self.answer.add_text(text)

    def _reason(self) -> str:
        """The finish reason; Google has none of its own for calls."""
        if self._finish == "STOP" and self.answer.calls:
            return "tool_calls"
        return _REASONS.get(self._finish, self._finish)
