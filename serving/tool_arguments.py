"""The arguments of tool calls as models write them."""

import json
from typing import Any


def arguments_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that `text` holds, None if it holds none: models err, and outputs end within calls.

    Nothing and null are no arguments. Control characters in strings, which JSON wants escaped, are accepted, and U+FFFD
    stands for each half of a surrogate pair, which no tokenizer accepts.
    """
    try:
        value = json.loads(text or "{}", strict=False)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    if not isinstance(value, dict):
        return None
    return _whole(value) if "\\ud" in text.lower() else value


def _whole(value: dict[str, Any]) -> dict[str, Any]:
    units = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    whole: dict[str, Any] = json.loads(units.decode("utf-16", "replace"))
    return whole
