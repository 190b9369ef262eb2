"""The parts of an output, in the order in which the model wrote them."""

from typing import NamedTuple


class AnswerText(NamedTuple):
    """A part which continues the answer's text."""

    text: str


class Reasoning(NamedTuple):
    """A part which continues what the model writes before its answer, for itself."""

    text: str


class CallBegun(NamedTuple):
    """A part which begins a tool call; `number` counts the output's calls from 0."""

    number: int
    name: str


class Arguments(NamedTuple):
    """A part which continues the arguments of the call `number`: they are JSON as the model writes it."""

    number: int
    text: str


Part = AnswerText | Reasoning | CallBegun | Arguments
