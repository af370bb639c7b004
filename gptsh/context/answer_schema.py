"""The JSON Schema that an answer has to fit: read and checked here, whatever the provider makes of it."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

from gptsh.errors import UsageError
from gptsh.jsonio import parsed
from gptsh.messages import Message, text_of
from gptsh.text import shortened

_SHOWN = 10  # faults that the model is shown
_WIDTH = 300  # characters of one
_ASK = "Answer with JSON alone, no code fence, no other text. It must conform to this JSON Schema:\n"
_REPAIR = "That answer does not conform to the JSON Schema:\n{faults}\nAnswer again, with the corrected JSON alone."


class AnswerSchema:
    """A schema that answers are checked against."""

    def __init__(self, given: str) -> None:
        """``given`` is the schema itself or the path of its file. Raises UsageError for what is neither.

        A reference that goes nowhere is found when an answer is checked; nothing is fetched.
        """
        from jsonschema import validators  # noqa: PLC0415 - 0.1 s that only --schema costs
        from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - as above

        self.schema = _schema_in(given)
        try:
            kind = validators.validator_for(self.schema, default=validators.Draft202012Validator)
            kind.check_schema(self.schema)
            self._validator = kind(self.schema, registry=REGISTRY)
        except Exception as err:  # the libraries raise ten types for what they cannot make sense of
            raise UsageError(f"--schema: no JSON Schema: {_why(err)}") from err

    def faults(self, text: str) -> list[str]:
        """What is wrong with an answer, a line each and ten at most; none where it conforms.

        Raises UsageError where the answer cannot be checked: a reference goes nowhere, or in circles.
        """
        try:
            value = parsed(text)
        except (ValueError, RecursionError) as err:
            return [f"not JSON: {err}"]
        try:
            found = list(islice(self._validator.iter_errors(value), _SHOWN))
        except ArithmeticError as err:
            return [f"a number in it cannot be checked: {err}"]
        except Exception as err:  # as above
            raise UsageError(f"--schema: the answer cannot be checked against it: {_why(err)}") from err
        return [shortened(f"{fault.json_path}: {fault.message}", _WIDTH) for fault in found]

    def repair(self, faults: list[str]) -> str:
        """The question that shows the model what is wrong."""
        return _REPAIR.format(faults="\n".join(f"- {fault}" for fault in faults))


def _schema_in(given: str) -> dict[str, Any]:
    text = given
    if not given.lstrip().startswith("{"):
        try:
            text = Path(given).read_text("utf-8-sig")
        except (OSError, ValueError) as err:
            why = err.strerror if isinstance(err, OSError) else "no UTF-8"
            raise UsageError(f"--schema {given}: {why}", "give a file, or the schema itself: '{…}'") from err
    try:
        schema = parsed(text)
    except (ValueError, RecursionError) as err:
        raise UsageError(f"--schema: not JSON: {err}") from err
    if not isinstance(schema, dict):
        raise UsageError("--schema: a JSON object is expected")
    return schema


def _why(err: Exception) -> str:
    if isinstance(err, RecursionError):
        return "references in circles, or nested too deeply"
    place = f"{err.json_path}: {err.message}" if hasattr(err, "json_path") and hasattr(err, "message") else str(err)
    return shortened(place or type(err).__name__, _WIDTH)


# ---- asked for in words


def system_with_schema(system: str | None, schema: Any) -> str:
    """A system prompt with the request for such an answer at its end."""
    words = _ASK + json.dumps(schema, ensure_ascii=False)
    return f"{system}\n\n{words}" if system else words


def messages_with_schema(messages: list[Message], schema: Any) -> list[Message]:
    """The messages, their system message with that request, unless it stands there already."""
    first = messages[:1] if messages and messages[0]["role"] == "system" else []
    system = text_of(first[0]) if first else None
    if system and system.endswith(system_with_schema(None, schema)):
        return messages
    return [{"role": "system", "content": system_with_schema(system, schema)}, *messages[len(first) :]]
