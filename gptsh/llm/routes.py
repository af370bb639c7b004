"""How a model is reached: its provider, the transport, the headers with the key, and what must never be shown."""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from gptsh import __version__
from gptsh.config.providers import Provider
from gptsh.config.secret import Secret, names_a_secret
from gptsh.errors import ConfigError
from gptsh.models.facts import OPENAIS, chat_refuses_tools, facts
from gptsh.models.providers import BEARER, DIRECT, Wire

_SHORTEST_SECRET = 4  # characters
_SHORTEST_FOUND = 8  # characters of a value that only its variable's name makes a secret
_PLAIN = re.compile("gpt-[34]|chatgpt-")  # served by chat completions, tools and all: the table need not be read


class Route(NamedTuple):
    """One model as it is asked. ``secrets``: the key, the values of configured headers, the proxy's login."""

    provider: Provider
    model: str  # as the provider knows it
    wire: Wire
    key: Secret | None = None
    headers: Mapping[str, str] = {}
    secrets: frozenset[str] = frozenset()


def wire_for(provider: Provider, name: str, params: Mapping[str, Any], *, tools: bool = False) -> Wire:
    """The provider's transport, but for OpenAI's models that chat completions do not serve, or not with these tools."""
    if provider.wire != "chat" or provider.name not in OPENAIS or _PLAIN.match(name):
        return provider.wire
    known = facts(provider.name, name)
    refused = not known.speaks_chat or ((tools or bool(params.get("tools"))) and chat_refuses_tools(known, params))
    return "litellm" if refused else "chat"


def route(provider: Provider, name: str, wire: Wire, key: Secret | None, more_secrets: Collection[str]) -> Route:
    """The route with its headers, and what must not be shown."""
    headers = headers_for(provider, wire, key)
    secrets = {part for value in provider.headers.values() for part in (value, value.rpartition(" ")[2])}
    secrets |= {str(key)} if key else set()
    return Route(provider, name, wire, key, headers, worth_hiding({*secrets, *more_secrets}))


def headers_for(provider: Provider, wire: Wire, key: Secret | None, mask: str | None = None) -> dict[str, str]:
    """What goes with a request: the key as the provider wants it, and what the config file adds.

    ``mask`` stands in the place of the key and of every configured value, however short.
    """
    headers = {"content-type": "application/json", "user-agent": f"gptsh/{__version__}"} if wire in DIRECT else {}
    headers |= provider.endpoint.constants
    headers |= {header.lower(): mask or value for header, value in provider.headers.items()}
    if key and wire in DIRECT:
        shown = BEARER if provider.key_var in provider.endpoint.bearer_vars else provider.endpoint.headers
        headers |= {name: value.format(api_key=mask or key) for name, value in shown.items()}
    return headers


def secrets_in(environ: Mapping[str, str]) -> set[str]:
    """Values of variables whose names tell of a secret: litellm may use one that gptsh does not know."""
    found = {value.strip() for name, value in environ.items() if names_a_secret(name)}
    return {value for value in found if len(value) >= _SHORTEST_FOUND and not value.startswith("/")}  # no paths


def worth_hiding(secrets: Collection[str]) -> frozenset[str]:
    """Without the short ones: to mask them would garble the message and hide nothing."""
    return frozenset(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)


# ---- keys


def key_for(provider: Provider) -> Secret | None:
    """The key that opens the provider; None where it needs none. Raises ConfigError when it is missing."""
    key = _from_command(provider.key_command, provider.name) if provider.key_command else provider.key
    if key is None and provider.needs_key:
        way = f"set {provider.key_vars[0]}, or api_key_command under [providers.{provider.name}]"
        raise ConfigError(f"no key for {provider.name}", way)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key for {provider.name} has characters that no HTTP header may have")
    return key


def source_of_key(provider: Provider) -> str:
    """Where the user would look for the key."""
    if provider.key_command:
        return f"api_key_command under [providers.{provider.name}]"
    return provider.key_var or next(iter(provider.key_vars), f"[providers.{provider.name}]")


def _from_command(command: str, provider: str) -> Secret:
    """The first line that the command prints. It gets no standard input: that is the prompt's."""
    import subprocess  # noqa: PLC0415 - 5 ms that only this way of keeping keys costs

    done = subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    key = done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
    if done.returncode or not key:
        why = f"exited with {done.returncode}" if done.returncode else "printed no key"
        raise ConfigError(f"api_key_command of {provider} {why}", "run it by hand")
    return Secret(key)
