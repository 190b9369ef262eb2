"""YAML that people write, as nodes with their lines: whatever cannot be read raises ValueError, and nothing else."""

from typing import Any

import yaml


def compose(text: str, file: str) -> yaml.Node | None:
    """The document's root, None when it is empty; what is wrong is said in one line: `file:line: what`."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{file}{line}: is no YAML: {error.problem}") from error
    except Exception as error:  # escapes and deep nesting raise what Python does
        raise ValueError(f"{file}: is no YAML: {_first_line(error)}") from error


def value(node: yaml.Node) -> Any:
    """What `node` stands for."""
    try:
        found = yaml.SafeLoader("").construct_document(node)
        repr(found)  # of an int written in hex, which can have more digits than Python shows
        return found
    except Exception as error:  # 2026-13-45 is a ValueError, !!bool x a KeyError, an unknown tag a YAMLError
        raise ValueError(f"cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
