"""A block of the prefix cache."""

from typing import NamedTuple


class CachedBlock(NamedTuple):
    """The contents of one published page."""

    digest: int
    tokens: tuple[int, ...]
    parent: int | None  # page of the previous block
