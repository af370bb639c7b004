"""Turn errors of servers and connections into gptsh's own, with advice.

Only an error imports this file.
"""

import re
import socket
import ssl
from collections.abc import Collection, Mapping

from gptsh.config.accounts import Target
from gptsh.config.schema import mask
from gptsh.errors import Filtered, GptshError, LoadingModel, ModelError, TimedOut, TooLong
from gptsh.llm.wordings import (
    is_filtered,
    is_spent,
    means,
    means_too_long,
    message_in,
    own_words,
    prompt_size_in,
    retry_after,
    window_named_in,
)
from gptsh.models.facts import compatible_endpoints
from gptsh.models.vendors import LOCAL_VENDORS, VENDORS

# ---- error statuses
#
# Turn a response that is not 200 into gptsh's error: advice, whether to retry, whether a fallback
# model is asked.

_UNAUTHORIZED = 401
_FORBIDDEN = 403  # the key, or the model, the country, the question
_NOT_FOUND = 404  # the model or the path
_REDIRECTS = range(300, 400)
_SERVICE_UNAVAILABLE = 503
_SERVER_ERROR = 500
_TEMPORARY = (408, 409, 429)  # and every 5xx
# No credit, no access, or too many requests: of this provider alone.
_ONLY_HERE = (402, _FORBIDDEN, 408, 410, 429)
_MAY_BE_TOO_LONG = (400, 413, 422, 500)


def refusal(
    url: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    target: Target,
) -> GptshError:
    """Return the error for a response that is not 200, with advice and when to retry.

    ``headers`` have lower-case names.
    """
    response = _ErrorResponse(url, status, headers=headers, body=body, target=target)
    reason = response.reason
    detail = response.detail
    provider = target.provider
    if status in _MAY_BE_TOO_LONG and means_too_long(detail):
        return too_long(f"the prompt is too long for {provider}: {reason}", reason, detail)
    if is_filtered(detail):
        what = f"{provider}'s filter refused the question {response.said}"
        return Filtered(what, detail=detail)

    err: ModelError
    if status == _SERVICE_UNAVAILABLE and means("loading", reason):
        err = LoadingModel(f"{provider} is loading {target.model}", detail=detail)
    else:
        err = ModelError(*response.problem_and_advice(), detail=detail)
        err.refuses_images = response.refuses_images
        err.can_retry = response.can_retry()
        err.may_fall_back = response.may_fall_back()
    err.status = status
    err.retry_after = retry_after(headers, detail)
    return err


def too_long(what: str, reason: str, detail: str) -> TooLong:
    """Return the error for a prompt that does not fit.

    The error has the window and the prompt's tokens, if the server names them: in its message,
    ``reason``, or elsewhere in the body, ``detail``.
    """
    err = TooLong(what, detail=detail)
    for text in (own_words(reason), own_words(detail)):
        err.window = err.window or window_named_in(text)
        if err.window:
            err.prompt = err.prompt or prompt_size_in(text, err.window)
    return err


class _ErrorResponse:
    """A response that is not 200, and what it means."""

    def __init__(
        self,
        url: str,
        status: int,
        *,
        headers: Mapping[str, str],
        body: bytes,
        target: Target,
    ) -> None:
        self.detail = body.decode("utf-8", "replace")
        self.reason = message_in(self.detail)
        self.said = f"({status}): {self.reason}" if self.reason else f"({status})"
        self._url = url
        self._status = status
        self._headers = headers
        self._target = target

        self.refuses_images = means("images", own_words(self.detail))
        self._has_failed = status >= _SERVER_ERROR
        self._is_bad_key = (
            status == _UNAUTHORIZED
            or (status == _FORBIDDEN and means("about the key", self.reason))
            or means("bad key", self.detail)
        )
        self._is_retired = means("retired", self.reason)
        self._is_unknown = status == _NOT_FOUND or means("unknown model", self.detail)

    def problem_and_advice(self) -> tuple[str, str]:
        """Return what was refused, and what to do, which may be empty."""
        target = self._target
        provider = target.provider
        said = self.said
        problem = f"{provider} refused the request {said}"
        if self._has_failed:
            problem = f"{provider} failed {said}"
        if self._is_bad_key:
            return f"{provider} refused the key {said}", _advice_on_key(target)
        if self._status in _REDIRECTS and "location" in self._headers:
            # It is not followed, because the other server would get the key.
            return f"{self._url} redirects to {self._headers['location']}", "change base_url"
        if self._is_retired:
            problem = f"{provider} no longer has {target.model!r} {said}"
            return problem, "choose another model with -m"
        if means("not loaded", self.reason):
            return problem, "load it there, or start the server without --no-models-autoload"
        if self._is_unknown:
            can_pull = target.api == "ollama" and "model" in self.reason
            advice = "check -m and base_url"
            if can_pull:
                advice = f"run ollama pull {target.model}, or choose another model with -m"
            return f"{self._url} does not know {target.model!r} {said}", advice
        if means("no tools", self.reason):
            problem = f"{target.model} does not support tools {said}"
            return problem, "choose another model with -m"
        return problem, ""

    def can_retry(self) -> bool:
        """Return whether the same request may succeed soon."""
        hint = self._headers.get("x-should-retry")  # OpenAI's and Anthropic's
        if hint == "false" or self.refuses_images:
            return False
        if means("wrong type", own_words(self.detail)):
            return False
        if is_spent(self.detail) and not self._has_failed:
            return False
        return hint == "true" or self._has_failed or self._status in _TEMPORARY

    def may_fall_back(self) -> bool:
        """Return whether another provider may answer."""
        is_missing_here = self._is_bad_key or self._is_retired or self._is_unknown
        return is_missing_here or self._has_failed or self._status in _ONLY_HERE


def _advice_on_key(target: Target) -> str:
    """Return where the key is set that was refused."""
    account = target.account
    if target.is_cloud and not account.key:
        return "run ollama signin"
    if account.key_command:
        return f"check api_key_command under [providers.{account.name}]"
    if account.key_variable:
        return f"check {account.key_variable}"
    return f"check api_key_env under [providers.{account.name}]"


# ---- masking

_WIDTH = 400  # characters of an error line


def without_secrets(err: GptshError, secrets: Collection[str]) -> GptshError:
    """Return the same error, with secrets masked wherever they are shown, shortened to one line."""
    text = mask(str(err), secrets)
    if len(text) > _WIDTH:  # the advice is cut off, too
        err.args = (f"{text[: _WIDTH - 1]}…", "")
    else:
        err.args = (mask(err.problem, secrets), mask(err.advice, secrets))
    err.detail = mask(err.detail, secrets)
    # --debug shows the causes: the chain ends before one with a secret.
    cause: BaseException | None = err
    while cause is not None:
        text = repr(cause.__cause__)
        if mask(text, secrets) != text:
            cause.__cause__ = None
            cause.__context__ = None
        cause = cause.__cause__
    return err


# ---- connections


def no_connection(err: Exception, host: str, *, has_proxy: bool) -> GptshError:
    """Return the error for a connection that cannot be opened, in words that say what to do."""
    failure: GptshError
    if isinstance(err, TimeoutError):
        failure = TimedOut(f"connecting to {host} timed out")
    elif isinstance(err, ssl.SSLError):
        todo = "does the server use https?"
        if isinstance(err, ssl.SSLCertVerificationError):
            todo = "set SSL_CERT_FILE to your CA bundle"
        failure = ModelError(f"the TLS connection to {host} failed: {err}", todo)
    elif has_proxy:
        tunnel_error = re.search("Tunnel connection failed: (.*)", str(err))
        what = f"refused: {tunnel_error[1]}" if tunnel_error else "cannot be reached"
        failure = ModelError(f"the proxy for {host} {what}", "check HTTPS_PROXY and NO_PROXY")
    elif isinstance(err, (OSError, UnicodeError)) and _is_vendors(host):
        verb = "resolve" if isinstance(err, socket.gaierror) else "connect to"
        failure = ModelError(f"cannot {verb} {host}", "check your network")
    elif isinstance(err, (socket.gaierror, UnicodeError)):
        failure = ModelError(f"cannot resolve {host}", "is base_url right?")
    else:
        todo = "is the server running, and is base_url right?"
        failure = ModelError(f"cannot connect to {host}", todo)
    failure.detail = repr(err)
    failure.may_fall_back = True
    return failure


def _is_vendors(host: str) -> bool:
    """Return whether a host, with its port, is a vendor's own."""
    bases = [vendor.base_url for name, vendor in VENDORS.items() if name not in LOCAL_VENDORS]
    bases += [endpoint["base_url"] for endpoint in compatible_endpoints().values()]
    hosts = [base.partition("://")[2].partition("/")[0] for base in bases]
    return host in hosts
