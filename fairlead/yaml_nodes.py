"""YAML that people write, as nodes with their lines: whatever cannot be read raises ValueError, and nothing else."""

from typing import Any

import yaml


def compose(text: str) -> yaml.Node | None:
    """The document's root, None when it is empty."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except Exception as error:  # YAMLError names the line; escapes and deep nesting raise what Python does
        raise ValueError(f"is no YAML: {error}") from error


def value(node: yaml.Node) -> Any:
    """What `node` stands for."""
    try:
        found = yaml.SafeLoader("").construct_document(node)
        repr(found)  # of an int written in hex, which can have more digits than Python shows
        return found
    except Exception as error:  # 2026-13-45 is a ValueError, !!bool x a KeyError, an unknown tag a YAMLError
        raise ValueError(f"cannot be read: {str(error).partition(chr(10))[0]}") from error
