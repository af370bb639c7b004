"""Read the JSON Schema of ``--schema``, ask for it in words, and check the answer against it."""

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from gptsh.errors import UsageError
from gptsh.files import read_text
from gptsh.jsonio import JsonObject, parse_json
from gptsh.messages import Message, text_of
from gptsh.text import shorten

if TYPE_CHECKING:
    from referencing import Specification
    from referencing.jsonschema import Schema, SchemaRegistry

_TOO_DEEP = "references in circles, or nested too deeply"
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
            kind = validators.validator_for(self.schema, default=latest)
            kind.check_schema(self.schema)
            self._validator = kind(self.schema, registry=REGISTRY)
            specification = specification_with(kind.META_SCHEMA["$schema"])
            dangling = _find_dangling(self.schema, specification, REGISTRY)
        if dangling:
            problem = f"--schema: not a JSON Schema: $ref {dangling} leads nowhere"
            raise UsageError(problem, "gptsh fetches no schema")

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
                errors = list(islice(self._validator.iter_errors(value), _MAX_FAULTS))
            except ArithmeticError as err:
                return [f"a number in it cannot be checked: {err}"]
        return [shorten(f"{fault.json_path}: {fault.message}", _FAULT_WIDTH) for fault in errors]

    def repair(self, faults: list[str]) -> str:
        """The message that asks the model to correct these faults."""
        return _REPAIR.format(faults="\n".join(f"- {fault}" for fault in faults))


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
        raise UsageError("--schema: a JSON object is expected")
    return schema


def _find_dangling(
    schema: JsonObject,
    specification: "Specification[Schema]",
    registry: "SchemaRegistry",
) -> str | None:
    """The first reference in a schema, or in what it refers to, that leads nowhere."""
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


# ---- requested in words


def system_with_schema(system: str | None, schema: object) -> str:
    """Append the request for an answer of this schema to a system prompt."""
    request = _ASK + json.dumps(schema, ensure_ascii=False)
    return f"{system}\n\n{request}" if system else request


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
