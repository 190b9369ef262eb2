"""JSON that a model has written."""

import json
import re
from typing import Any

_HALF = re.compile("[\ud800-\udfff]")


def read_json(text: str) -> Any:
    r"""Return the value of `text`, with U+FFFD for each half of a surrogate pair without the other, such as `\ud83d`.

    UTF-8 has no such character, so no message could carry it. Raise ValueError if `text` is no JSON, and RecursionError
    if it is nested too deeply.
    """
    value = json.loads(text)
    if "\\u" not in text:
        return value
    return json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
