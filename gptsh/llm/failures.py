"""Turn errors of servers and connections into gptsh's own, with advice.

Only an error imports this file.
"""

import re
import socket
import ssl
from collections.abc import Collection, Mapping

from gptsh.config.accounts import Target
from gptsh.config.schema import mask
from gptsh.errors import Filtered, GptshError, LoadingModel, ModelError, TimedOut
from gptsh.llm.wordings import (
    READ,
    is_filtered,
    is_spent,
    means,
    means_too_long,
    message_in_body,
    own_words,
    retry_after,
    too_long,
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
_LOADING = 503
_SERVER_ERROR = 500
_RETRY = (408, 409, 429)  # and every 5xx
# No credit, no access, or too many requests: of this provider alone.
_UNAVAILABLE = (402, _FORBIDDEN, 408, 410, 429)
_TOO_LONG = (400, 413, 422, 500)


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
    reason = message_in_body(body)
    detail = body.decode("utf-8", "replace")
    provider = target.provider
    said = f"({status}): {reason}" if reason else f"({status})"
    if status in _TOO_LONG and means_too_long(detail):
        return too_long(f"{provider} cannot take a prompt of this length: {reason}", reason, detail)
    if is_filtered(detail):
        return Filtered(f"{provider}'s filter refused the question {said}", detail=detail)

    err: ModelError
    if status == _LOADING and means("loading", reason):
        err = LoadingModel(f"{provider} is loading {target.model}", detail=detail)
    else:
        err = _refusal(url, status, headers, reason, detail, target)
    err.status = status
    err.retry_after = retry_after(headers, detail)
    return err


def _refusal(
    url: str,
    status: int,
    headers: Mapping[str, str],
    reason: str,
    detail: str,
    target: Target,
) -> ModelError:
    """Return what was refused, what to do, and whether a retry or another provider may help."""
    provider = target.provider
    said = f"({status}): {reason}" if reason else f"({status})"
    has_failed = status >= _SERVER_ERROR
    is_bad_key = (
        status == _UNAUTHORIZED
        or (status == _FORBIDDEN and means("key", reason))
        or means("bad key", detail)
    )
    is_retired = means("retired", reason)
    is_unknown = status == _NOT_FOUND or means("unknown model", detail)

    what = f"{provider} failed {said}" if has_failed else f"{provider} refused {said}"
    todo = ""
    if is_bad_key:
        what = f"{provider} refused the key {said}"
        todo = _advice_on_key(target)
    elif status in _REDIRECTS and "location" in headers:  # not followed: it would get the key
        what = f"{url} redirects to {headers['location']}"
        todo = "change base_url"
    elif is_retired:
        what = f"{provider} no longer has {target.model!r} {said}"
        todo = "choose another model with -m"
    elif means("not loaded", reason):
        todo = "load it there, or start the server without --no-models-autoload"
    elif is_unknown:
        what = f"{url} does not know {target.model!r} {said}"
        can_pull = target.api == "ollama" and "model" in reason
        todo = f"ollama pull {target.model}, or see -m" if can_pull else "see -m and base_url"
    elif means("no tools", reason):
        what = f"{target.model} does not support tools {said}"
        todo = "choose another model with -m"

    err = ModelError(what, todo, detail=detail)
    err.refuses_images = means("images", own_words(detail))
    hint = headers.get("x-should-retry")  # OpenAI's and Anthropic's
    may_pass = hint == "true" or status in _RETRY or has_failed
    is_final = (
        hint == "false"
        or (is_spent(detail) and not has_failed)
        or means("wrong type", detail[:READ])
        or err.refuses_images
    )
    err.can_retry = may_pass and not is_final
    is_missing_here = is_bad_key or is_retired or is_unknown
    err.may_fall_back = is_missing_here or has_failed or status in _UNAVAILABLE
    return err


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
    if len(text) > _WIDTH:
        err.args = (f"{text[: _WIDTH - 1]}…", "")
    else:
        err.args = (mask(err.problem, secrets), mask(err.advice, secrets))
    err.detail = mask(err.detail, secrets)
    cause: BaseException | None = err
    while cause is not None:  # --debug shows the causes
        shown = repr(cause.__cause__)
        if mask(shown, secrets) != shown:
            cause.__cause__ = cause.__context__ = None
        cause = cause.__cause__
    return err


# ---- connections


def no_connection(err: Exception, host: str, *, has_proxy: bool) -> GptshError:
    """Return the error for a connection that cannot be opened, in words that say what to do."""
    failure: GptshError
    if isinstance(err, TimeoutError):
        failure = TimedOut(f"no connection to {host} in time")
    elif isinstance(err, ssl.SSLError):
        todo = "does the server use https?"
        if isinstance(err, ssl.SSLCertVerificationError):
            todo = "set SSL_CERT_FILE to your CA bundle"
        failure = ModelError(f"no secure connection to {host}: {err}", todo)
    elif has_proxy:
        refusal = re.search("Tunnel connection failed: (.*)", str(err))
        what = f"refused: {refusal[1]}" if refusal else "cannot be reached"
        failure = ModelError(f"the proxy for {host} {what}", "see HTTPS_PROXY and NO_PROXY")
    elif isinstance(err, (OSError, UnicodeError)) and _is_vendors(host):
        what = "cannot be found" if isinstance(err, socket.gaierror) else "cannot be reached"
        failure = ModelError(f"the host {host} {what}", "is the network down?")
    elif isinstance(err, (socket.gaierror, UnicodeError)):
        failure = ModelError(f"the host {host} is not known", "is base_url right?")
    else:
        todo = "is the server running, and base_url right?"
        failure = ModelError(f"nothing answers at {host}", todo)
    failure.detail = repr(err)
    failure.may_fall_back = True
    return failure


def _is_vendors(host: str) -> bool:
    """Return whether a host, with its port, is a vendor's own."""
    bases = [vendor.base_url for name, vendor in VENDORS.items() if name not in LOCAL_VENDORS]
    bases += [endpoint["base_url"] for endpoint in compatible_endpoints().values()]
    return any(base.partition("://")[2].partition("/")[0] == host for base in bases)
