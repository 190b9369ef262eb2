"""How a reader of merge patches (RFC 7396) applies them."""

from gateway.core.merge_patch import Document


def apply(document: Document, patch: Document) -> Document:
    """Return `document` with `patch` applied to it; neither of them is changed."""
    result = dict(document)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            known = result.get(name)
            result[name] = apply(known if isinstance(known, dict) else {}, value)
        else:
            result[name] = value
    return result
