"""Read the JSON Schema of ``--schema``, or of a class; ask for it in words; check the answer."""

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptsh.errors import UsageError
from gptsh.files import read_text
from gptsh.jsonio import JsonObject, parse_json
from gptsh.messages import Message, text_of
from gptsh.text import shorten

if TYPE_CHECKING:
    from referencing import Specification
    from referencing.jsonschema import Schema, SchemaRegistry

_TOO_DEEP = "circular references, or nested too deeply"
_MAX_FAULTS = 10  # listed for the model
_FAULT_WIDTH = 300  # characters
_ASK = """\
Answer with JSON alone, no code fence, no other text. It must conform to this JSON Schema:
"""
_REPAIR = """\
That answer does not conform to the JSON Schema:
{faults}
Answer again, with the corrected JSON alone."""


class AnswerSchema:
    """A schema to check answers against."""

    def __init__(self, text_or_path: str) -> None:
        """Read the schema, which is given as JSON or as the path of a file. Raises UsageError.

        Nothing is fetched: a reference leads into the schema itself or to a published meta-schema.
        """
        from jsonschema import validators
        from jsonschema_specifications import REGISTRY
        from referencing.jsonschema import specification_with

        self.schema = _read_schema(text_or_path)
        with _as_usage_error("--schema: not a JSON Schema"):
            latest = validators.Draft202012Validator
            validator = validators.validator_for(self.schema, default=latest)
            validator.check_schema(self.schema)
            self._validator = validator(self.schema, registry=REGISTRY)
            specification = specification_with(validator.META_SCHEMA["$schema"])
            dangling = _find_dangling(self.schema, specification, REGISTRY)
        if dangling:
            problem = f"--schema: not a JSON Schema: $ref {dangling} cannot be resolved"
            raise UsageError(problem, "gptsh does not fetch schemas")

    def faults(self, text: str) -> list[str]:
        """List what is wrong with an answer, one line each and at most ten; empty if it conforms.

        Raises UsageError if the answer cannot be checked because its references go in circles.
        """
        try:
            value = parse_json(text)
        except (ValueError, RecursionError) as err:
            return [f"not JSON: {err}"]
        with _as_usage_error("--schema: the answer cannot be checked against it"):
            try:
                errors = [*islice(self._validator.iter_errors(value), _MAX_FAULTS)]
            except ArithmeticError as err:
                return [f"a number in it cannot be checked: {err}"]
        return [shorten(f"{fault.json_path}: {fault.message}", _FAULT_WIDTH) for fault in errors]

    def repair(self, faults: list[str]) -> str:
        """Return the message that asks the model to correct these faults."""
        lines = [f"- {fault}" for fault in faults]
        return _REPAIR.format(faults="\n".join(lines))


@contextlib.contextmanager
def _as_usage_error(problem: str) -> Iterator[None]:
    """Raise what the libraries raise for a schema that they cannot use as UsageError."""
    try:
        yield
    except BaseException as err:
        # Rust code raises a PanicException at the limit of recursion; it is no Exception.
        if isinstance(err, RecursionError) or type(err).__name__ == "PanicException":
            raise UsageError(f"{problem}: {_TOO_DEEP}") from err
        if not isinstance(err, Exception):
            raise
        why = str(err) or type(err).__name__
        if hasattr(err, "json_path") and hasattr(err, "message"):
            why = f"{err.json_path}: {err.message}"
        raise UsageError(f"{problem}: {shorten(why, _FAULT_WIDTH)}") from err


def _read_schema(text_or_path: str) -> JsonObject:
    text = text_or_path
    if not text.lstrip().startswith("{"):
        try:
            text = read_text(Path(text_or_path), may_be_pipe=True)
        except (OSError, ValueError) as err:
            why = err.strerror if isinstance(err, OSError) else "not UTF-8"
            problem = f"--schema {text_or_path}: {why}"
            raise UsageError(problem, "give a file, or the schema itself: '{…}'") from err
    try:
        schema = parse_json(text)
    except (ValueError, RecursionError) as err:
        raise UsageError(f"--schema: not JSON: {err}") from err
    if not isinstance(schema, dict):
        raise UsageError("--schema: expected a JSON object")
    return schema


def _find_dangling(
    schema: JsonObject,
    specification: "Specification[Schema]",
    registry: "SchemaRegistry",
) -> str | None:
    """Return the first reference in a schema, or in what it refers to, that leads nowhere."""
    from referencing.exceptions import Unresolvable

    root = specification.create_resource(schema)
    seen: set[int] = set()
    unvisited = [(root, registry.resolver_with_root(root))]
    while unvisited:
        resource, resolver = unvisited.pop()
        contents = resource.contents
        if not isinstance(contents, dict) or id(contents) in seen:  # true and false are schemas
            continue
        seen.add(id(contents))
        for key in ("$ref", "$dynamicRef"):
            if key in contents:
                try:
                    target = resolver.lookup(contents[key])
                except Unresolvable:
                    return str(contents[key])
                resource_there = specification.create_resource(target.contents)
                unvisited.append((resource_there, target.resolver))
        for inner in resource.subresources():
            unvisited.append((inner, resolver.in_subresource(inner)))
    return None


# ---- of a class

_TYPES = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}
_REF = "#/$defs/"


def schema_of(hint: Any) -> JsonObject:
    """Return the schema of a dataclass, a pydantic model, or a type of JSON with such in it.

    Raises TypeError for any other.
    """
    definitions: JsonObject = {}
    schema = _schema_of(hint, definitions)
    name = schema.pop("$ref", "").removeprefix(_REF)
    if name:  # some providers want an object at the top, and no reference
        schema = definitions[name]
        is_recursive = _REF + name in json.dumps(definitions)
        if not is_recursive:
            del definitions[name]
    if definitions:
        return {**schema, "$defs": definitions}
    return schema


def _schema_of(hint: Any, definitions: JsonObject) -> JsonObject:
    """Return the schema of a type; ``definitions`` get those of the classes in it."""
    from dataclasses import is_dataclass
    from enum import EnumMeta
    from types import UnionType
    from typing import Literal, Union, get_args, get_origin

    origin = get_origin(hint)
    if origin is Literal:
        return {"enum": [*get_args(hint)]}
    if isinstance(hint, EnumMeta):
        members: list[Any] = [*hint]
        return {"enum": [member.value for member in members]}
    if hasattr(hint, "model_json_schema"):  # pydantic's
        schema: JsonObject = hint.model_json_schema()
        definitions.update(schema.pop("$defs", {}))
        return schema
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # it may have one of its own kind in it
            definitions[hint.__name__] = _schema_of_fields(hint, definitions)
        return {"$ref": _REF + hint.__name__}
    inner = [_schema_of(argument, definitions) for argument in get_args(hint)]
    if origin in (Union, UnionType):
        return {"anyOf": inner}
    if origin is list:
        return {"type": "array", "items": inner[0]}
    if origin is dict:
        return {"type": "object", "additionalProperties": inner[1]}
    if hint not in _TYPES:
        raise TypeError(f"schema: {hint!r} is no dataclass, no pydantic model and no type of JSON")
    return {**_TYPES[hint]}


def _schema_of_fields(dataclass: type, definitions: JsonObject) -> JsonObject:
    """Return the schema of a dataclass; fields without a default are required."""
    from dataclasses import MISSING, fields
    from typing import get_type_hints

    hints = get_type_hints(dataclass)
    properties = {}
    required = []
    for field in fields(dataclass):
        if not field.init:
            continue
        properties[field.name] = _schema_of(hints[field.name], definitions)
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(field.name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


# ---- requested in words


def system_with_schema(system: str | None, schema: object) -> str:
    """Append the request for an answer of this schema to a system prompt."""
    request = _ASK + json.dumps(schema, ensure_ascii=False)
    if system:
        return f"{system}\n\n{request}"
    return request


def messages_with_schema(messages: list[Message], schema: object) -> list[Message]:
    """Add the request for an answer of this schema to the system message, if it is not there."""
    system = None
    rest = messages
    if messages and messages[0]["role"] == "system":
        system = text_of(messages[0])
        rest = messages[1:]
    if system and system.endswith(system_with_schema(None, schema)):
        return messages
    return [{"role": "system", "content": system_with_schema(system, schema)}, *rest]
