"""What tests are given: their own home, a model on loopback, processes that end with them."""

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.claude import anthropic, claude
from tests.support.completion import bash
from tests.support.home import Home, lab_config
from tests.support.hosted import Hosted
from tests.support.long_sessions import long_home, talker, unlisted
from tests.support.server import ModelServer
from tests.support.sol import openai, sol

__all__ = [
    "anthropic",
    "bash",
    "claude",
    "long_home",
    "openai",
    "sol",
    "talker",
    "unlisted",
]  # fixtures from tests.support

# A property tries the same examples in every run: a red run is about the change. `make examples` tries new ones.
settings.register_profile(
    "gptsh", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "examples", parent=settings.get_profile("gptsh"), derandomize=False, print_blob=True
)
settings.load_profile("gptsh")

# A shell starts what runs in the background with SIGINT and SIGQUIT ignored, nohup with SIGHUP, and a process of a test
# would inherit that. Where there is a handler it gets the default instead; SIGHUP still does not end the suite.
for _signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_signum) is signal.SIG_IGN:
        signal.signal(_signum, lambda _signum, _frame: None)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--random-order SEED``."""
    parser.addoption(
        "--random-order", type=int, metavar="SEED", help="run the tests in an order of chance"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """No test may need another before it."""
    seed = config.getoption("--random-order")
    if seed is not None:
        random.Random(seed).shuffle(items)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home without a config file."""
    home = Home(tmp_path)
    home.forks = True
    yield home
    home.end()


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A model server for one test."""
    server = ModelServer()
    yield server
    server.close()


@pytest.fixture
def hosted(home: Home, model: ModelServer) -> Iterator[Home]:
    """A home whose default model is ``openai/gpt-4.9``, titled by ``gpt-4.9-mini``; both are the model server.

    The model table lacks both, so that no note says that they end.
    """
    vendor = Hosted(model, home.folder)
    home.env |= vendor.env
    home.configure(
        '[agents.default]\nmodel = "openai/gpt-4.9"\nmodel_small = "openai/gpt-4.9-mini"\n'
    )
    yield home
    vendor.close()


@pytest.fixture
def lab(home: Home, model: ModelServer) -> Home:
    """A home whose default model is ``lab/m`` on the model server; no titles."""
    home.configure(lab_config(model))
    return home


@pytest.fixture
def store(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """The store in this process, its state folder that of the home; returns the documents on disk."""
    monkeypatch.setenv("XDG_STATE_HOME", home.env["XDG_STATE_HOME"])
    monkeypatch.setenv("TZ", "UTC")
    return home.docs
