"""Conversion of load errors: transformers raises many kinds for unknown models and unusable files."""

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

from local_worker.engine.attention import UnsupportedModel

LONGEST_REASON = 300  # characters; some messages list all known models


@contextmanager
def reading() -> Iterator[None]:
    """Raise any exception of the block as UnsupportedModel, with the reason in one line."""
    try:
        yield
    except Exception as error:
        raise UnsupportedModel(shorten(f"{type(error).__name__}: {error}", LONGEST_REASON)) from error
