"""Homes with sessions, and model servers, for the rows. Each is created on first use."""

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import certifi
import trustme

from dev.benchmarks.clocks import MeasurementError
from dev.benchmarks.conversations import Conversations
from dev.benchmarks.servers import AnthropicServer
from gptsh.core.usage import sums_by_day
from tests.support.attached import make_pdf
from tests.support.gemini_server import GeminiServer
from tests.support.hosted import Hosted
from tests.support.ollama_server import OllamaServer
from tests.support.responses_server import ResponsesServer
from tests.support.server import ModelServer
from tests.support.sessions import compact, in_lines
from tests.support.tools import SERVER

BIN = Path(sys.executable).parent
GPTSH = (str(BIN / "gptsh"),)
Server = TypeVar("Server", bound=ModelServer | AnthropicServer)
_LINE = "It is a line of an answer, neither short nor long; it says nothing.\n"
_NO_TITLES = '[sessions]\ntitles = "off"\n'


class Home(NamedTuple):
    """The home folder of a user, and the environment for it."""

    folder: Path
    env: dict[str, str]

    @property
    def sessions(self) -> Path:
        return self.folder / "state" / "gptsh" / "sessions"

    def doc(self) -> dict[str, Any]:
        """The only session. Raises MeasurementError if there are more."""
        paths = list(self.sessions.iterdir())
        if len(paths) != 1:
            raise MeasurementError(f"{len(paths)} sessions, expected one")
        doc: dict[str, Any] = json.loads(paths[0].read_bytes())
        return doc


def _hashed(bundle: Path) -> Path:
    """A folder with the certificates of a bundle, by the names under which OpenSSL looks for them."""
    folder = bundle.with_name("certificates")
    folder.mkdir()
    for number, pem in enumerate(
        re.findall("-----BEGIN.*?-----END[^\n]*\n", bundle.read_text(), re.DOTALL)
    ):
        (folder / f"{number}.pem").write_text(pem)
    subprocess.run(["openssl", "rehash", folder], check=True, capture_output=True)
    return folder


class Lab:
    """Homes and servers, removed at the end of ``lab()``. Rows that write have other homes than rows that list."""

    def __init__(self, top: Path, closing: ExitStack) -> None:
        self._top = top
        self._closing = closing

    def home(self, config: str = _NO_TITLES, **env: str) -> Home:
        """A new home with this configuration and these environment variables."""
        folder = Path(tempfile.mkdtemp(dir=self._top))
        (folder / "config" / "gptsh").mkdir(parents=True)
        (folder / "config" / "gptsh" / "config.toml").write_text(config)
        base = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        return Home(folder, base | env)

    def _served(self, server: Server) -> Server:
        """A server that is closed at the end."""
        self._closing.callback(server.close)
        return server

    @cached_property
    def server(self) -> ModelServer:
        """The model server that gptsh and llm ask directly."""
        return self._served(ModelServer())

    @cached_property
    def anthropic(self) -> AnthropicServer:
        """The model server with Anthropic's API, for gptsh itself and for litellm."""
        return self._served(AnthropicServer())

    @cached_property
    def usual(self) -> Home:
        """A home with 20 sessions, for commands that only read."""
        return add_sessions(self.home(), 20)

    @cached_property
    def many(self) -> Home:
        """A home with 10,000 sessions."""
        return add_sessions(self.home(), 10_000)

    @cached_property
    def searched(self) -> Home:
        """A home with 10,000 sessions in 80 MB, each with three turns and tool results."""
        return _add_varied_sessions(self.home(), 10_000)

    @cached_property
    def most(self) -> Home:
        """A home with 100,000 sessions."""
        return add_sessions(self.home(), 100_000)

    def asking(self) -> Home:
        """A new home whose default model is on the model server."""
        url = self.server.base_url
        return self.home(
            f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{url}"\n{_NO_TITLES}'
        )

    @cached_property
    def direct(self) -> Home:
        """A home with 20 sessions at first; each question adds one."""
        return add_sessions(self.asking(), 20)

    @cached_property
    def titled(self) -> Home:
        """A home whose model makes titles, too; each question begins a session without one."""
        url = self.server.base_url
        return self.home(
            f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{url}"\n'
        )

    @cached_property
    def hosted(self) -> tuple[ModelServer, Home]:
        """The server of a hosted provider, and a home that asks it for answers and titles."""
        server, home = (
            ModelServer(),
            self.home('[agents.default]\nmodel = "openai/gpt-4.1"\nmodel_small = "openai/gpt-4"\n'),
        )
        vendor = Hosted(server, home.folder)
        self._closing.callback(server.close)
        self._closing.callback(vendor.close)
        return server, Home(home.folder, home.env | vendor.env)

    @cached_property
    def through_litellm(self) -> Home:
        """Like ``direct``, for a provider that gptsh asks through litellm."""
        return add_sessions(
            self.home(AZURE_AI_API_BASE=self.anthropic.base_url, AZURE_AI_API_KEY="x"), 20
        )

    @cached_property
    def claude(self) -> Home:
        """Like ``direct``, for Anthropic's API."""
        return add_sessions(
            self.home(ANTHROPIC_BASE_URL=self.anthropic.base_url, ANTHROPIC_API_KEY="x"), 20
        )

    @cached_property
    def secure(self) -> tuple[Home, Home, Home]:
        """Like ``direct`` and ``claude``, over HTTPS, with the system's authorities and one more.

        They are in a hashed folder, as Debian and others keep them; the third home is the first with one file of all.
        """
        authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)
        bundle = self._top / "ca.pem"
        system = Path(ssl.get_default_verify_paths().cafile or certifi.where())
        bundle.write_bytes(system.read_bytes() + authority.cert_pem.bytes())
        server, claude = ModelServer(), AnthropicServer()
        for each in (server, claude):
            self._closing.callback(each.close)
            each.secure(context)
        lab = f'[agents.default]\nmodel = "lab/m"\n[providers.lab]\nbase_url = "{server.base_url}"\n{_NO_TITLES}'
        homes = (
            self.home(lab),
            self.home(ANTHROPIC_BASE_URL=claude.base_url, ANTHROPIC_API_KEY="x"),
        )
        folder = {"SSL_CERT_DIR": str(_hashed(bundle))}
        direct, anthropic = (add_sessions(Home(at, env | folder), 20) for at, env in homes)
        return direct, anthropic, Home(direct.folder, homes[0].env | {"SSL_CERT_FILE": str(bundle)})

    @cached_property
    def ollama(self) -> Home:
        """Like ``direct``, for Ollama with its model loaded."""
        server = self._served(OllamaServer())
        server.loaded["m:latest"] = {"num_ctx": 8192, "shift": False}
        config = f'[agents.default]\nmodel = "ollama/m"\n[providers.ollama]\nbase_url = "{server.root}"\n{_NO_TITLES}'
        return add_sessions(self.home(config), 20)

    @cached_property
    def openai(self) -> Home:
        """Like ``direct``, for OpenAI's Responses API. A document of 200 kB stands in its folder."""
        server = self._served(ResponsesServer())
        return self._with_document(
            "openai", "gpt-6.1-sol", f'base_url = "{server.base_url}"\napi = "responses"\n'
        )

    @cached_property
    def google(self) -> Home:
        """Like ``openai``, for Google's generateContent."""
        server = self._served(GeminiServer())
        return self._with_document(
            "gemini", "gemini-3.8-flash", f'base_url = "{server.google_url}"\n'
        )

    def _with_document(self, provider: str, model: str, keys: str) -> Home:
        config = f'[agents.default]\nmodel = "{provider}/{model}"\n[providers.{provider}]\n{keys}{_NO_TITLES}'
        home = self.home(config, **{f"{provider.upper()}_API_KEY": "x"})
        (home.folder / "a.pdf").write_bytes(make_pdf(more=200_000))
        return add_sessions(home, 20)

    @cached_property
    def tools(self) -> Home:
        """A home with two tool servers."""
        server = f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(SERVER))}]\n"
        return self.home(f"[mcp.servers.one]\n{server}[mcp.servers.two]\n{server}")

    @cached_property
    def llm(self) -> Home:
        """A home for the llm package, with the model ``lab`` on the same server."""
        home = self.home()
        models = f"- model_id: lab\n  model_name: m\n  api_base: {self.server.base_url}\n"
        (home.folder / "extra-openai-models.yaml").write_text(models)
        return Home(home.folder, home.env | {"LLM_USER_PATH": str(home.folder)})

    @cached_property
    def megabyte(self) -> Home:
        """A home with one session of 1,000 messages in 1 MB."""
        return add_long_session(self.home(), 1_000_000)

    @cached_property
    def five_thousand(self) -> Home:
        """A home with one session of 5,000 messages in 5 MB."""
        return add_long_session(self.home(), 5_000_000, 5_000)

    @cached_property
    def eighty_megabytes(self) -> Home:
        """A home with one session of 20,000 messages in 80 MB."""
        return add_long_session(self.home(), 80_000_000, 20_000)

    @cached_property
    def ten_megabytes(self) -> Home:
        """A home with one session of 1,000 messages in 10 MB."""
        return add_long_session(self.home(), 10_000_000)


@contextmanager
def lab() -> Iterator[Lab]:
    """A lab in a temporary folder."""
    with tempfile.TemporaryDirectory() as top, ExitStack() as closing:
        yield Lab(Path(top), closing)


def _first_session(home: Home) -> tuple[Path, dict[str, Any]]:
    """Create a session with gptsh; return its file and its document."""
    command = [*GPTSH, "-m", "echo", "--title", "A Session Like Any Other", "what is it " * 40]
    subprocess.run(
        command, env=home.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
    )
    (path,) = home.sessions.iterdir()
    return path, home.doc()


def _bytes(doc: dict[str, Any]) -> bytes:
    stats = {**doc["stats"], "days": sums_by_day(doc)}
    return in_lines({**doc, "stats": stats})


def add_sessions(home: Home, count: int) -> Home:
    """Add ``count`` sessions of a usual size, created one a second; return the home."""
    _, doc = _first_session(home)
    template = _bytes(doc | {"id": "<id>", "created_at": "<time>"})
    before, _, rest = template.partition(b"<id>")
    middle, _, after = rest.partition(b"<time>")
    for number in range(count - 1):
        path, ident, created = _new_session_file(home, number)
        with open(path, "xb", buffering=0) as file:
            file.write(b"".join((before, ident.encode(), middle, created.encode(), after)))
    return home


def _add_varied_sessions(home: Home, count: int) -> Home:
    """Add ``count`` different sessions of 8 kB, created one a second; return the home."""
    first, doc = _first_session(home)
    first.unlink()
    conversations = Conversations(*doc["messages"])
    for number in range(count):
        path, ident, created = _new_session_file(home, number)
        messages = conversations.messages(number)
        stats = {
            "turns": len(messages) // 4,
            "messages": len(messages),
            "preview": messages[0]["content"][:100],
        }
        with open(path, "xb", buffering=0) as file:
            file.write(
                _bytes(
                    doc | {"id": ident, "created_at": created, "stats": stats, "messages": messages}
                )
            )
    return home


def _new_session_file(home: Home, number: int) -> tuple[str, str, str]:
    """The path, the id and the creation time of session ``number``."""
    stamp = time.gmtime(1_500_000_000 + number)
    ident = f"{chr(ord('a') + number // 4096)}{number % 4096:03x}"
    created = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", stamp)
    return f"{home.sessions}/{time.strftime('%Y%m%d-%H%M%S', stamp)}-{ident}.json", ident, created


def add_long_session(home: Home, size: int, messages: int = 1000) -> Home:
    """Add a single session of ``size`` bytes and so many messages; return the home."""
    path, doc = _first_session(home)
    question, answer = doc["messages"]
    question = question | {"parent": answer["id"]}
    overhead = (
        len(compact(question))
        + len(compact(answer))
        - len(question["content"])
        - len(answer["content"])
    )
    share = len(_LINE) / len(compact({"": _LINE})[5:-2])  # a newline takes two bytes of JSON
    content = (_LINE * 1000)[: round((2 * size / messages - overhead) / 2 * share)]
    for number in range(2, messages):
        message = (question, answer)[number % 2]
        parent = doc["messages"][-1]["id"]
        doc["messages"].append(
            message
            | {"id": f"00000000-0000-4000-8000-{number:012}", "parent": parent, "content": content}
        )
    path.write_bytes(_bytes(doc))
    return home
