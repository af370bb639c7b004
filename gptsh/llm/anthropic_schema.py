"""A JSON Schema as Anthropic's API takes it: of an answer a part of the language, of a tool's arguments one object."""

import json
from typing import Any

from gptsh.jsonio import as_dict

# What a grammar cannot enforce: the API refuses a schema that has it.
_UNSAID = frozenset({
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "prefixItems", "minProperties",
    "maxProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
    "unevaluatedItems", "if", "then", "else", "not",
})  # fmt: skip
_NAMED = ("properties", "$defs", "definitions")
_TELLING = ("type", "enum", "const", "anyOf", "oneOf", "$ref")


class _Unsayable(Exception):
    """It would forbid what the schema allows."""


def narrowed(schema: Any) -> dict[str, Any] | None:
    """The schema without what the API cannot say; None where too much of it would be another schema.

    An answer that conforms to it may still break the one that it came from.
    """
    try:
        return _narrowed(schema)
    except _Unsayable:
        return None


def _narrowed(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or "allOf" in schema or not any(key in schema for key in _TELLING):
        raise _Unsayable
    kept = {key: value for key, value in schema.items() if key not in _UNSAID}
    for key in _NAMED:
        if key in kept:
            kept[key] = {name: _narrowed(inner) for name, inner in kept[key].items()}
    if "items" in kept:
        kept["items"] = _narrowed(kept["items"])
    choices = [*kept.pop("anyOf", []), *kept.pop("oneOf", [])]
    if "anyOf" in schema and "oneOf" in schema:
        raise _Unsayable
    if choices:
        kept["anyOf"] = [_narrowed(inner) for inner in choices]
    return _closed(kept) if _is_object(schema) else kept


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or "properties" in schema or (isinstance(kind, list) and "object" in kind)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """An object of the keys that it names and no others."""
    opens = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    if opens or not schema.get("properties"):
        raise _Unsayable
    return {**schema, "additionalProperties": False}


# ---- arguments of tools

_FOLDED = ("allOf", "anyOf", "oneOf")  # refused at the top level, and there alone
_OBEY = "The arguments must also conform to this JSON Schema: "
_DEEPEST = 8  # choices within choices


def sayable(tool: Any) -> Any:
    """A tool of this API's shape, its ``input_schema`` one object: what that cannot say stands in its description.

    What is no such tool stays as it is.
    """
    schema = tool.get("input_schema") if isinstance(tool, dict) else None
    if not isinstance(schema, dict):
        return tool
    if not any(key in schema for key in _FOLDED):
        return tool if schema.get("type") == "object" else {**tool, "input_schema": {**schema, "type": "object"}}
    properties, required = _Folding(schema).of(schema, _DEEPEST)
    whole = {key: value for key, value in schema.items() if key not in (*_FOLDED, "required")}
    whole |= {"type": "object", "properties": properties, **({"required": sorted(required)} if required else {})}
    rest = {key: schema[key] for key in _FOLDED if key in schema}
    told = json.dumps(rest, ensure_ascii=False, separators=(",", ":"))
    before = f"{tool['description']}\n\n" if tool.get("description") else ""
    return {**tool, "description": f"{before}{_OBEY}{told}", "input_schema": whole}


_Object = tuple[dict[str, Any], set[str]]  # properties, and which of them are required


class _Folding:
    """Folds schemas that may name others of ``root``, and through them themselves."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._named: dict[str, _Object] = {}

    def of(self, schema: dict[str, Any], depth: int) -> _Object:
        """The properties of a schema and of all that it combines; required is what no choice can do without."""
        found: _Object = dict(as_dict(schema.get("properties"))), _names(schema.get("required"))
        if not depth:
            return found
        for key in _FOLDED:
            listed = schema.get(key)
            parts = [self.of(as_dict(part), depth - 1) for part in (listed if isinstance(listed, list) else ())]
            if parts:
                wanted = [names for _, names in parts]
                names = set.union(*wanted) if key == "allOf" else set.intersection(*wanted)
                found = _joined([found, *parts])[0], found[1] | names
        return _joined([found, self._of_name(schema.get("$ref"), depth)])

    def _of_name(self, name: Any, depth: int) -> _Object:
        place, _, own = str(name).removeprefix("#/").partition("/")
        if place not in _NAMED:
            return {}, set()
        if name not in self._named:
            self._named[name] = {}, set()  # while it is looked at
            self._named[name] = self.of(as_dict(as_dict(self._root.get(place)).get(own)), depth - 1)
        return self._named[name]


def _joined(objects: list[_Object]) -> _Object:
    properties: dict[str, Any] = {}
    for inner, _ in objects:
        for name, value in inner.items():
            properties[name] = _either(properties[name], value) if name in properties else value
    return properties, set().union(*(required for _, required in objects))


def _either(one: Any, other: Any) -> Any:
    """A schema that allows what either does."""
    choices = one["anyOf"] if isinstance(one, dict) and set(one) == {"anyOf"} else [one]
    return one if other in choices else {"anyOf": [*choices, other]}


def _names(value: Any) -> set[str]:
    return {name for name in value if isinstance(name, str)} if isinstance(value, list) else set()
