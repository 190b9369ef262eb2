"""The text of an output, put together of its chunks: what is answer, reasoning and tool calls."""

import json
from collections.abc import Sequence
from dataclasses import replace

from fairlead.completion import Chunk
from fairlead.output.call_id import call_id
from fairlead.output.events import AnswerText, CallBegun, Part, Reasoning
from fairlead.output.parser import OutputParser
from fairlead.tools import ToolCall, ToolCallPiece
from fairlead.v1 import common_pb2


def output_parser(known: common_pb2.OutputFormat) -> OutputParser:
    """Return a new parser for an output in a format that a worker has told."""
    types = json.loads(known.argument_types) if known.argument_types else {}
    return OutputParser(known.tool_calls, known.reasoning, known.in_reasoning, types, known.response_template)


class ParsedOutput:
    """The parts of one output so far; the format is that of the worker which accepted the call."""

    def __init__(self, request_id: str, output_format: common_pb2.OutputFormat) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._request_id = request_id
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self._parser = output_parser(output_format)

    def add(self, chunk: Chunk) -> Chunk:
        """Return `chunk` with the parts that its text makes known."""
        return self._parsed(chunk, self._parser.push(chunk.text))

    def end(self) -> Chunk | None:
        """Return a last chunk without tokens, if there is text that was held back."""
        parts = self._parser.end()
        return self._parsed(Chunk("", ()), parts) if parts else None

    @property
    def text(self) -> str:
        """Return the answer so far, without its other parts."""
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        """Return the reasoning so far, without its markers."""
        return "".join(self._thoughts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the calls so far, of which the last may be incomplete."""
        calls = enumerate(zip(self._names, self._arguments, strict=True))
        return tuple(ToolCall(call_id(self._request_id, n), name, "".join(pieces)) for n, (name, pieces) in calls)

    def _parsed(self, chunk: Chunk, parts: Sequence[Part]) -> Chunk:
        text = reasoning = ""
        pieces: list[ToolCallPiece] = []
        for part in parts:
            match part:
                case AnswerText():
                    text += part.text
                case Reasoning():
                    reasoning += part.text
                case CallBegun():
                    self._names.append(part.name)
                    self._arguments.append([])
                    pieces.append(ToolCallPiece(part.number, part.name, ""))
                case _:
                    self._arguments[part.number].append(part.text)
                    pieces.append(ToolCallPiece(part.number, "", part.text))
        self._texts.append(text)
        self._thoughts.append(reasoning)
        return replace(chunk, text=text, reasoning=reasoning, tool_calls=tuple(pieces))
