"""A JSON Schema as Anthropic's API takes it: a part of the language, every object closed."""

from typing import Any

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
