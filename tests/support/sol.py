"""The name of one of OpenAI's models, and fixtures of a strict server and a home that uses it."""

from collections.abc import Iterator

import pytest

from tests.support.home import Home
from tests.support.responses_server import ResponsesServer
from tests.support.vendors import at_vendor

SOL = "openai/gpt-6.1-sol"


@pytest.fixture
def openai() -> Iterator[ResponsesServer]:
    """A strict server for one test."""
    server = ResponsesServer()
    yield server
    server.close()


@pytest.fixture
def sol(home: Home, openai: ResponsesServer) -> Home:
    """A home whose default model is one of OpenAI's on the strict server; no titles."""
    return at_vendor(home, SOL, openai.base_url, 'api = "responses"\n')
