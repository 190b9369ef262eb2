"""The types that the schemas of tools have for their arguments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

OF_VALUES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    dict: "object",
    list: "array",
}
MOST_STEPS = 64  # from a schema to those that it refers to or consists of, which may lead back to it


def argument_types(tools: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Sequence[str]]]:
    """Return the names of types by tool and argument, as far as the schemas tell them."""
    return {tool["name"]: _of_tool(tool["parameters"]) for tool in tools}


def _of_tool(parameters: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    known = {name: types_of(schema, parameters) for name, schema in properties.items()}
    return {name: types for name, types in known.items() if types}


def types_of(schema: Any, root: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(_types(schema, root)))


def _types(schema: Any, root: Mapping[str, Any]) -> Iterator[str]:
    """Yield the types that `schema` names or implies, with those of its alternatives and of what it refers to."""
    waiting = [schema]
    for _ in range(MOST_STEPS):
        if not waiting:
            return
        known = waiting.pop(0)
        if not isinstance(known, Mapping):
            continue
        if "type" in known:
            declared = known["type"]
            yield from (each for each in listed(declared) or [declared] if isinstance(each, str))
        else:
            yield from (OF_VALUES[type(value)] for value in listed(known.get("enum")))
            yield from (OF_VALUES[type(value)] for key, value in known.items() if key == "const")
        if known.get("nullable"):
            yield "null"
        for key in ("anyOf", "oneOf", "allOf"):
            waiting += listed(known.get(key))
        waiting.append(referred(str(known.get("$ref", "")), root))


def listed(value: Any) -> list[Any]:
    """Return `value`, or nothing where a schema is wrong."""
    return value if isinstance(value, list) else []


def referred(place: str, root: Any) -> Any:
    """Return the schema at a place of this document, such as `#/$defs/city`; None if there is none."""
    if not place.startswith("#/"):
        return None
    for key in place.removeprefix("#/").split("/"):
        root = root.get(key) if isinstance(root, Mapping) else None
    return root
