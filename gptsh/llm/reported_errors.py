"""An error that a provider reports inside an answer, such as an overload in a stream of status 200."""

import json
import re
from collections.abc import Mapping
from typing import Any

from gptsh.errors import Filtered, GptshError, ModelError
from gptsh.jsonio import as_dict

# The codes, statuses and types of errors inside an answer that a retry may avoid, and every 5xx.
_TEMPORARY = {
    "408", "409", "429",
    "overloaded_error", "rate_limit_error", "api_error", "timeout_error",  # Anthropic
    "server_error", "rate_limit_exceeded", "internal_server_error", "service_unavailable",  # OpenAI and others
    "overloaded", "engine_overloaded", "engine_overloaded_error",  # Moonshot and others
    "unavailable", "resource_exhausted",  # Google
}  # fmt: skip


def reported_error(error: Any, payload: Mapping[str, Any]) -> GptshError:
    """The error for one inside an answer; --debug prints ``payload``. An overload can be retried."""
    # Few answers have an error.
    from gptsh.llm.error_bodies import message_in, retry_after
    from gptsh.llm.error_statuses import is_filtered
    from gptsh.llm.too_long import means_too_long, too_long

    reason, detail = message_in(error), json.dumps(payload)
    what = f"the provider reported: {reason or 'an error'}"
    if means_too_long(json.dumps(error)):
        return too_long(what, reason, detail)
    if is_filtered(json.dumps(error)):
        return Filtered(f"the provider's filter refused the question: {reason or 'an error'}", detail=detail)
    err, fields = ModelError(what, detail=detail), as_dict(error)
    err.can_retry = any(_is_temporary(str(fields.get(key))) for key in ("code", "status", "type"))
    err.may_fall_back = err.can_retry
    err.retry_after = retry_after({}, detail)
    return err


def _is_temporary(code: str) -> bool:
    return code.lower() in _TEMPORARY or bool(re.fullmatch("5[0-9][0-9]", code))
