"""Wishes: what a caller would like, and what changes nothing that it is promised. docs/http.md has the rule."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from fairlead.prompt import as_template_kwargs
from fairlead.v1 import common_pb2

Level = Annotated[str, msgspec.Meta(max_length=32)]  # of an effort or a verbosity; APIs and models differ in the names


class Wish(NamedTuple):
    """A wish: the field of the body that has it, and the variables by which chat templates may know it."""

    field: str
    variables: Mapping[str, Any] = {}


def effort(field: str, level: str | None) -> Iterator[Wish]:
    """Yield the wish for so much reasoning, if there is one; `none` wishes for no reasoning."""
    if level is not None:
        yield Wish(field, {"reasoning_effort": level, **thinking(level != "none")})


def verbosity(field: str, level: str | None) -> Iterator[Wish]:
    """Yield the wish for so long an answer, if there is one."""
    if level is not None:
        yield Wish(field, {"verbosity": level})


def thinking(wanted: bool) -> dict[str, Any]:
    """Return the variables by which templates know whether the model is to think."""
    return {"enable_thinking": wanted, "thinking": wanted}


def ask(chat: common_pb2.Chat, wishes: Iterable[Wish]) -> None:
    """Add `wishes` to the chat; of two with the same variable the later one counts."""
    variables = {name: value for wish in wishes for name, value in wish.variables.items()}
    if variables:
        chat.wishes.CopyFrom(as_template_kwargs(variables))


def without_effect(wishes: Iterable[Wish], granted: Collection[str]) -> list[str]:
    """Return the fields of the wishes that had no effect; `granted` are the variables that the template was given."""
    return [wish.field for wish in wishes if not any(name in granted for name in wish.variables)]
