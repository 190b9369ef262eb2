"""What a schema that is accepted allows is valid under it, keyword by keyword; other keywords are refused by name."""

import json
import random
import re
from collections.abc import Iterator
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidRequest
from local_worker.engine.grammars import ConstraintBroken, Grammars
from local_worker.json_schemas.disjointness import Disjointness
from local_worker.json_schemas.negation import Opposites
from local_worker.json_schemas.patterns import other_than
from local_worker.tokenizer import ByteTokenizer
from serving.constraint import Constraint
from tests.unit.local_worker.engine.schema_validator import is_valid

Schema = dict[str, Any]
LONGEST = 300  # bytes of an output
ENDING = frozenset(b'"]}')
# The keywords of draft 2020-12 by vocabulary.
KEYWORDS: dict[str, set[str]] = {
    "core": {"$schema", "$id", "$ref", "$defs", "$anchor", "$comment", "$dynamicRef", "$dynamicAnchor"},
    "applicator": {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "propertyNames"},
    "of arrays": {"prefixItems", "items", "contains", "minContains", "maxContains", "minItems", "maxItems"},
    "of objects": {"properties", "patternProperties", "additionalProperties", "minProperties", "maxProperties"},
    "unevaluated": {"unevaluatedItems", "unevaluatedProperties"},
    "validation": {"type", "enum", "const", "uniqueItems", "required", "dependentRequired"},
    "of numbers": {"multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"},
    "of strings": {"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"},
    "notes": {"title", "default", "examples"},
}
TREE: Schema = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["children"],
            "additionalProperties": False,
        }
    },
}
AB: Schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
# Schema, valid values, invalid values; properties of valid objects are in the order of the schema.
OBEYED: list[tuple[Schema, list[Any], list[Any]]] = [
    ({}, [1, "a", None, [], {"a": [True]}], []),
    ({"type": "integer"}, [0, -12, 10**9], [1.5, "1", True, None]),
    ({"type": "number"}, [0, -1.25, 1e3], ["1", False, []]),
    ({"type": ["string", "null"]}, ["", "a", None], [0, False, {}]),
    ({"enum": ["a", 1, None, {"b": [2]}]}, ["a", 1, None, {"b": [2]}], ["b", 2, {"b": []}]),
    ({"const": {"a": 1}}, [{"a": 1}], [{"a": 2}, {}, "a"]),
    ({"type": "integer", "minimum": -3, "maximum": 12}, [-3, 0, 12], [-4, 13, 120]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5}, [0.1, 1, 1.49], [0, 1.5, -1, 2]),
    ({"type": "integer", "multipleOf": 5}, [0, 5, 120], [1, 12]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc", "é\n"], ["", "a", "abcd"]),
    ({"type": "string", "pattern": "^[a-c]+$"}, ["a", "abc"], ["", "abd", "1a"]),
    ({"type": "string", "pattern": "b"}, ["b", "abc"], ["", "ac"]),
    ({"type": "string", "format": "date"}, ["2024-02-29", "2023-02-29"], ["2024-2-29", "2023-02-30", "today"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    ({"type": "string", "format": "ipv4"}, ["127.0.0.1"], ["127.0.0", "256.1.1.1"]),
    ({"type": "array", "items": {"type": "integer"}}, [[], [1, 2]], [["a"], {}, [1, None]]),
    ({"type": "array", "minItems": 1, "maxItems": 2}, [[1], [1, "a"]], [[], [1, 2, 3]]),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
        [[], [1], [1, "a"]],
        [["a"], [1, 2], [1, "a", 2]],
    ),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]},
        [{"a": 1}, {"a": 1, "b": "x"}, {"a": 1, "c": None}],
        [{}, {"b": 1}, {"a": "1"}],
    ),
    ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, [{}, {"a": 1}], [{"b": 1}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"x": 1}], [{"x": "1"}]),
    (
        {"type": "object", "patternProperties": {"^n": {"type": "integer"}}, "additionalProperties": False},
        [{}, {"n1": 1}],
        [{"n1": "1"}, {"m": 1}],
    ),
    ({"type": "object", "minProperties": 1, "maxProperties": 2}, [{"a": 1}], [{}, {"a": 1, "b": 2, "c": 3}]),
    ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]}, ["a", 5], [4, None]),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 5], [1.5, None]),
    ({"allOf": [{"type": "integer"}, {"minimum": 5}, {"maximum": 7}]}, [5, 7], [4, 8, "6"]),
    ({"type": "integer", "default": 5, "title": "t", "examples": [1], "$comment": "c", "unheard-of": 1}, [5, 7], ["5"]),
    ({"type": "string", "contentEncoding": "base64", "contentMediaType": "text/plain"}, ["", "no base64"], [1]),
    ({"$ref": "#whole", "$defs": {"a": {"$anchor": "whole", "type": "integer"}}}, [5], ["5", None]),
    (
        {"$id": "http://127.0.0.1/a", "$ref": "#/$defs/a", "maximum": 5, "$defs": {"a": {"type": "integer"}}},
        [5],
        [6, "5"],
    ),
    (
        {"type": "object", "properties": {"a": True, "b": False}, "additionalProperties": False},
        [{}, {"a": 1}],
        [{"b": 1}],
    ),
    (
        {
            "$defs": {"number": {"type": "integer"}},
            "type": "object",
            "allOf": [
                {"properties": {"a": {"$ref": "#/$defs/number"}}},
                {"additionalProperties": {"$ref": "#/$defs/number"}},
            ],
        },
        [{"a": 1}, {"b": 2}, {}],
        [{"a": "x"}, {"b": None}],
    ),
    ({"$schema": "https://json-schema.org/draft/2020-12/schema", "minimum": 5, "type": "number"}, [5, 7.5], [4, "5"]),
    *(
        ({"type": "object", "additionalProperties": {"type": "integer"}, **names}, [{}, {"a": 1}, {"b": 2}], invalid)
        for names, invalid in (
            ({"propertyNames": {"enum": ["a", "b"]}}, [{"c": 1}, {"a": "x"}]),
            ({"propertyNames": {"type": "string", "pattern": "^[ab]$", "title": "t"}}, [{"ab": 1}, {"a": "x"}]),
            ({"propertyNames": {"minLength": 1, "maxLength": 2}}, [{"": 1}, {"abc": 1}, {"a": "x"}]),
            ({"propertyNames": {"maxLength": 1}}, [{"ab": 1}]),
            (
                {"propertyNames": {"$ref": "#/$defs/a~1b"}, "$defs": {"a/b": {"enum": ["a", "b"]}}},
                [{"c": 1}, {"a": "x"}],
            ),
        )
    ),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}, "c": {}}, "propertyNames": {"const": "a"}},
        [{}, {"a": 1}],
        [{"c": 1}, {"a": "x"}],
    ),
    ({"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False}, [{}, {"a": 1}], [{"b": 1}]),
    (
        {"type": "object", "additionalProperties": {"type": "integer"}, "unevaluatedProperties": False, "anyOf": [{}]},
        [{}, {"b": 1}],
        [{"b": "x"}],
    ),
    (
        {
            "$defs": {
                "base": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}},
                    "allOf": [{"$ref": "#/$defs/deep"}],
                },
                "deep": {"patternProperties": {"^x{,": {"type": "null"}}},
            },
            "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
            "type": "object",
            "unevaluatedProperties": False,
        },
        [{"b": 1}, {"a": 1, "b": 1}, {"b": 1, "x{,": None}],
        [{}, {"a": 1}, {"b": 1, "c": 1}, {"b": 1, "x{,": 1}],
    ),
    (
        {
            "allOf": [{"properties": {"a": {}}, "additionalProperties": {}}],
            "type": "object",
            "unevaluatedProperties": False,
        },
        [{}, {"a": 1}, {"b": 1}],
        [1],
    ),
    ({"prefixItems": [{}], "type": "array", "unevaluatedItems": {"type": "null"}}, [[], [1, None]], [[1, 1]]),
    ({"items": {"type": "null"}, "type": "array", "unevaluatedItems": False}, [[], [None]], [[1]]),
    ({"not": {"type": ["string", "number"]}}, [True, None, [], {}], ["a", 1, 1.5]),
    ({"type": "string", "not": {"enum": ["ab", "b\n", 'c"']}}, ["", "a", "abc", "c", "é"], ["ab", "b\n", 'c"', 1]),
    ({"enum": ["a", None, True, False], "not": {"enum": ["b", True, None]}}, ["a", False], [True, None, "b"]),
    ({"type": "integer", "not": {"minimum": 5}}, [4, -1], [5, 6]),
    ({"type": "string", "not": {"maxLength": 1}}, ["ab"], ["", "a"]),
    ({"type": ["string", "array"], "not": {"minItems": 1}}, [[]], [[1], "a"]),
    ({"type": "object", **AB, "not": {"required": ["a", "b"]}}, [{}, {"a": 1}, {"b": 1}, {"c": 1}], [{"a": 1, "b": 1}]),
    ({"type": "object", **AB, "not": {"anyOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}]}}, [{"b": 1}], [{}]),
    ({"$defs": {"n": {"type": "null"}}, "not": {"$ref": "#/$defs/n"}}, [1, "a"], [None]),
    (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["x", "y"]}, "a": {"type": "integer"}},
            "if": {"properties": {"kind": {"const": "x"}}},
            "then": {"required": ["a"]},
            "else": {"properties": {"a": False}},
        },
        [{"kind": "x", "a": 1}, {"kind": "y"}, {"a": 1}],
        [{"kind": "x"}, {"kind": "y", "a": 1}, {}, {"kind": "z"}],
    ),
    ({"if": {"type": "string"}, "then": {"minLength": 2}}, ["ab", 1, None], ["a"]),
    ({"if": {"type": "string"}, "else": {"minimum": 2}}, ["a", 2, 3], [1]),
    ({"type": "object", **AB, "dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
    (
        {"type": "object", **AB, "dependentSchemas": {"a": {"properties": {"b": False}}}},
        [{}, {"b": 1}, {"a": 1}],
        [{"a": 1, "b": 1}],
    ),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, [[], [1]], [[1, 2]]),
    (
        {
            "$defs": {"color": {"enum": ["red", "blue", 1, True], "title": "Color"}},
            "type": "array",
            "items": {"$ref": "#/$defs/color"},
            "uniqueItems": True,
            "minItems": 1,
            "maxItems": 3,
        },
        [["blue"], ["blue", "red", True], [1, True]],
        [[], ["red", "red"], ["red", "blue", 1, True], ["green"]],
    ),
    # `oneOf` whose branches overlap, or are disjoint by what only their references, values and properties tell.
    (
        {"type": "object", **AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}],
        [{}, {"a": 1, "b": 1}],
    ),
    ({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 3}]}, ["", "ab"], ["abc", 1]),
    (
        {
            "$defs": {"list": {"type": "array", "items": {"type": "null"}}},
            "oneOf": [{"$ref": "#/$defs/list"}, {"type": "null"}],
        },
        [[], [None], None],
        [1, [1]],
    ),
    (
        {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}},
                    "required": ["a"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {"b": {"type": "integer"}},
                    "required": ["b"],
                    "additionalProperties": False,
                },
            ]
        },
        [{"a": 1}, {"b": 1}],
        [{}, {"a": 1, "b": 1}, {"a": "x"}],
    ),
    # As code that others have generated has them.
    ({"$ref": "#/$defs/Record<string,a b>", "$defs": {"Record<string,a b>": {"type": "integer"}}}, [1], ["a"]),
    ({"$id": "http://127.0.0.1/docs#part", "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, [1], ["a"]),
    ({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.7976931348623157e308}, [0, -2.5, 1000], ["a"]),
    ({"type": "integer", "minimum": -(2**63), "maximum": 2**63}, [0, -12], [1.5]),
    (TREE, [{"children": []}, {"children": [{"children": [{"children": []}]}]}], [{}, {"children": [1]}]),
]
OVERLAP: list[Schema] = [{"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}]
REFUSED: list[tuple[Schema, str]] = [
    ({"not": {"type": "integer"}}, "not"),
    ({"not": {"pattern": "a"}}, "not"),
    ({"not": {"const": {"a": 1}}}, "not"),
    ({"type": "string", "not": {"enum": ["x" * 400]}}, "not"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "uniqueItems": True, "items": {"enum": [*"abcdef"]}}, "uniqueItems"),
    ({"type": "array", "uniqueItems": True, "items": {"enum": [1, 1.0]}}, "uniqueItems"),
    ({"type": "array", "contains": {"type": "integer"}}, "contains"),
    ({"if": {"format": "ipv4"}, "then": {"minLength": 2}}, "if"),
    ({"propertyNames": {"format": "ipv4"}}, "propertyNames"),
    ({"propertyNames": {"maxLength": 3}, "properties": {"a": {}}}, "propertyNames"),
    ({"propertyNames": {"enum": ["a"]}, "required": ["b"]}, "propertyNames"),
    ({"propertyNames": {"$ref": "#/$defs/missing"}}, "propertyNames"),
    ({"anyOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}, "unevaluatedProperties"),
    ({"$ref": "#", "unevaluatedProperties": False}, "unevaluatedProperties"),
    ({"allOf": [{"$ref": "#/$defs/missing"}], "unevaluatedProperties": False}, "unevaluatedProperties"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    ({"type": "string", "pattern": "(?=a)"}, "look-around"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "Unsatisfiable"),
    ({"$ref": "#/$defs/missing"}, "missing"),
    ({"minimum": "5"}, "5"),
    ({"type": "array", "contains": {}, "minContains": 2}, "minContains"),
    ({"type": "array", "contains": {}, "maxContains": 2}, "maxContains"),
    ({"type": "array", "contains": {}, "unevaluatedItems": False}, "unevaluatedItems"),
    ({"$dynamicRef": "#n", "$defs": {"a": {"$dynamicAnchor": "n"}}}, "$dynamicRef"),
    ({"$ref": "http://127.0.0.1/integer.json"}, "is not present in the schema"),
    ({"if": {"type": "array", "contains": {}}, "else": {"minimum": 2}}, "else"),
    ({"enum": []}, "Unsatisfiable"),
]


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    vocabulary = ByteTokenizer().vocabulary().load()
    return Grammars(lambda: vocabulary)


def is_allowed(grammars: Grammars, schema: Schema, value: Any) -> bool:
    """Whether `value`, without white space, is a whole output."""
    matcher = grammars.compile(Constraint("json_schema", (json.dumps(schema),))).matcher()
    try:
        matcher.accept(list(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()))
        return bool(matcher.allowed()[256 // 8] & 1)  # the end of the sequence may come
    except ConstraintBroken:
        return False


@pytest.mark.parametrize(("schema", "valid", "invalid"), OBEYED, ids=lambda value: json.dumps(value)[:50])
def test_outputs_that_a_schema_allows_are_valid(
    grammars: Grammars, schema: Schema, valid: list[Any], invalid: list[Any]
) -> None:
    assert [value for value in valid if not is_allowed(grammars, schema, value)] == []
    assert [value for value in invalid if is_allowed(grammars, schema, value)] == []


def drawn(grammars: Grammars, schema: Schema, dice: random.Random) -> str:
    """An output that a model without preferences might make, but that it soon ends; empty if it is still too long."""
    matcher, output = grammars.compile(Constraint("json_schema", (json.dumps(schema),))).matcher(), bytearray()
    while len(output) < LONGEST:
        mask = matcher.allowed()
        allowed = [token for token in range(256) if mask[token // 8] >> token % 8 & 1]
        may_end = bool(mask[256 // 8] & 1)
        if not allowed or (may_end and dice.random() < 0.3):
            return output.decode()
        ending = [token for token in allowed if token in ENDING]
        token = dice.choice(ending if ending and dice.random() < 0.5 else allowed)
        matcher.accept([token])
        output.append(token)
    return ""


@pytest.mark.parametrize("schema", [schema for schema, _, _ in OBEYED], ids=lambda value: json.dumps(value)[:50])
def test_whatever_is_drawn_is_valid(grammars: Grammars, schema: Schema, request: pytest.FixtureRequest) -> None:
    """`--schemas 10000` draws 1,000 outputs under each schema."""
    dice, whole = random.Random(json.dumps(schema)), 0
    runs = request.config.getoption("schemas", 40) // 10
    for _ in range(runs):
        if text := drawn(grammars, schema, dice):
            whole += 1
            assert is_valid(schema, json.loads(text)), text
    assert whole


def test_the_check_itself_knows_what_is_valid() -> None:
    for schema, valid, invalid in OBEYED:
        assert all(is_valid(schema, value) for value in valid), schema
        assert not any(is_valid(schema, value) for value in invalid), schema


def test_every_keyword_of_the_draft_is_obeyed_or_refused() -> None:
    known = {keyword for schema, *_ in (*OBEYED, *REFUSED) for keyword in keywords(schema)}
    assert {name: words - known for name, words in KEYWORDS.items() if words - known} == {}


def keywords(schema: object) -> Iterator[str]:
    match schema:
        case dict():
            yield from schema
            for part in schema.values():
                yield from keywords(part)
        case list():
            for part in schema:
                yield from keywords(part)


@pytest.mark.parametrize(("schema", "reason"), REFUSED, ids=lambda value: json.dumps(value)[:50])
def test_keywords_that_the_library_does_not_know_are_refused(grammars: Grammars, schema: Schema, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        grammars.compile(Constraint("json_schema", (json.dumps(schema),)))
    assert reason in refused.value.message


def test_white_space_ends(grammars: Grammars) -> None:
    """Between two tokens of JSON there is a space, or a line break with an indentation, and nothing more."""
    for space in ("", " ", "\n", "\n    "):
        matcher = grammars.compile(Constraint("json_object")).matcher()
        matcher.accept(list(f'{{{space}"a"{space}:{space}1{space}}}'.encode()))
    for space in ("  ", "\n\n", " \n", "\t", "\n" + " " * 41):
        matcher = grammars.compile(Constraint("json_object")).matcher()
        with pytest.raises(ConstraintBroken):
            matcher.accept(list(f"{{{space}".encode()))


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ({"type": "array", "uniqueItems": False, "items": {"const": 1}}, [1, 1], [2]),
        ({"properties": {"a": {}}, "type": "object", "additionalProperties": {"not": {}}}, {"a": 1}, {"b": 1}),
        ({"type": "object", "properties": {"a": {"items": {"not": True}, "type": "array"}}}, {"a": []}, {"a": [1]}),
        ({"type": "string", "format": "semver"}, "any text", 1),
        ({"type": "string", "anyOf": [{"format": "semver"}, {"const": ""}]}, "any text", 1),
        ({"type": "object", "properties": {"format": {"const": "semver"}}}, {"format": "semver"}, {"format": "x"}),
        ({"enum": [{"uniqueItems": False, "format": "x"}]}, {"uniqueItems": False, "format": "x"}, {}),
        ({"type": "object", "propertyNames": {"type": "string"}, "dependencies": {}}, {"a": 1}, 1),
        ({"$schema": "http://127.0.0.1/dialect", "$dynamicAnchor": "n", "type": "integer"}, 1, "a"),
        ({"type": "integer", "then": False, "else": False}, 1, "a"),
        ({"type": "integer", "if": {"minimum": 5}}, 1, "a"),
        ({"$defs": {"a": {"b": {"type": "integer", "format": "semver"}}}, "$ref": "#/$defs/a/b"}, 1, "a"),
        ({"type": "array", "minContains": 2, "maxContains": 3}, [], 1),
    ],
)
def test_keywords_that_say_nothing_are_left_out(grammars: Grammars, schema: Schema, valid: Any, invalid: Any) -> None:
    assert is_allowed(grammars, schema, valid)
    assert not is_allowed(grammars, schema, invalid)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            {"properties": {"tags": {"type": "array", "uniqueItems": True}, "a/b": {"items": {"uniqueItems": True}}}},
            "uniqueItems (at #/properties/tags, #/properties/a~1b/items): leave it out and check the output, or",
        ),
        (
            {"$defs": {str(number): {"not": {"pattern": "a"}} for number in range(5)}, "not": {"const": 1}},
            "not (at #, #/$defs/0, #/$defs/1 and 3 more): describe what is allowed instead",
        ),
        (
            {"anyOf": [{"if": {"const": 1}, "then": False}, {"dependentRequired": {"a": ["b"]}}]},
            "not supported: if (at #/anyOf/0), then (at #/anyOf/0): use anyOf with a schema for each case",
        ),
        ({"enum": [{"not": 1}], "contains": {"const": 1}, "type": "array"}, "not supported: contains (at #): "),
        ({"items": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}, "oneOf (at #/items): "),
        (
            {
                "properties": {"x": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}},
                "$defs": {"b": {"oneOf": OVERLAP}},
            },
            "oneOf (at #/$defs/b): a value",
        ),
        (
            {"properties": {"x": {"pattern": "a"}, "y": {"pattern": "(?=a)b"}}},
            "pattern (at #/properties/y): look-around",
        ),
        ({"items": {"pattern": r"^[\d]\w(?!b)$"}}, "pattern (at #/items): look-around"),
        (
            {"$defs": {"misc": {"tags": {"uniqueItems": True}}}, "$ref": "#/$defs/misc/tags"},
            "uniqueItems (at #/$defs/misc/tags)",
        ),
        ({"patternProperties": {"^\\bx$": {}}}, "pattern (at #): no look-around or word boundary; write it without"),
        (
            {"items": {"$ref": "http://127.0.0.1/a.json#/b"}},
            "$ref (at #/items): 'http://127.0.0.1/a.json' is not present",
        ),
        ({"$defs": {"a": False}, "$ref": "#/$defs/a"}, "no value is valid under it, so leave out what refers to it"),
        ({"patternProperties": {"^a": {}, "b$": {}}}, "/^a/ and /b$/ are not disjoint; write them so that"),
        ({"properties": {"a": {}}, "minProperties": 1}, "are required; require these, or leave the limit out"),
    ],
)
def test_a_refusal_says_where_and_what_to_do(grammars: Grammars, schema: Schema, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        grammars.compile(Constraint("json_schema", (json.dumps(schema),)))
    assert reason in refused.value.message


def test_no_error_names_an_option_that_nobody_can_set(grammars: Grammars) -> None:
    overlapping = {"oneOf": OVERLAP}
    with pytest.raises(InvalidRequest, match=r"oneOf .*: a value could be valid under several") as refused:
        grammars.compile(Constraint("json_schema", (json.dumps(overlapping),)))
    assert "option" not in refused.value.message


LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *({"type": name} for name in ("null", "boolean", "string", "number", "array", "object")),
        {"enum": ["a", "ab", None]},
        {"const": True},
        {"required": ["a", "b"]},
        {"minLength": 2},
        {"maxItems": 1},
        {"minimum": 3},
        {"properties": {"a": {"type": "null"}, "b": {"const": "x"}}},
        True,
        False,
    ]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=4,
)
VALUES: list[Any] = [None, True, False, 2, 3.5, "", "a", "ab", "abc", [], [1, 2], {}]
VALUES += [{"a": None}, {"a": None, "b": "x"}, {"a": 1, "b": "y"}, {"b": "x"}, {"c": 0}]


@given(SCHEMAS)
def test_an_opposite_has_exactly_the_other_values(schema: Any) -> None:
    opposite = Opposites(schema).of(schema)
    assert [value for value in VALUES if is_valid(schema, value) == is_valid(opposite, value)] == []


@given(SCHEMAS, SCHEMAS)
def test_disjoint_schemas_have_no_value_in_common(one: Any, other: Any) -> None:
    if Disjointness(True).holds(one, other):
        assert [value for value in VALUES if is_valid(one, value) and is_valid(other, value)] == []


@given(st.lists(st.text(max_size=4), min_size=1, max_size=4), st.text(max_size=5))
def test_a_pattern_of_other_texts(texts: list[str], text: str) -> None:
    text = text.replace("\0", "")  # which classes of others lack
    written = re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: f"\\U{int(found[1], 16):08x}", other_than(texts))
    for each in (text, *texts, texts[0][:-1], f"{texts[0]}x"):
        assert bool(re.fullmatch(written[1:-1], each)) == (each not in texts)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("^{a}$", ["{a}"], ["a"]),
        ("^a{2}b{1,}c{0,1}$", ["aabbc", "aab"], ["abc"]),
        ("^a{,2}$", ["a{,2}"], ["aa"]),
        ("^[[a]$", ["[", "a"], ["]"]),
        ("^[a&&b]$", ["&", "a", "b"], ["c"]),
        ("^[a~~b]$", ["~"], ["-"]),
        ("^[^]$", ["a", "\n"], ["", "ab"]),
        ("^([]|b)$", ["b"], ["", "a"]),
        ("^[^\\]x]$", ["a"], ["]", "x"]),
        (r"^\d\w$", ["1a"], ["٣a", "1é", "aa"]),
        (r"^[^\d]$", ["a", "٣"], ["1"]),
        ('^[^"]$', ["\\", "a", "\n"], ['"']),
        (r'^[^\\/:*?"<>|]+$', ["a.b", "é\n"], ['a"', "\\", "a:b"]),
        (r"^\[\{\\$", ["[{\\"], ["a"]),
    ],
)
def test_patterns_are_ecmascripts(grammars: Grammars, pattern: str, matching: list[str], others: list[str]) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert [text for text in matching if not is_allowed(grammars, schema, text)] == []
    assert [text for text in others if is_allowed(grammars, schema, text)] == []


def conditions(depth: int) -> Schema:
    """Conditions within conditions, each of which stands twice in what says the same."""
    inner = conditions(depth - 1) if depth else {"const": "a"}
    return {"if": inner, "then": inner, "else": {"type": "null"}}


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$defs": {f"{n}": {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 20} for n in range(9)},
            "not": {"$ref": "#/$defs/0"},
        },
        conditions(12),
        {"oneOf": [{"anyOf": [{"required": [f"{m}", f"{n}"]} for m in range(20)]} for n in range(30)]},
    ],
    ids=["references", "conditions", "branches"],
)
def test_a_schema_that_would_grow_without_end_is_refused_soon(grammars: Grammars, schema: Any) -> None:
    before = process_time()
    with pytest.raises(InvalidRequest):
        grammars.compile(Constraint("json_schema", (json.dumps(schema),)))
    assert process_time() - before < 10, "seconds of processor time"
