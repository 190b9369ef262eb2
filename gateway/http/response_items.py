"""The items of a response's output: messages, reasoning and function calls, with their events."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from fairlead.output.call_id import call_id
from fairlead.output.events import AnswerText, Arguments, CallBegun, Part, Reasoning
from fairlead.parsed_output import output_parser
from fairlead.v1 import common_pb2
from gateway.call import Call

Event = tuple[str, dict[str, Any]]  # the type and the fields


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
    """A message of the assistant, or its reasoning; implements Item."""

    def __init__(self, item_id: str, is_reasoning: bool) -> None:
        self._pieces: list[str] = []
        self._id = item_id
        self._is_reasoning = is_reasoning
        self._kind = "reasoning_text" if is_reasoning else "output_text"
        self._place: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """See Item."""
        return "".join(self._pieces)

    def begin(self, place: int) -> Iterator[Event]:
        """See Item."""
        self._place = {"item_id": self._id, "output_index": place, "content_index": 0}
        item = {**self.described("in_progress"), "content": []}
        yield "response.output_item.added", {"output_index": place, "item": item}
        yield "response.content_part.added", {"part": self._part(""), **self._place}

    def add(self, text: str) -> Iterator[Event]:
        """See Item."""
        self._pieces.append(text)
        yield f"response.{self._kind}.delta", {"delta": text, **self._logprobs(), **self._place}

    def end(self, status: str) -> Iterator[Event]:
        """See Item."""
        yield f"response.{self._kind}.done", {"text": self.text, **self._logprobs(), **self._place}
        yield "response.content_part.done", {"part": self._part(self.text), **self._place}
        done = {"output_index": self._place["output_index"], "item": self.described(status)}
        yield "response.output_item.done", done

    def described(self, status: str) -> dict[str, Any]:
        """See Item."""
        content = [self._part(self.text)]
        if self._is_reasoning:
            return {"id": self._id, "type": "reasoning", "summary": [], "content": content, "status": status}
        return {"id": self._id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": self._kind, "text": text} | ({} if self._is_reasoning else {"annotations": [], "logprobs": []})

    def _logprobs(self) -> dict[str, Any]:
        return {} if self._is_reasoning else {"logprobs": []}


class CallItem:
    """A function call, whose text are its arguments; implements Item."""

    def __init__(self, item_id: str, called: str, name: str) -> None:
        self._pieces: list[str] = []
        self._id = item_id
        self._called = called
        self._name = name
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
        yield "response.function_call_arguments.done", {"arguments": self.text, "name": self._name, **self._place}
        done = {"output_index": self._place["output_index"], "item": self.described(status)}
        yield "response.output_item.done", done

    def described(self, status: str) -> dict[str, Any]:
        """See Item."""
        known = {"call_id": self._called, "name": self._name, "arguments": self.text}
        return {"id": self._id, "type": "function_call", "status": status, **known}

    def as_call(self) -> common_pb2.ToolCall:
        """Return the call as a message of the conversation has it."""
        return common_pb2.ToolCall(id=self._called, name=self._name, arguments=self.text)


class ResponseItems:
    """The items of one output so far, with at most `most_calls` calls."""

    def __init__(self, call: Call, most_calls: int | None) -> None:
        self._request_id = call.request_id
        self._most_calls = most_calls
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
            yield from self._begin(AnswerText, TextItem(f"msg_{self._request_id}", is_reasoning=False))
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
                    called = call_id(self._request_id, part.number)
                    yield from self._begin(CallBegun, CallItem(f"fc_{called}", called, part.name))
                case Arguments():
                    yield from self._items[-1].add(part.text)
                case AnswerText() | Reasoning():
                    if self._open is not type(part):
                        yield from self._begin(type(part), self._text_item(part))
                    yield from self._items[-1].add(part.text)

    def _text_item(self, part: AnswerText | Reasoning) -> TextItem:
        """Return a new item; the first message has the id of the request."""
        number = f"_{len(self._items)}" if self._items else ""
        is_reasoning = isinstance(part, Reasoning)
        return TextItem(f"{'rs' if is_reasoning else 'msg'}_{self._request_id}{number}", is_reasoning)

    def _begin(self, kind: type[Part], item: Item) -> Iterator[Event]:
        if self._items:
            yield from self._items[-1].end("completed")
        self._open = kind
        self._items.append(item)
        yield from item.begin(len(self._items) - 1)
