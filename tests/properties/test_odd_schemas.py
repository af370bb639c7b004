"""Whatever a schema says, an answer is checked against it or one line says why not."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gptsh.context.answer_schema import AnswerSchema
from gptsh.errors import UsageError

WORDS = st.sampled_from(
    ["type", "properties", "items", "$ref", "$schema", "$id", "$anchor", "$dynamicRef", "enum", "pattern", "multipleOf",
     "minimum", "required", "allOf", "not", "if", "then", "$defs", "additionalProperties", "prefixItems", "extends"]
)  # fmt: skip
VALUES = st.sampled_from(
    [None, True, 0, -1, 1e308, 10**400, "", "a", "#", "#/$defs/a", "#/x", "#/%zz", "#/~2", "http://[", "http://x/", "(",
     [], {}, ["a"], [{}], "object", "\ud800", {"$ref": "#"}, "http://json-schema.org/draft-03/schema#",
     "http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2019-09/schema"]
)  # fmt: skip
SCHEMAS = st.dictionaries(
    WORDS,
    st.recursive(
        VALUES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    ),
    max_size=4,
)
ANSWERS = (
    "1",
    "1.5",
    "1" + "0" * 400,
    '"a"',
    "[1, 2]",
    "{}",
    '{"a": 1, "$ref": [1]}',
    "null",
    "no JSON",
)


@settings(max_examples=200)
@given(SCHEMAS)
def test_an_answer_is_checked_or_the_schema_is_refused(schema: dict[str, object]) -> None:
    error = ""
    faults: list[list[str]] = []
    try:
        checker = AnswerSchema(json.dumps(schema))
        faults = [checker.faults(answer) for answer in ANSWERS]
    except UsageError as err:
        error = str(err)
    assert error.startswith("--schema: ") if error else len(faults) == len(ANSWERS)
    assert all(len(fault) <= 300 for found in faults for fault in found)
