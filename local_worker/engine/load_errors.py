"""Reading what others wrote: transformers raises what it likes for models it does not know and files it cannot use."""

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

from local_worker.engine.attention import UnsupportedModel

LONGEST_REASON = 300  # characters: some list every model there is


@contextmanager
def reading() -> Iterator[None]:
    """Whatever goes wrong inside raises UnsupportedModel, with the reason in one line."""
    try:
        yield
    except Exception as error:
        raise UnsupportedModel(shorten(f"{type(error).__name__}: {error}", LONGEST_REASON)) from error
