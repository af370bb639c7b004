"""Strategies for documents with everything that a session can have: all content types, odd text, unknown keys."""

from typing import Any

from hypothesis import strategies as st

ODD = ["", "\0", "\u2028\u2029\u0085", "\ud800", "a\udcff", "\udc00\ud800", " \r\n", "</think>", "😀é中",
       '"\\u0041\\', "-0"]  # fmt: skip


def _joined(text: str) -> str:
    """Join surrogate pairs, like JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


TEXT = st.sampled_from(ODD) | st.text(st.characters(codec=None), max_size=12).map(_joined)
NAME = st.sampled_from(["ls", "multi.tool", "x" * 70, ""]) | TEXT
NUMBER = (
    st.integers()
    | st.sampled_from([10**300, -(2**63), 0])
    | st.floats(allow_nan=False, allow_infinity=False)
)
LEAF = st.none() | st.booleans() | NUMBER | TEXT
JSON: st.SearchStrategy[Any] = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
UNKNOWN = st.dictionaries(TEXT.map(lambda key: f"x_{key}"), JSON, max_size=2)
DATA = st.sampled_from(["", "YWJj", "iVBORw0KGgo="])
URL = st.sampled_from(
    ["https://example.com/a.png", "data:image/png;base64,YWJj", "data:application/pdf;base64,"]
)
CALL_ID = st.sampled_from(["c1", "c2", "abcdefghi", "call_" + "x" * 60, "", "functions.ls:0"])
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}', "", "{bad", "[1]", '{"a": 1e999}', "null"]) | TEXT


def table(
    required: dict[str, Any], optional: dict[str, Any] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    """An object with these keys and some unknown ones."""
    known = st.fixed_dictionaries(required, optional=optional or {})
    return st.tuples(UNKNOWN, known).map(lambda pair: {**pair[0], **pair[1]})


def _of_type(kind: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    return table({"type": st.just(kind), **required}, optional)


SOURCE = (
    st.fixed_dictionaries(
        {"type": st.just("base64"), "media_type": st.just("image/png"), "data": DATA}
    )
    | st.fixed_dictionaries({"type": st.just("url"), "url": URL})
    | st.fixed_dictionaries(
        {"type": st.just("text"), "media_type": st.just("text/plain"), "data": TEXT}
    )
    | st.fixed_dictionaries({"type": TEXT})
)
TEXT_PART = _of_type("text", {"text": TEXT}, {"source": st.sampled_from(["stdin", "a.txt"])})
MEDIA_PART = (
    _of_type("image", {"source": SOURCE})
    | _of_type("document", {"source": SOURCE}, {"title": TEXT | st.none(), "context": TEXT})
    | _of_type(
        "image_url",
        {"image_url": st.fixed_dictionaries({"url": URL})},
        {"source": st.just("a.png")},
    )
    | _of_type(
        "input_audio",
        {"input_audio": st.fixed_dictionaries({"data": DATA, "format": st.just("wav")})},
    )
    | _of_type("file", {"file": st.fixed_dictionaries({"file_data": URL, "filename": TEXT})})
)
REDACTED = _of_type("redacted_thinking", {"data": DATA})
THINKING = _of_type("thinking", {"thinking": TEXT}, {"signature": TEXT | st.none()}) | REDACTED
ODD_TYPE = st.sampled_from(
    [None, "", 7, [], ["text"], {}, {"type": "text"}, "text", "image", "tool_use", "file"]
)
ODD_PART = (
    table({"type": TEXT})
    | table({}, {"text": JSON})
    | table({"type": ODD_TYPE}, {"text": JSON, "source": JSON})
)
RESULT_PART = _of_type(
    "tool_result", {"tool_use_id": CALL_ID},
    {"content": TEXT | st.none() | st.lists(TEXT_PART | MEDIA_PART, max_size=2), "is_error": st.booleans()},
)  # fmt: skip
USE_PART = _of_type(
    "tool_use", {"id": CALL_ID, "name": NAME, "input": st.dictionaries(TEXT, JSON, max_size=2)}
)
USER_PART = TEXT_PART | MEDIA_PART | RESULT_PART | ODD_PART
ANSWER_PART = (
    TEXT_PART | USE_PART | THINKING | MEDIA_PART | ODD_PART | _of_type("refusal", {"refusal": TEXT})
)
CALL = table(
    {"id": CALL_ID, "function": table({}, {"name": NAME, "arguments": ARGUMENTS | st.none()})},
    {"type": st.just("function"), "extra_content": JSON},
)
ORDER = st.lists(
    st.sampled_from(["text:0", "text:1", "tool_call:0", "thinking:0", "text:9", "x"]), max_size=5
)
CODED = _of_type("reasoning.encrypted", {"data": DATA, "id": CALL_ID})
DETAIL = (
    _of_type("reasoning.text", {"text": TEXT}, {"signature": TEXT, "index": st.just(0)}) | CODED
)
REPLAY = st.fixed_dictionaries({}, optional={
    "reasoning_content": TEXT, "reasoning": TEXT, "thinking": TEXT, "extra_content": JSON,
    "reasoning_details": st.lists(DETAIL, max_size=3), "annotations": st.lists(UNKNOWN, max_size=1),
})  # fmt: skip
COUNT = st.none() | st.integers(0, 5000)
COUNTS = (
    "prompt",
    "completion",
    "total",
    "reasoning_tokens",
    "cached_tokens",
    "cache_write_tokens",
)
USAGE = st.fixed_dictionaries(
    {**dict.fromkeys(COUNTS, COUNT), "raw": st.dictionaries(TEXT, JSON, max_size=2)}
)
PROVIDER = st.sampled_from(
    ["lab", "openai", "mistral", "deepseek", "groq", "anthropic", "ollama", "gemini"]
)
_ANY = {
    "timestamp": st.just("2025-10-27T09:15:30.120Z"),
    "parent": st.none() | st.sampled_from(["m0", "m1", "?"]),
}

QUESTION = table({"role": st.just("user"), "content": TEXT | st.lists(USER_PART, max_size=4)}, _ANY)
ANSWER = table(
    {"role": st.just("assistant"), "content": st.none() | TEXT | st.lists(ANSWER_PART, max_size=4)},
    {
        **_ANY, "tool_calls": st.lists(CALL, max_size=3) | st.none(), "refusal": TEXT | st.none(), "agent": TEXT,
        "provider": PROVIDER, "model": st.sampled_from(["lab/m", "lab/n", "m"]), "request_id": TEXT | st.none(),
        "response_id": TEXT | st.none(), "finish_reason": st.sampled_from(["stop", "interrupted", "error", None]),
        "usage": USAGE | st.none(), "cost": st.none() | st.floats(0, 10), "duration_ms": st.integers(0, 10**6),
        "estimated": st.integers(0, 5000), "thinking": st.lists(THINKING, max_size=2), "order": ORDER,
        "replay": REPLAY,
    },
)  # fmt: skip
RAW = table(
    {}, {"stdout": TEXT, "stderr": TEXT, "interrupted": st.booleans(), "isImage": st.booleans()}
)
RESULT = table(
    {"role": st.just("tool")},
    {
        **_ANY, "content": TEXT | st.none() | st.lists(TEXT_PART | MEDIA_PART, max_size=2), "tool_call_id": CALL_ID,
        "name": NAME, "is_error": st.booleans() | st.none(), "raw": RAW, "duration_ms": st.integers(0, 100),
    },
)  # fmt: skip
OTHER = table(
    {"role": st.sampled_from(["system", "developer", "function", "model", ""]), "content": TEXT},
    _ANY,
)


def messages(prefix: str = "m", least: int = 0, most: int = 7) -> st.SearchStrategy[list[Any]]:
    """Messages in any order, each with its own id."""
    several = st.lists(QUESTION | ANSWER | ANSWER | RESULT | OTHER, min_size=least, max_size=most)
    return several.map(
        lambda items: [{"id": f"{prefix}{at}", **item} for at, item in enumerate(items)]
    )
