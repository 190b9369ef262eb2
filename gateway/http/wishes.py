"""Wishes: what a caller would like, and what changes nothing that it is promised. docs/http.md has the rule."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from fairlead.prompt import as_template_kwargs
from fairlead.v1 import common_pb2

LONGEST = 32  # characters
Level = Annotated[str, msgspec.Meta(max_length=LONGEST)]  # of an effort or a verbosity, whose names differ


class Wish(NamedTuple):
    """A wish: the field of the body that has it, and the variables by which chat templates may know it."""

    field: str
    variables: Mapping[str, Any] = {}


def effort(field: str, level: str | None) -> Iterator[Wish]:
    """Yield the wish for so much reasoning, if there is one; `none` wishes for no reasoning."""
    if level is not None:
        yield Wish(field, {"reasoning_effort": level, **thinking(level != "none")})


def thought(field: str, asked: Any) -> Iterator[Wish]:
    """Yield the wish that the model thinks, or does not, in the forms that OpenAI-compatible APIs have for it.

    Whatever has another form wishes for something that nobody here knows.
    """
    match asked:
        case bool():
            yield Wish(field, thinking(asked))
        case str() if len(asked) <= LONGEST:
            yield from effort(field, asked)
        case {"effort": str(level)} if len(level) <= LONGEST:
            yield from effort(field, level)
        case {"enabled": bool(wanted)}:
            yield Wish(field, thinking(wanted))
        case {"type": str(kind)}:
            yield Wish(field, thinking(kind != "disabled"))
        case _ if asked:
            yield Wish(field)


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
