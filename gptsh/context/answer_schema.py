"""The shape that an answer shall have: a JSON Schema, read and checked here, whatever the provider makes of it."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh.errors import UsageError
from gptsh.jsonio import parsed
from gptsh.messages import Message, text_of
from gptsh.text import shortened

if TYPE_CHECKING:
    from jsonschema.protocols import Validator
    from referencing import Registry, Resource

_SHOWN = 10  # faults that the model is shown
_WIDTH = 300  # characters of one
_ASK = "Answer with JSON alone, no code fence, no other text. It must conform to this JSON Schema:\n"
_REPAIR = "That answer does not conform to the JSON Schema:\n{faults}\nAnswer again, with the corrected JSON alone."


class Shape:
    """A schema that answers are held against."""

    def __init__(self, given: str) -> None:
        """``given`` is the schema itself or the path of its file.

        Raises UsageError for what is neither, for a schema that is none, and for one that refers to other documents.
        """
        self.schema = _schema_in(given)
        try:
            self._validator = _validator(self.schema)
        except RecursionError as err:
            raise UsageError("--schema: nested too deeply") from err
        except _raised() as err:
            raise UsageError(f"--schema: no JSON Schema: {_told(err)}") from err

    def faults(self, text: str) -> list[str]:
        """What is wrong with an answer, a line each and ten at most; none where it conforms.

        Raises UsageError where the schema cannot be held against it: a reference goes nowhere, or in circles.
        """
        try:
            value = parsed(text)
        except (ValueError, RecursionError) as err:
            return [f"not JSON: {err}"]
        try:
            found = list(islice(self._validator.iter_errors(value), _SHOWN))
        except ArithmeticError as err:
            return [f"a number in it cannot be checked: {err}"]
        except _raised() as err:
            why = "references in circles, or nested too deeply" if isinstance(err, RecursionError) else _told(err)
            raise UsageError(f"--schema: the answer cannot be held against it: {why}") from err
        return [shortened(f"{fault.json_path}: {fault.message}", _WIDTH) for fault in found]

    def repair(self, faults: list[str]) -> str:
        """The question that shows the model what is wrong."""
        return _REPAIR.format(faults="\n".join(f"- {fault}" for fault in faults))


# ---- in words


def in_words(system: str | None, schema: Any) -> str:
    """A system prompt with the request for such an answer at its end."""
    words = _ASK + json.dumps(schema, ensure_ascii=False)
    return f"{system}\n\n{words}" if system else words


def asked_in_words(messages: list[Message], schema: Any) -> list[Message]:
    """The messages, their system message with that request, unless it stands there already."""
    first = messages[:1] if messages and messages[0]["role"] == "system" else []
    system = text_of(first[0]) if first else None
    if system and system.endswith(in_words(None, schema)):
        return messages
    return [{"role": "system", "content": in_words(system, schema)}, *messages[len(first) :]]


# ---- reading a schema


def _schema_in(given: str) -> Any:
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


def _validator(schema: Any) -> "Validator":
    from jsonschema import validators  # noqa: PLC0415 - 0.1 s that only --schema costs
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - as above

    named = schema if isinstance(schema.get("$schema"), str) else {}
    kind = validators.validator_for(named, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as err:
        why = shortened(f"{err.json_path}: {err.message}", _WIDTH)
        raise UsageError(f"--schema: no JSON Schema: {why}") from err
    registry = _registry()
    _check(schema, registry, [key for key in ("$ref", "$dynamicRef") if key in kind.VALIDATORS])
    return kind(schema, registry=registry)


def _registry() -> "Registry[Any]":
    """The published meta-schemas; nothing is fetched."""
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - as above

    registry: Registry[Any] = REGISTRY
    return registry


def _check(schema: Any, registry: "Registry[Any]", refer: list[str]) -> None:
    """Raise UsageError for a reference to what is not in the schema or no schema, and for a pattern that is none."""
    from referencing import Resource  # noqa: PLC0415 - as above
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415 - as above

    root: Resource[Any] = Resource.from_contents(schema, DRAFT202012)
    for part, resolver in _parts(root, registry.resolver_with_root(root)):
        for pattern in part.get("patternProperties", {}):
            re.compile(pattern)
        for reference in (part[key] for key in refer if isinstance(part.get(key), str)):
            _check_reference(reference, resolver)


def _parts(resource: "Resource[Any]", resolver: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Every object that is a schema, and not a value or a name in one, with the resolver of its references."""
    if isinstance(resource.contents, dict):
        yield resource.contents, resolver
        for part in resource.subresources():
            yield from _parts(part, resolver.in_subresource(part))


def _check_reference(reference: str, resolver: Any) -> None:
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as above

    try:
        found = resolver.lookup(reference).contents
    except (Unresolvable, TypeError, ValueError) as err:  # the latter two where the way goes through no object
        raise UsageError(f"--schema: {reference!r} is not in it", "put it under $defs; nothing is fetched") from err
    if not isinstance(found, (dict, bool)):
        raise UsageError(f"--schema: {reference!r} is no schema")


def _raised() -> tuple[type[Exception], ...]:
    """What the libraries raise for a schema that they cannot make sense of."""
    from jsonschema import exceptions  # noqa: PLC0415 - as above
    from referencing.exceptions import CannotDetermineSpecification, Unresolvable  # noqa: PLC0415 - as above
    from referencing.jsonschema import UnknownDialect  # noqa: PLC0415 - as above

    theirs = (exceptions.UndefinedTypeCheck, exceptions.UnknownType, CannotDetermineSpecification, Unresolvable)
    ours = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, re.error)
    return (*ours, *theirs, UnknownDialect)


def _told(err: Exception) -> str:
    return shortened(str(err) or type(err).__name__, _WIDTH)
