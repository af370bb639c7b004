"""Each request of a session begins with the whole previous one, on each API: so that prompt caches hit."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptsh.context.sendable import as_sent, build_messages, make_sendable
from gptsh.messages import Request, Tool
from tests.support.anthropic_server import signature
from tests.support.apis import APIS, at

PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}, "source": "a.png"}
TOOLS = [Tool("look", "Look.", {"type": "object", "properties": {}})]
LISTS = ("messages", "input", "contents")  # the key of the conversation in each API
TURN = st.fixed_dictionaries(
    {"words": st.text(min_size=1, max_size=8).filter(str.strip), "image": st.booleans(), "thinks": st.booleans(),
     "rounds": st.integers(0, 2), "answer": st.sampled_from(["Yes.", "No.\n", " spaced "])},
)  # fmt: skip


def messages_of(turns: list[dict[str, Any]], provider: str) -> list[dict[str, Any]]:
    """The messages of a session whose answers all came from the model ``m`` of this provider."""
    own = {"provider": provider, "model": f"{provider}/m", "finish_reason": "stop"}
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        parts = [{"type": "text", "text": turn["words"]}, *([PNG] if turn["image"] else [])]
        messages.append(
            {
                "role": "user",
                "content": parts if turn["image"] else turn["words"],
                "id": f"q{number}",
            }
        )
        thinking = (
            [{"type": "thinking", "thinking": "hm", "signature": signature("hm")}]
            if turn["thinks"]
            else []
        )
        more = {**own, **({"thinking": thinking} if thinking else {})}
        for at_round in range(turn["rounds"]):
            call_id = f"call_{number}_{at_round}"
            call = {
                "id": call_id,
                "type": "function",
                "function": {"name": "look", "arguments": "{}"},
            }
            messages.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call],
                    **more,
                    "id": f"c{call_id}",
                }
            )
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": call_id,
                    "name": "look",
                    "content": "seen",
                    "id": call_id,
                }
            )
            more = own
        messages.append(
            {"role": "assistant", "content": turn["answer"], **more, "id": f"a{number}"}
        )
    return messages


def conversation(api: str, messages: list[dict[str, Any]]) -> list[Any]:
    """The conversation in the body of a request, without cache marks."""
    messages = make_sendable(as_sent(message) for message in messages)
    provider = at(api).provider
    prompt = build_messages(messages, "Brief.", provider, f"{provider}/m")
    body = json.loads(APIS[api](Request(f"{provider}/m", prompt, {}, True, None, TOOLS, 100)))
    found: list[Any] = next(body[key] for key in LISTS if key in body)
    return json.loads(json.dumps(found, sort_keys=True), object_hook=_without_mark)


def _without_mark(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != "cache_control"}


@pytest.mark.parametrize("api", [name for name in APIS if name != "vertex_ai"])
@settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
@given(turns=st.lists(TURN, min_size=2, max_size=5))
def test_each_request_begins_with_the_whole_previous_one(
    api: str, turns: list[dict[str, Any]]
) -> None:
    messages = messages_of(turns, at(api).provider)
    ends = [at + 1 for at, message in enumerate(messages) if message["role"] != "assistant"]
    before: list[Any] = []
    for end in ends:
        after = conversation(api, messages[:end])
        assert after[: len(before)] == before, json.dumps([before, after])[:2000]
        before = after
