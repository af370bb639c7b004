"""The shape that an answer shall have: a JSON Schema, read and checked here, whatever the provider makes of it."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh.core.messages import shortened
from gptsh.errors import UsageError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator
    from referencing import Registry

_SHOWN = 10  # faults that the model is shown
_WIDTH = 300  # characters of one
_ASK = "Answer with JSON alone, no code fence, no other text. It must conform to this JSON Schema:\n"
_REPAIR = "That answer does not conform to the JSON Schema:\n{faults}\nAnswer again, with the corrected JSON alone."
_PLAIN_VALUES = ("const", "enum", "default", "examples")  # what stands there is no schema


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

    @property
    def instructions(self) -> str:
        """The request for such an answer, in words."""
        return _ASK + json.dumps(self.schema, ensure_ascii=False)

    def faults(self, text: str) -> list[str]:
        """What is wrong with an answer, a line each and ten at most; none where it conforms."""
        from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as above

        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as err:
            return [f"not JSON: {err}"]
        try:
            found = list(islice(self._validator.iter_errors(value), _SHOWN))
        except (RecursionError, Unresolvable) as err:
            return [f"it cannot be checked: {err}"]
        return [shortened(f"{fault.json_path}: {fault.message}", _WIDTH) for fault in found]

    def repair(self, faults: list[str]) -> str:
        """The question that shows the model what is wrong."""
        return _REPAIR.format(faults="\n".join(f"- {fault}" for fault in faults))


def _validator(schema: Any) -> "Validator":
    from jsonschema import validators  # noqa: PLC0415 - 0.1 s that only --schema costs
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - as above

    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as err:
        why = shortened(f"{err.json_path}: {err.message}", _WIDTH)
        raise UsageError(f"--schema: no JSON Schema: {why}") from err
    registry = _registry(schema)
    _check_references(schema, registry)
    return kind(schema, registry=registry)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _schema_in(given: str) -> Any:
    text = given
    if not given.lstrip().startswith("{"):
        try:
            text = Path(given).read_text("utf-8-sig")
        except (OSError, ValueError) as err:
            why = err.strerror if isinstance(err, OSError) else "no UTF-8"
            raise UsageError(f"--schema {given}: {why}", "give a file, or the schema itself: '{…}'") from err
    try:
        schema = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as err:
        raise UsageError(f"--schema: not JSON: {err}") from err
    if not isinstance(schema, dict):
        raise UsageError("--schema: a JSON object is expected")
    return schema


def _registry(schema: Any) -> "Registry[Any]":
    """The schema and the published meta-schemas; nothing is fetched."""
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415 - as above
    from referencing import Resource  # noqa: PLC0415 - as above
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415 - as above

    registry: Registry[Any] = REGISTRY.with_resource("", Resource.from_contents(schema, DRAFT202012)).crawl()
    return registry


def _check_references(schema: Any, registry: "Registry[Any]") -> None:
    """Raise UsageError for a reference to what is not in the schema."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as above

    resolver = registry.resolver(schema.get("$id", "") if isinstance(schema.get("$id"), str) else "")
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable as err:
            raise UsageError(f"--schema: {reference!r} is not in it", "put it under $defs; nothing is fetched") from err


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for key, value in schema.items():
            if key not in _PLAIN_VALUES:
                yield from _references(value)
