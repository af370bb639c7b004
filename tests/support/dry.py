"""The request of a session and a question, from ``--dry-run``; each is checked by a strict server."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from tests.support import anthropic_server as claude
from tests.support import gemini_server as gemini
from tests.support import ollama_server as llama
from tests.support import responses_server as openai
from tests.support.home import Home
from tests.support.strict import strict

# Keys for every kind of provider; none gets a request.
WITH_KEY = "OPENAI ANTHROPIC GEMINI MISTRAL DEEPSEEK GROQ OPENROUTER MOONSHOT ZAI DASHSCOPE TOGETHERAI XAI AZURE COHERE"
KEYS = {f"{name}_API_KEY": f"{name.lower()}-very-secret" for name in WITH_KEY.split()}
PLACES = {
    "OLLAMA_API_BASE": "http://127.0.0.1:9",
    "AZURE_API_BASE": "https://me.azure.test",
    "AZURE_API_VERSION": "v1",
}
LAB = '[providers.lab]\nbase_url = "http://127.0.0.1:9/v1"\ncontext_window = 1000000\n'


class DryRun(NamedTuple):
    """The body that would be sent, and stderr."""

    body: dict[str, Any]
    stderr: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, without Anthropic's cache marks."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return [{**message, "content": _bare(message["content"])} if "content" in message else message
                for message in messages]  # fmt: skip

    @property
    def fields(self) -> dict[str, Any]:
        """The body without model, messages and stream."""
        usual = {"model", "messages", "input", "stream", "stream_options", "prompt_cache_key"}
        return {key: value for key, value in self.body.items() if key not in usual}


def dry_run(
    home: Home, model: str, *messages: dict[str, Any], params: Any = None, args: Any = ()
) -> DryRun:
    """The request to this model for a session with these messages and the question ``and now?``."""
    options = [
        arg for key, value in (params or {}).items() for arg in ("-p", f"{key}={json.dumps(value)}")
    ]
    if messages:
        put_session(home, *messages)
        options += ["-s", "7x2m"]
    if not home.config.exists():
        home.configure(LAB)
    env = KEYS | PLACES | {"SSL_CERT_FILE": ca_bundle()}
    run = home.run("--dry-run", "-o", "json", "-m", model, *options, *args, "and now?", env=env)
    assert run.code == 0, run.stderr
    body = json.loads(run.stdout)["body"]
    provider, _, name = model.partition("/")
    assert complaint_of(provider, body, name) is None, body
    return DryRun(body, run.stderr)


def put_session(home: Home, *messages: dict[str, Any]) -> Path:
    """Write a session ``7x2m`` with these messages; replace the old one."""
    home.sessions.mkdir(parents=True, exist_ok=True)
    path = home.sessions / "20250101-000000-7x2m.json"
    when = "2025-01-01T00:00:00.000Z"
    path.write_text(
        json.dumps({"version": 1, "id": "7x2m", "created_at": when, "messages": messages})
    )
    return path


def complaint_of(provider: str, body: dict[str, Any], model: str = "") -> str | None:
    """Why a strict server of this provider would refuse a request; None if it accepts it."""
    if "input" in body:
        return openai.complaint(body)
    if "contents" in body:
        return gemini.complaint(body, model)
    return {"ollama": llama.complaint, "anthropic": claude.complaint}.get(
        provider, strict(provider)
    )(body)


def _bare(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {key: value for key, value in part.items() if key != "cache_control"} for part in content
    ]


@cache
def ca_bundle() -> str:
    """A file with one certificate: loading the system's takes a tenth of a second."""
    with tempfile.NamedTemporaryFile(suffix=".pem", delete=False) as file:
        file.write(trustme.CA().cert_pem.bytes())
    return file.name
