"""What the text of a region means: the contents and transforms of transformers' response templates."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.output.model_json import read_json

_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_BARE_KEY = re.compile(r"(?<=[{,])(\w+):")
Options = Mapping[str, Any]


def check_content(name: str, options: Options) -> None:
    """Raise ValueError for an unknown content, and for options without which it cannot be read."""
    if name not in CONTENTS:
        raise ValueError(f"content must be one of {sorted(CONTENTS)}, got {name!r}")
    if name == "xml-inline":
        groups = re.compile(options.get("tag_pattern", "")).groupindex
        if not {"key", "value"} <= groups.keys():
            raise ValueError("tag_pattern must have the groups key and value")
    if inner := options.get("value_parser"):
        check_content(inner.get("name", "text"), inner.get("args", {}))


def read_content(text: str, name: str, options: Options) -> Any:
    """Return the value of a region's text; raise ValueError if it has none."""
    return CONTENTS[name](text, options)


def transformed(transform: Any, known: Mapping[str, Any]) -> Any:
    """Return `transform` with the values of `known` in place of `{name}` or `{name.key}`; raise KeyError if unknown."""
    if isinstance(transform, dict):
        return {key: transformed(value, known) for key, value in transform.items()}
    if isinstance(transform, list):
        return [transformed(value, known) for value in transform]
    place = _PLACEHOLDER.fullmatch(transform) if isinstance(transform, str) else None
    if place is None:
        return transform
    value: Any = known
    for key in place[1].split("."):
        if not isinstance(value, Mapping):
            raise KeyError(key)
        value = value[key]
    return value


def _text(text: str, options: Options) -> str:
    return text.strip() if options.get("strip", True) else text


def _json(text: str, options: Options) -> Any:
    """Read JSON, in which strings may have other marks, and keys none."""
    marks = "|".join(rf"{re.escape(begin)}(.*?){re.escape(end)}" for begin, end in options.get("string_delims", ()))
    written, at = "", 0
    for string in re.finditer(marks, text, re.DOTALL) if marks else ():
        inner = next(group for group in string.groups() if group is not None)
        written += _quoted_keys(text[at : string.start()], options) + json.dumps(inner)
        at = string.end()
    try:
        return read_json(written + _quoted_keys(text[at:], options))
    except (ValueError, RecursionError):
        if options.get("allow_non_json"):
            return _text(text, options)
        raise


def _quoted_keys(text: str, options: Options) -> str:
    return _BARE_KEY.sub(r'"\1":', text) if options.get("unquoted_keys") else text


def _elements(text: str, options: Options) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for element in re.finditer(options["tag_pattern"], text, re.DOTALL):
        key, value = element["key"], _inner(element["value"], options)
        if key in values and options.get("merge_duplicates"):
            earlier = values[key]
            values[key] = [*(earlier if isinstance(earlier, list) else [earlier]), value]
        else:
            values[key] = value
    return values


def _lines(text: str, options: Options) -> dict[str, Any]:
    between = options.get("kv_sep", ":")
    pairs = (line.partition(between) for line in text.split(options.get("line_sep", "\n")) if between in line)
    return {_text(key, options): _inner(_text(value, options), options) for key, _, value in pairs}


def _inner(text: str, options: Options) -> Any:
    inner = options.get("value_parser")
    return text if inner is None else read_content(text, inner.get("name", "text"), inner.get("args", {}))


CONTENTS: Mapping[str, Callable[[str, Options], Any]] = {
    "text": _text,
    "int": lambda text, options: int(_text(text, options)),
    "float": lambda text, options: float(_text(text, options)),
    "bool": lambda text, options: _text(text, options).lower() in ("true", "1"),
    "json": _json,
    "xml-inline": _elements,
    "kv-lines": _lines,
}
