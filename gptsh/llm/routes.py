"""How a model is reached: its API, key and headers, and the secrets that must never be shown."""

import contextlib
import os
import re
import select
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from gptsh import __version__
from gptsh.config.secret import MASK, Secret, is_secret_name
from gptsh.config.settings import Settings
from gptsh.errors import ConfigError, GptshError, LoadingModel
from gptsh.llm.masking import secret_parameters, without_secrets
from gptsh.models.providers import BEARER, DIRECT, ApiName, Provider

if TYPE_CHECKING:
    import subprocess

    from gptsh.llm.http import Http

_SHORTEST_SECRET = 4  # characters; masking shorter ones would garble the message and hide nothing
_TOKEN = r"(?<=[/=])[A-Za-z0-9_.~-]{16,}"
_MAX_PRINTED = 1 << 16  # bytes that a command for a key may print
_POLL = 0.02  # seconds until gptsh sees that a command has ended which leaves a program in the background
_BY_HAND = "run it by hand"
_SHORTEST_VARIABLE = 8  # characters of a value that is a secret only by its variable's name
_UNKNOWN_URL = "https://litellm.invalid"  # only litellm knows the provider's URL


class Routes:
    """Resolves models to providers with API, key and secrets, once each per process.

    ``keys`` are those of the providers used so far, by name; None: the provider needs none. Without ``needs_keys`` a
    missing key is no error until something is sent.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        keys: Mapping[str, str | None],
        *,
        needs_keys: bool = True,
    ) -> None:
        self._settings, self._environ, self._needs_keys = settings, environ, needs_keys
        self._routes: dict[tuple[str, ApiName], Provider] = {}
        self.keys: dict[str, str | None] = {name: Secret(key) if key else None for name, key in keys.items()}

    @cached_property
    def http(self) -> "Http":
        """The connections to servers."""
        from gptsh.llm.http import Http  # noqa: PLC0415 - takes 50 ms, and echo needs none

        return Http(self._settings.network, self._environ)

    def of(self, model: str, params: Mapping[str, Any], *, web: bool = False) -> Provider:
        """The provider of a model, with the API for this request and its key. Raises ConfigError.

        ``web``: its server may search the web.
        """
        provider = self._settings.providers.for_model(model)
        if web:
            provider = provider.searching() or raise_no_search(model)
        if (model, provider.api) not in self._routes:
            if provider.api != "echo":
                provider = self._with_key(provider, params, is_needed=self._needs_keys)
                try:
                    self.http.endpoint(provider.base_url or _UNKNOWN_URL)
                except GptshError as err:
                    raise without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error
            self._routes[model, provider.api] = provider
        return self._routes[model, provider.api]

    def fetch(self, provider: Provider, url: str, seconds: float, body: bytes | None, max_bytes: int) -> bytes:
        """Download at most ``max_bytes`` of a document from a provider's server; empty for any status but 200.

        Raises GptshError, also if it takes longer than ``seconds``, and LoadingModel if the server is not ready.
        """
        provider, document = self._with_key(provider, {}), bytearray()
        try:
            with contextlib.closing(self.http.send(url, body, headers(provider), seconds=seconds)) as response:
                if response.status == 503:  # Service Unavailable
                    raise LoadingModel(f"{provider.name} is not ready")
                for chunk in response.chunks() if response.status == 200 else ():  # OK
                    document += chunk
                    if len(document) >= max_bytes:
                        break
        except GptshError as err:
            raise without_secrets(err, provider.secrets)  # noqa: B904 - it is the same error
        return bytes(document[:max_bytes])

    def _with_key(self, provider: Provider, params: Mapping[str, Any], *, is_needed: bool = True) -> Provider:
        """The provider with its key and the secrets to mask. Raises ConfigError if the key is missing or invalid."""
        from gptsh.llm.http import proxy_secrets  # noqa: PLC0415 - takes 50 ms, as in ``http``

        name, key = provider.name, provider.key
        if name in self.keys:  # a command that asks for a passphrase runs once
            key = self.keys[name]
        elif provider.key_command:
            key = _printed_key(provider.key_command, name)
        if key is None and provider.needs_key and is_needed:
            raise ConfigError(
                f"no key for {name}", f"set {provider.key_vars[0]}, or api_key_command under [providers.{name}]"
            )
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ConfigError(f"the key for {name} has characters that an HTTP header cannot contain")
        self.keys[name] = key
        secrets = {part for value in provider.headers.values() for part in (value, value.rpartition(" ")[2])}
        secrets |= {key or "", *proxy_secrets(self._environ)}
        secrets |= {*secret_parameters(params), *_tokens_in(provider.base_url)}
        if provider.api == "litellm":  # litellm may use a key that gptsh does not know
            values = {value.strip() for variable, value in self._environ.items() if is_secret_name(variable)}
            secrets |= {value for value in values if len(value) >= _SHORTEST_VARIABLE and not value.startswith("/")}
        long_secrets = frozenset(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)
        return provider._replace(key=key, secrets=long_secrets)


def _tokens_in(url: str) -> list[str]:
    """The parts of a URL's path and query that may be tokens: long, with letters and digits."""
    return [part for part in re.findall(_TOKEN, url.partition("://")[2]) if re.search("[0-9]", part)]


def raise_no_search(model: str) -> NoReturn:
    """Raise ConfigError for a model whose server has no search."""
    way = "leave out --web; --no-web, or /web off, turns it off for an agent or a session"
    raise ConfigError(f"{model} has no web search", f"choose another model with -m, or {way}")


def headers(provider: Provider, *, mask_values: bool = False) -> dict[str, str]:
    """The HTTP headers: the key in the provider's form, and those of the config file; ``mask_values`` hides them."""
    is_direct = provider.api in DIRECT
    result = {"content-type": "application/json", "user-agent": f"gptsh/{__version__}"} if is_direct else {}
    result |= provider.constants
    result |= {header.lower(): MASK if mask_values else value for header, value in provider.headers.items()}
    if provider.key and is_direct:
        forms = BEARER if provider.key_var in provider.bearer_vars else provider.key_headers
        result |= {name: form.format(api_key=MASK if mask_values else provider.key) for name, form in forms.items()}
    return result


def _printed_key(command: str, provider: str) -> Secret:
    """The first line that the command prints. Its standard input is empty: gptsh reads the prompt from there."""
    import subprocess  # noqa: PLC0415 - takes 5 ms, for api_key_command only

    process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    with process:
        try:
            printed = _printed(process)
        except BaseException:  # a signal or the deadline, too
            process.kill()
            raise
        if len(printed) > _MAX_PRINTED:
            process.kill()
            raise ConfigError(f"api_key_command of {provider} printed more than {_MAX_PRINTED:,} bytes", _BY_HAND)
    key = printed.decode("utf-8", "replace").partition("\n")[0].strip()
    if process.returncode or not key:
        why = f"exited with {process.returncode}" if process.returncode else "printed no key"
        raise ConfigError(f"api_key_command of {provider} {why}", _BY_HAND)
    return Secret(key)


def _printed(process: "subprocess.Popen[bytes]") -> bytes:
    """What a process prints until it has ended, or until it is too much.

    A program that it leaves in the background, such as an agent that keeps a passphrase, may keep its stdout open.
    """
    data, output = b"", process.stdout.fileno() if process.stdout else -1
    while len(data) <= _MAX_PRINTED:
        has_ended = process.poll() is not None  # before the pipe is looked at: what was printed is in it
        if select.select([output], [], [], 0 if has_ended else _POLL)[0]:
            piece = os.read(output, _MAX_PRINTED)
            if not piece:
                process.wait()
                break
            data += piece
        elif has_ended:
            break
    return data
