"""The time that an output takes to read grows with its length, whatever it says."""

import time
from itertools import product

import pytest

from fairlead.output.argument_types import ArgumentTypes
from fairlead.output.parser import FORMATS, THINK, OutputParser
from tests.unit.fairlead.output.test_response_template import TEMPLATES

PIECES = (
    " ",
    "\n",
    "<",
    "{",
    '"',
    "'",
    "[TOOL_CALLS]",
    "<think>",
    "<call ",
    "<call f>",
    "<call f>{}</call>",
    "<tool_call>",
    '<tool_call>{"name": "f", "arguments": {}}</tool_call>',
    "<tool_call><function=f><parameter=a></parameter></function></tool_call>",
)
LOOSE = (
    '<tool_call>{"arguments": {}, "name": "f"}</tool_call>',
    '<tool_call>{"arguments": {',
    "{'arguments': {'a': '",
    "<tool_call>{'name': 'f', 'arguments': {'a': True}}</tool_call>",
    '{"name": "',
    "<function=f>",
    "<function=f><parameter=a></parameter></function>",
)
WHOLE = 1 << 20
TOOLS: ArgumentTypes = {"f": {}}
SIZES = {4: 500, WHOLE: 6_000}  # characters of the shorter output, by those that arrive together
SPARE = 0.05  # seconds, for what else a machine does
# Times as long as an output of a fourth of the length. The model's template may have a pattern of its own, which is
# looked for again after each beginning that has no end: this takes the square (SECURITY.md).
MOST = {"elements": 24}


def seconds(parser: OutputParser, text: str, together: int) -> float:
    """Return the processor time that it takes to read `text`."""
    begun = time.process_time()
    for at in range(0, len(text), together):
        parser.push(text[at : at + together])
    parser.end()
    return time.process_time() - begun


@pytest.mark.parametrize("form", [*FORMATS, *TEMPLATES])
@pytest.mark.parametrize("together", SIZES)
def test_an_output_four_times_as_long(form: str, together: int) -> None:
    for begin, piece in product(("", "<call f>"), PIECES if form in TEMPLATES else (*PIECES, *LOOSE)):
        short, long = (
            seconds(
                OutputParser(form, THINK, False, TOOLS, TEMPLATES.get(form, "")),
                begin + piece * (size // len(piece)),
                together,
            )
            for size in (SIZES[together], 4 * SIZES[together])
        )
        assert long < MOST.get(form, 8) * short + SPARE, f"{piece!r} after {begin!r}: {short:.3f} s, then {long:.3f} s"
