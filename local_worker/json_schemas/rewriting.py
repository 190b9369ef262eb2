"""Keywords of JSON schemas that llguidance does not know, said with those that it knows where they mean the same."""

import json
from itertools import permutations
from typing import Any
from urllib.parse import unquote

from local_worker.json_schemas.patterns import rust_pattern

# Beside these a keyword of unevaluated values depends on which of their schemas a value is valid under.
DEPENDING = ("$dynamicRef", "$recursiveRef", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies")
APPLICATORS = (*DEPENDING, "$ref", "allOf", "not")
MOST_EVALUATING = 100  # schemas that are looked at for the properties that they evaluate
MOST_DISTINCT = 5  # values of a list without repetition, of which there are 326 lists
NOTES = frozenset(("$comment", "default", "deprecated", "description", "examples", "title"))


def evaluated(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """Return `schema` with other keywords in place of those of unevaluated values, where it is known which these are.

    `root` is the whole schema, in which references to a part of it are looked for.
    """
    if "unevaluatedItems" in schema and not isinstance(schema.get("items"), list):
        without = {key: value for key, value in schema.items() if key != "unevaluatedItems"}
        if "items" in schema:  # which evaluates all
            schema = without
        elif not any(other in schema for other in (*APPLICATORS, "contains")):
            schema = {**without, "items": schema["unevaluatedItems"]}
    if "unevaluatedProperties" not in schema:
        return schema
    rest = schema["unevaluatedProperties"]
    without = {key: value for key, value in schema.items() if key != "unevaluatedProperties"}
    properties, patterns = dict[str, Any](), dict[str, Any]()
    is_known, waiting = True, list[Any]([without])
    for _ in range(MOST_EVALUATING):
        if not waiting:
            break
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        if "additionalProperties" in part or "unevaluatedProperties" in part:  # which evaluate all
            return without
        is_known = is_known and not any(key in part for key in DEPENDING)
        properties |= dict.fromkeys(part.get("properties", {}), True)
        patterns |= dict.fromkeys(map(rust_pattern, part.get("patternProperties", {})), True)
        waiting += _listed(part.get("allOf"))
        if "$ref" in part:
            waiting.append(resolved({"$ref": part["$ref"]}, root))
    if not is_known or waiting:
        return schema
    properties |= without.get("properties", {})
    patterns |= without.get("patternProperties", {})
    return {**without, "properties": properties, "patternProperties": patterns, "additionalProperties": rest}


def named_properties(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """Return `schema` with the properties that `propertyNames` allows in its place, if these can be listed or matched.

    `root` is the whole schema, in which references to a part of it are looked for.
    """
    names = resolved(schema.get("propertyNames"), root)
    if not isinstance(names, dict) or names.get("type", "string") != "string":
        return schema
    rule = {key: value for key, value in names.items() if key not in NOTES and key != "type"}
    without = {key: value for key, value in schema.items() if key != "propertyNames"}
    described, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    match rule:
        case {"enum": list(listed)} if len(rule) == 1 and not schema.get("patternProperties"):
            pass
        case {"const": str(name)} if len(rule) == 1 and not schema.get("patternProperties"):
            listed = [name]
        case {} if not rule:
            return without
        case _ if rule.keys() <= {"pattern"} or rule.keys() <= {"minLength", "maxLength"}:
            if described or schema.get("patternProperties"):
                return schema
            pattern = rule.get("pattern") or rf"^[\s\S]{{{rule.get('minLength', 0)},{rule.get('maxLength', '')}}}$"
            return {**without, "patternProperties": {pattern: rest}, "additionalProperties": False}
        case _:
            return schema
    if not isinstance(described, dict) or not set(_texts(schema.get("required"))) <= set(_texts(listed)):
        return schema
    properties = {name: described.get(name, rest) for name in _texts(listed)}
    return {**without, "properties": properties, "additionalProperties": False}


def distinct_items(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """Return `schema` with all lists of its items in place of `uniqueItems`, if the items are a few values."""
    without = {key: value for key, value in schema.items() if key != "uniqueItems"}
    if schema.get("uniqueItems") is not True or schema.get("type") != "array":
        return schema
    least, most = schema.get("minItems", 0), schema.get("maxItems", MOST_DISTINCT)
    if most in (0, 1):
        return without
    items = resolved(schema.get("items"), root)
    if not isinstance(items, dict) or not items.keys() <= {"enum", "type", *NOTES} or "prefixItems" in schema:
        return schema
    values = items.get("enum")
    if not isinstance(values, list) or not len(set(map(json.dumps, values))) == len(values) <= MOST_DISTINCT:
        return schema
    if any(isinstance(value, float) for value in values) or not (isinstance(least, int) and isinstance(most, int)):
        return schema
    kind = {"type": items["type"]} if "type" in items else {}
    lists = [
        {
            "type": "array",
            "prefixItems": [{**kind, "const": value} for value in chosen],
            "minItems": count,
            "maxItems": count,
        }
        for count in range(max(0, least), min(most, len(values)) + 1)
        for chosen in permutations(values, count)
    ]
    rest = {key: value for key, value in without.items() if key not in ("items", "minItems", "maxItems")}
    return {**rest, "allOf": [*rest.get("allOf", []), {"anyOf": lists}]}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def resolved(schema: Any, root: Any) -> Any:
    """Return what a schema that is a reference within `root` leads to, and any other one as it is."""
    if not isinstance(schema, dict) or not schema.keys() <= {"$ref", *NOTES}:
        return schema
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found = root
    for part in reference[2:].split("/"):
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or name not in found:
            return schema
        found = found[name]
    return found
