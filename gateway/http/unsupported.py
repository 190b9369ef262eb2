"""Parameters that clients know, and that an API does not obey."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.errors import InvalidRequest


def check_supported(
    asked: msgspec.Struct, unsupported: type[msgspec.Struct], harmless: Mapping[str, tuple[Any, ...]]
) -> None:
    """Raise InvalidRequest for a parameter of `asked` that asks for something and is not obeyed, naming it.

    Those are the fields that `unsupported`, a class that `asked` inherits from, itself adds; `harmless` are their
    values that ask for nothing but what is done anyway.
    """
    for name in unsupported.__annotations__:
        value = getattr(asked, name)
        if value is not None and value not in harmless.get(name, ()):
            raise InvalidRequest("this parameter is not supported yet", name)
