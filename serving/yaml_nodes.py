"""YAML as nodes with line numbers: all input that cannot be read raises ValueError, and no other exception."""

from typing import Any

import yaml


def compose(text: str, file: str) -> yaml.Node | None:
    """Return the document's root node, or None if the document is empty.

    Raise ValueError with a message of one line: `file:line: problem`.
    """
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{file}{line}: is no YAML: {error.problem}") from error
    except Exception as error:  # bad escapes and deep nesting raise Python's own exceptions
        raise ValueError(f"{file}: is no YAML: {_first_line(error)}") from error


def value(node: yaml.Node) -> Any:
    """Return the Python value of `node`; raise ValueError if it has none."""
    try:
        found = yaml.SafeLoader("").construct_document(node)
        repr(found)  # raises ValueError for an int in hex with more decimal digits than Python converts
        return found
    except Exception as error:  # 2026-13-45 is a ValueError, !!bool x a KeyError, an unknown tag a YAMLError
        raise ValueError(f"cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
