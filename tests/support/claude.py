"""Names of Anthropic's models, and fixtures of a strict server and a home that uses it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.anthropic_server import AnthropicServer
from tests.support.home import Home
from tests.support.vendors import KEYS, at_vendor

SONNET = "anthropic/claude-sonnet-4-5"
OPUS = "anthropic/claude-opus-4-7"
LATEST = "anthropic/claude-sonnet-5-5"
KEY = KEYS["anthropic"]
PNG = "iVBORw0KGgo="


def without_cache_marks(body: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Role and content of each message, without cache marks."""
    return [
        (
            m["role"],
            [{k: v for k, v in part.items() if k != "cache_control"} for part in m["content"]],
        )
        for m in body["messages"]
    ]


OPEN = {"type": "object", "properties": {"n": {"type": "integer"}}}
CLOSED = {**OPEN, "additionalProperties": False}


@pytest.fixture
def anthropic() -> Iterator[AnthropicServer]:
    """A strict server for one test."""
    server = AnthropicServer()
    yield server
    server.close()


@pytest.fixture
def claude(home: Home, anthropic: AnthropicServer) -> Home:
    """A home whose default model is Claude on the strict server; no titles."""
    return at_vendor(home, SONNET, anthropic.base_url.removesuffix("/v1"))
