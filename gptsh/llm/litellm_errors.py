"""Read an exception of litellm, or of a library below it, as gptsh's error: from the response, else from its text."""

import re
from typing import Any

from gptsh.errors import GptshError, ModelError
from gptsh.llm.error_bodies import message_in_body
from gptsh.llm.error_statuses import refusal
from gptsh.llm.too_long import means_too_long, too_long
from gptsh.models.vendors import Provider

_NOISE = re.compile(  # around the provider's message
    r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - )| Handle with `litellm\.\w+`\.?$"
    r"|\s(?:Original exception: |File an issue if litellm error|To drop these, set |Traceback \(most recent call).*",
    re.DOTALL,
)


def litellm_error(error: BaseException, provider: Provider) -> GptshError:
    """litellm's error as gptsh's."""
    if status_error := _cause(error, "HTTPStatusError"):
        return _refusal(status_error, provider)
    text, detail = _message(error), repr(error)
    if means_too_long(str(error)):
        return too_long(f"{provider.name} has no room for the prompt: {text}", text, detail)
    if _cause(error, "ConnectError"):
        return _no_connection(text, provider)
    if "No module named" in text:
        return ModelError(f"{provider.name} needs a Python package: {text}", detail=detail)
    if _cause(error, "RemoteProtocolError") or _cause(error, "ReadError"):
        err = ModelError(f"the connection to {provider.name} broke off", detail=detail)
        err.may_fall_back = True
        err.can_retry = "without sending a response" in text
        return err
    return ModelError(f"{provider.name} failed: {text}", detail=detail)


def _refusal(status_error: BaseException, provider: Provider) -> GptshError:
    """The error for httpx's exception, which has the response."""
    response: Any = status_error.response  # type: ignore[attr-defined]
    fields = {name.lower(): value for name, value in response.headers.items()}
    try:
        body = bytes(response.content)
    except RuntimeError:  # httpx.StreamError: the body was not read
        body = b""
    url = str(response.url).partition("?")[0]
    return refusal(url, response.status_code, fields, body, provider)


def _message(error: BaseException) -> str:
    """The provider's message in litellm's text."""
    text = str(error)
    while (shorter := _NOISE.sub("", text.strip())) != text:
        text = shorter
    return message_in_body(text.encode("utf-8", "replace"))


def _no_connection(text: str, provider: Provider) -> ModelError:
    where = f"{provider.name} ({provider.base_url})" if provider.base_url else provider.name
    if "CERTIFICATE_VERIFY_FAILED" in text:
        err = ModelError(f"no secure connection to {where}: {text}", "set SSL_CERT_FILE to your CA bundle")
    else:
        err = ModelError(f"nothing answers at {where}: {text}")
    err.may_fall_back = True
    return err


def _cause(error: BaseException | None, kind: str) -> BaseException | None:
    """The cause of an error with this class name, or None. By name, so that its package is not imported."""
    while error is not None and type(error).__name__ != kind:
        error = error.__cause__ or error.__context__
    return error
