"""The options with which llguidance reads JSON schemas."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

# Between the tokens of JSON there is at most a space, or a line break with its indentation: white space always ends.
SPACE = r"( |\n {0,40})?"
# All options are given, because a schema could set others for itself in `x-guidance`.
OPTIONS: Mapping[str, Any] = {
    "whitespace_flexible": True,
    "whitespace_pattern": SPACE,
    "item_separator": ",",
    "key_separator": ":",
    "lenient": False,
    "coerce_one_of": False,
}
# Before this version the library lets white space repeat. It is then allowed after separators only.
ENDING_SPACE = (1, 9)
COMPACT: Mapping[str, Any] = {
    **OPTIONS,
    "whitespace_flexible": False,
    "whitespace_pattern": None,
    "item_separator": f",{SPACE}",
    "key_separator": f":{SPACE}",
}


@cache
def json_options() -> Mapping[str, Any]:
    """Return the options for the installed version of the library; raise PackageNotFoundError if there is none."""
    major, minor = version("llguidance").split(".")[:2]
    return OPTIONS if (int(major), int(minor)) >= ENDING_SPACE else COMPACT
