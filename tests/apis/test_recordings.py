"""Recorded answers of providers are read as their own fields say. Skipped where the recordings are not there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gptsh.content.answer import Answer
from gptsh.errors import ModelError
from gptsh.llm import gemini
from gptsh.messages import Request, text_of
from tests.support.apis import at, read_body
from tests.support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "recordings"


def recorded(api: str) -> list[Path]:
    """The recorded answers of an API; one that is missing if there are none."""
    return sorted((FOLDER / api).glob("*.response.*")) or [FOLDER / api]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def recorded_answer(path: Path, data: bytes, size: int = 1 << 20) -> Answer:
    """The answer that gptsh reads, of a body in pieces of this size; the folder is named after its API."""
    answer = Answer()
    media_type = "text/event-stream" if path.suffix == ".sse" else "application/json"
    read_body(path.parent.name, pieces(data, size), answer, media_type)
    return answer


def final_response(path: Path, data: bytes) -> Any:
    """The whole response, in a stream the last event."""
    return json.loads(data if path.suffix == ".json" else data.rsplit(b"data: ", 1)[1])


@pytest.mark.parametrize("path", recorded("responses"), ids=lambda path: path.name)
def test_a_response_is_read_as_its_items_say(path: Path) -> None:
    if not path.is_file():
        pytest.skip("no recordings")
    data = path.read_bytes()
    whole = final_response(path, data)
    if whole.get("error"):
        with pytest.raises(ModelError, match="does not exist"):
            recorded_answer(path, data)
        return
    whole = whole.get("response", whole)
    message = recorded_answer(path, data, 7).message()
    assert message is not None
    output = whole["output"]
    usage = whole["usage"]
    texts = [
        part["text"] for item in output if item["type"] == "message" for part in item["content"]
    ]
    calls = [
        (item["call_id"], item["name"], item["arguments"])
        for item in output
        if item["type"] == "function_call"
    ]
    made = [(call["id"], *call["function"].values()) for call in message.get("tool_calls", ())]
    assert message["content"] == "".join(texts)
    assert made == calls
    assert message["finish_reason"] == ("tool_calls" if calls else "stop")
    assert message["response_id"] == whole["id"]
    assert message["resolved_model"] == whole["model"]
    counts = message["usage"]
    assert counts is not None
    assert counts["prompt"] == usage["input_tokens"]
    assert counts["completion"] == usage["output_tokens"]
    assert counts["total"] == usage["total_tokens"]
    assert counts["reasoning_tokens"] == usage["output_tokens_details"]["reasoning_tokens"]
    kept = message.get("replay", {}).get("items", [])
    assert [item["type"] for item in kept] == (
        [item["type"] for item in output] if kept else ["message"][:0]
    )
    for item, own in zip(output, kept, strict=False):
        assert item == own or item["type"] in ("message", "function_call")


@pytest.mark.parametrize("path", recorded("responses"), ids=lambda path: path.name)
def test_a_response_cut_at_any_byte_is_never_taken_for_a_whole_one(path: Path) -> None:
    if path.suffix != ".sse":
        pytest.skip("no stream")
    data = path.read_bytes()
    whole = recorded_answer(path, data).message()
    assert whole
    text = str(whole["content"])
    end = data.rindex(b"\nevent: ")
    for size in range(1, end, 1 + end // 200):
        answer = Answer()
        with pytest.raises(ModelError):
            read_body(path.parent.name, [data[:size]], answer)
        part = answer.message("error")
        assert part is None or text.startswith(str(part["content"]))


# ---- Google's generateContent


@pytest.mark.parametrize("path", recorded("gemini"), ids=lambda path: path.name)
def test_an_answer_of_google_is_read_as_its_parts_say(path: Path) -> None:
    if not path.is_file():
        pytest.skip("no recordings")
    data = path.read_bytes()
    lines = [data] if path.suffix == ".json" else data.split(b"data: ")[1:]
    documents = [json.loads(line) for line in lines]
    if "error" in documents[0]:
        with pytest.raises(ModelError, match="is not found for API version v1beta"):
            recorded_answer(path, data)
        return
    message = recorded_answer(path, data, 7).message()
    assert message is not None
    parts = [
        part
        for document in documents
        for part in document["candidates"][0]["content"].get("parts", ())
    ]
    texts = [part["text"] for part in parts if "text" in part and not part.get("thought")]
    thoughts = [part["text"] for part in parts if part.get("thought")]
    calls = [
        (part["functionCall"]["name"], part["functionCall"]["args"])
        for part in parts
        if "functionCall" in part
    ]
    functions = [made["function"] for made in message.get("tool_calls", ())]
    assert text_of(message) == "".join(texts)
    assert [
        (function["name"], json.loads(function["arguments"])) for function in functions
    ] == calls
    assert message.get("replay", {}).get("reasoning", "") == "".join(thoughts)
    last = documents[-1]
    reason = last["candidates"][0]["finishReason"]
    ours = {"STOP": "tool_calls" if calls else "stop", "MAX_TOKENS": "length"}.get(reason, reason)
    assert message["finish_reason"] == ours
    assert message["response_id"] == last["responseId"]
    counts = last["usageMetadata"]
    usage = message["usage"]
    assert usage
    assert usage["total"] == counts["totalTokenCount"]
    assert (usage["prompt"] or 0) + (usage["completion"] or 0) == usage["total"]
    assert usage["completion"] == counts.get("candidatesTokenCount", 0) + counts.get(
        "thoughtsTokenCount", 0
    )
    # What goes back to the same model: every part but thoughts, only texts without a signature are joined.
    asked = {**message, "provider": "gemini", "model": "gemini/m"}
    turn: Any = [{"role": "user", "content": "q"}, asked, {"role": "user", "content": "and?"}]
    body = gemini.body(Request("gemini/m", turn, {}), at("gemini"))
    own = [
        part
        for content in body["contents"]
        if content["role"] == "model"
        for part in content["parts"]
    ]
    if ours not in ("stop", "tool_calls"):
        return
    signatures = [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
    sent = [part["thoughtSignature"] for part in own if "thoughtSignature" in part]
    assert sent == signatures or (not signatures and sent == ["skip_thought_signature_validator"])
    others = [part for part in parts if "text" not in part and "functionCall" not in part]
    assert [part for part in own if "text" not in part and "functionCall" not in part] == others


@pytest.mark.parametrize("path", recorded("gemini"), ids=lambda path: path.name)
def test_an_answer_of_google_cut_at_any_byte_is_never_taken_for_a_whole_one(path: Path) -> None:
    if path.suffix != ".sse":
        pytest.skip("no stream")
    data = path.read_bytes()
    whole = recorded_answer(path, data).message()
    assert whole
    end = len(data.rstrip())
    for size in range(1, end, 1 + end // 200):
        answer = Answer()
        with pytest.raises(ModelError):
            read_body(path.parent.name, [data[:size]], answer)
        part = answer.message("error")
        assert part is None or text_of(whole).startswith(text_of(part))
