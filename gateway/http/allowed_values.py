"""The values that a field of a body may have, for errors that name them."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from msgspec.inspect import DictType, ListType, LiteralType, StructType, Type, UnionType, type_info


@cache
def allowed_values(kind: Any, steps: Sequence[str]) -> list[Any]:
    """Return the values that may stand in a body of the type `kind` at `steps`, where they are a few; else none.

    A step is the name of a field, or empty for an element of a list.
    """
    types = [*_alternatives(type_info(kind))]
    for step in steps:
        types = [each for outer in types for inner in _inner(outer, step) for each in _alternatives(inner)]
    return [value for each in types if isinstance(each, LiteralType) for value in each.values]


def _alternatives(kind: Type) -> Iterator[Type]:
    if isinstance(kind, UnionType):
        yield from kind.types
    else:
        yield kind


def _inner(kind: Type, step: str) -> Iterator[Type]:
    match kind:
        case StructType(fields=fields, tag_field=tag_field, tag=tag):
            if step == tag_field:
                yield LiteralType((tag,))
            yield from (field.type for field in fields if field.encode_name == step)
        case ListType(item_type=inner) if not step:
            yield inner
        case DictType(value_type=inner) if step:
            yield inner
