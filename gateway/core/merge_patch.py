"""JSON merge patches (RFC 7396): what has changed between two states, so that only this is sent."""

from typing import Any

Document = dict[str, Any]  # objects within objects; values are neither None nor changed in place


def merge_patch(earlier: Document, later: Document) -> Document:
    """Return the patch that turns `earlier` into `later`; it is empty if they are equal."""
    patch: Document = {name: None for name in earlier if name not in later}
    for name, value in later.items():
        known = earlier.get(name)
        if isinstance(value, dict) and isinstance(known, dict):
            if inner := merge_patch(known, value):
                patch[name] = inner
        elif value != known:
            patch[name] = value
    return patch
