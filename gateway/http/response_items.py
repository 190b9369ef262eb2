"""The items of a response's output: messages, reasoning and function calls, with their events."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from fairlead.output.events import AnswerText, Arguments, CallBegun, Part, Reasoning
from fairlead.parsed_output import output_parser
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.http.response_tools import OfferedTool, ResponseTools
from gateway.http.tools import custom_text

Event = tuple[str, dict[str, Any]]  # the type and the fields


MESSAGE, REASONING, SUMMARY = "output_text", "reasoning_text", "summary_text"


class PartNames(NamedTuple):
    """The names for the parts of an item: in its events, in the item itself, and where events count them."""

    text: str
    part: str
    parts: str
    number: str


NAMES = {
    MESSAGE: PartNames("output_text", "content_part", "content", "content_index"),
    REASONING: PartNames("reasoning_text", "content_part", "content", "content_index"),
    SUMMARY: PartNames("reasoning_summary_text", "reasoning_summary_part", "summary", "summary_index"),
}


class Item(Protocol):
    """One item of the output, while text is added to it."""

    @property
    def text(self) -> str:
        """Return the text so far."""

    def begin(self, place: int) -> Iterator[Event]:
        """Yield the events that begin the item, which is item number `place` of the output."""

    def add(self, text: str) -> Iterator[Event]:
        """Add text, and yield the event that carries it."""

    def end(self, status: str) -> Iterator[Event]:
        """Yield the events that end the item with its status."""

    def described(self, status: str) -> dict[str, Any]:
        """Return the item as it stands in the output."""


class TextItem:
    """A message of the assistant, or its reasoning, or a summary of it, which is all of it; implements Item."""

    def __init__(self, item_id: str, kind: str) -> None:
        self._pieces: list[str] = []
        self._id = item_id
        self._kind = kind  # the type of its only part
        self._names = NAMES[kind]
        self._place: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """See Item."""
        return "".join(self._pieces)

    def begin(self, place: int) -> Iterator[Event]:
        """See Item."""
        self._place = {"item_id": self._id, "output_index": place, self._names.number: 0}
        item = {**self.described("in_progress"), self._names.parts: []}
        yield "response.output_item.added", {"output_index": place, "item": item}
        yield f"response.{self._names.part}.added", {"part": self._part(""), **self._place}

    def add(self, text: str) -> Iterator[Event]:
        """See Item."""
        self._pieces.append(text)
        yield f"response.{self._names.text}.delta", {"delta": text, **self._logprobs(), **self._place}

    def end(self, status: str) -> Iterator[Event]:
        """See Item."""
        yield f"response.{self._names.text}.done", {"text": self.text, **self._logprobs(), **self._place}
        yield f"response.{self._names.part}.done", {"part": self._part(self.text), **self._place}
        done = {"output_index": self._place["output_index"], "item": self.described(status)}
        yield "response.output_item.done", done

    def described(self, status: str) -> dict[str, Any]:
        """See Item."""
        parts = [self._part(self.text)]
        if self._kind == MESSAGE:
            return {"id": self._id, "type": "message", "status": status, "role": "assistant", "content": parts}
        return {"id": self._id, "type": "reasoning", "summary": [], self._names.parts: parts, "status": status}

    def _part(self, text: str) -> dict[str, Any]:
        further: dict[str, Any] = {"annotations": [], "logprobs": []} if self._kind == MESSAGE else {}
        return {"type": self._kind, "text": text, **further}

    def _logprobs(self) -> dict[str, Any]:
        return {"logprobs": []} if self._kind == MESSAGE else {}


class CallItem:
    """A call of a function, whose text are its arguments; implements Item."""

    prefix = "fc"  # of its id

    def __init__(self, item_id: str, called: str, name: str, tool: OfferedTool) -> None:
        self._pieces: list[str] = []
        self._id = f"{self.prefix}_{item_id}"
        self._called = called
        self._name = name  # by which the model knows the tool
        self._tool = tool
        self._place: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """See Item."""
        return "".join(self._pieces)

    def begin(self, place: int) -> Iterator[Event]:
        """See Item."""
        self._place = {"item_id": self._id, "output_index": place}
        yield "response.output_item.added", {"output_index": place, "item": self.described("in_progress")}

    def add(self, text: str) -> Iterator[Event]:
        """See Item."""
        self._pieces.append(text)
        yield "response.function_call_arguments.delta", {"delta": text, **self._place}

    def end(self, status: str) -> Iterator[Event]:
        """See Item."""
        yield "response.function_call_arguments.done", {"arguments": self.text, "name": self._tool.name, **self._place}
        yield from self._ended(status)

    def described(self, status: str) -> dict[str, Any]:
        """See Item."""
        known = {"call_id": self._called, **self._named(), "arguments": self.text}
        return {"id": self._id, "type": "function_call", "status": status, **known}

    def as_call(self) -> common_pb2.ToolCall:
        """Return the call as a message of the conversation has it."""
        return common_pb2.ToolCall(id=self._called, name=self._name, arguments=self.text)

    def _ended(self, status: str) -> Iterator[Event]:
        done = {"output_index": self._place["output_index"], "item": self.described(status)}
        yield "response.output_item.done", done

    def _named(self) -> dict[str, str]:
        tool = self._tool
        return {"name": tool.name, "namespace": tool.namespace} if tool.namespace else {"name": tool.name}


class CustomCallItem(CallItem):
    """A call of a custom tool, whose text is an argument: it is told once the call is whole; implements Item."""

    prefix = "ctc"

    def add(self, text: str) -> Iterator[Event]:
        """See Item."""
        self._pieces.append(text)
        yield from ()

    def end(self, status: str) -> Iterator[Event]:
        """See Item."""
        text = custom_text(self.text)
        yield "response.custom_tool_call_input.delta", {"delta": text, **self._place}
        yield "response.custom_tool_call_input.done", {"input": text, **self._place}
        yield from self._ended(status)

    def described(self, status: str) -> dict[str, Any]:
        """See Item."""
        text = "" if status == "in_progress" else custom_text(self.text)
        known = {"call_id": self._called, **self._named(), "input": text}
        return {"id": self._id, "type": "custom_tool_call", "status": status, **known}


class ResponseItems:
    """The items of one output so far: at most `most_calls` calls of `tools`, and reasoning as parts of one type."""

    def __init__(self, call: Call, tools: ResponseTools, most_calls: int | None, reasoning: str) -> None:
        self._request_id = call.request_id
        self._tool_call_id = call.tool_call_id
        self._tools = tools
        self._most_calls = most_calls
        self._reasoning = reasoning
        self._items: list[Item] = []
        self._open: type[Part] | None = None
        self._parser = output_parser(call.output_format)

    def push(self, text: str) -> Iterator[Event]:
        """Yield the events that the next text makes known."""
        yield from self._told(self._parser.push(text))

    def end(self, status: str) -> Iterator[Event]:
        """Yield the last events; the output has at least one item, and the last one has `status`."""
        yield from self._told(self._parser.end())
        if not self._items:
            yield from self._begin(AnswerText, TextItem(f"msg_{self._request_id}", MESSAGE))
        yield from self._items[-1].end(status)

    def described(self, status: str) -> list[dict[str, Any]]:
        """Return all items; the last one has `status`, and the others are complete."""
        return [item.described("completed") for item in self._items[:-1]] + [self._items[-1].described(status)]

    def message(self) -> common_pb2.ChatMessage:
        """Return the output as a message of the conversation, without its reasoning."""
        texts = [item.text for item in self._items if item.described("")["type"] == "message"]
        calls = [item.as_call() for item in self._items if isinstance(item, CallItem)]
        return common_pb2.ChatMessage(role="assistant", content="".join(texts), tool_calls=calls)

    def _told(self, parts: Sequence[Part]) -> Iterator[Event]:
        for part in parts:
            match part:
                case CallBegun() | Arguments() if self._most_calls is not None and part.number >= self._most_calls:
                    pass
                case CallBegun():
                    yield from self._begin(CallBegun, self._call_item(part))
                case Arguments():
                    yield from self._items[-1].add(part.text)
                case AnswerText() | Reasoning():
                    if self._open is not type(part):
                        yield from self._begin(type(part), self._text_item(part))
                    yield from self._items[-1].add(part.text)

    def _text_item(self, part: AnswerText | Reasoning) -> TextItem:
        """Return a new item; the first message has the id of the request."""
        if isinstance(part, Reasoning):
            return TextItem(f"rs_{self._next_id()}", self._reasoning)
        return TextItem(f"msg_{self._next_id()}", MESSAGE)

    def _call_item(self, part: CallBegun) -> CallItem:
        tool = self._tools.called(part.name)
        kind = CustomCallItem if tool.is_custom else CallItem
        return kind(self._next_id(), self._tool_call_id(part.number), part.name, tool)

    def _next_id(self) -> str:
        """Return the id of the next item without its prefix; the response's is in it, by which the item is found."""
        return f"{self._request_id}_{len(self._items)}" if self._items else self._request_id

    def _begin(self, kind: type[Part], item: Item) -> Iterator[Event]:
        if self._items:
            yield from self._items[-1].end("completed")
        self._open = kind
        self._items.append(item)
        yield from item.begin(len(self._items) - 1)
