"""The items that say what a response continues: those of its request, and those of a conversation."""

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.call import new_id
from gateway.core.stored_conversation import StoredItem
from gateway.http.chat_prompt import ROLES, arguments_text
from gateway.http.content import MEDIA, REASONING, TEXTS, Content, Part, media_in, result_text, text_of
from gateway.http.response_tools import full_name
from gateway.http.tools import custom_arguments

COMPACTED = ("compaction", "compaction_summary", "context_compaction")  # conversations that OpenAI alone can read
SAID = (*TEXTS, *MEDIA, *COMPACTED, "item_reference")  # what says something that the model would miss
OF_CALLERS = ("function_call", "custom_tool_call")  # calls of tools that callers define
CALL, OUTPUT = "_call", "_output"  # ends of types
PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco"}  # of ids; others have the type's


class InputItem(msgspec.Struct, omit_defaults=True):
    """One item of an input or a conversation; its type determines which fields count.

    A type that ends with `_call` is a call, and one that ends with `_output` its result. A call without a
    `call_id` was made by OpenAI's servers, and has no result that could be told; items of other types are theirs, too.
    """

    type: str | None = None
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: Any = None  # of a custom tool
    action: Any = None  # of a shell or a computer
    operation: Any = None  # of a patch
    output: Any = None
    tools: Any = None  # that a search has found

    @property
    def kind(self) -> str:
        """The type of the item, which is a message if it does not say."""
        return self.type or "message"

    @property
    def is_left_out(self) -> bool:
        """Whether the item is what OpenAI's servers have made: a call, its result, or one of an unknown type."""
        kind = self.kind
        if kind in ("message", "reasoning", *OF_CALLERS) or kind.endswith(CALL + OUTPUT) or self._is_unknown_message:
            return False
        return not (kind.endswith((CALL, OUTPUT)) and self.call_id)

    @property
    def left_out_parts(self) -> Iterator[int]:
        """The numbers of the parts of a result of which the model is told no more than the type."""
        return media_in(self.output) if self.kind.endswith(OUTPUT) and not self.is_left_out else iter(())

    @property
    def _is_unknown_message(self) -> bool:
        """Whether the item says something, but is neither a message nor made by a tool."""
        return not self.kind.endswith((CALL, OUTPUT)) and (self.content is not None or self.kind in SAID)

    def add_to(self, messages: MutableSequence[common_pb2.ChatMessage], place: str) -> None:
        """Append what the item says to `messages`; a call joins the message of the assistant before it.

        Earlier reasoning is ignored. Raises InvalidRequest for messages of other types, and for what is not text.
        """
        kind = self.kind
        if kind == "reasoning" or self.is_left_out:
            return
        if kind == "message":
            if self.role is None:
                raise InvalidRequest("a message needs a role", f"{place}.role")
            content = text_of(self.content, f"{place}.content", TEXTS)
            messages.append(common_pb2.ChatMessage(role=ROLES.get(self.role, self.role), content=content))
        elif kind.endswith(CALL):
            if not messages or messages[-1].role != "assistant":
                messages.append(common_pb2.ChatMessage(role="assistant"))
            messages[-1].tool_calls.append(self._as_call(place))
        elif kind.endswith(OUTPUT):
            content = self._result()
            messages.append(common_pb2.ChatMessage(role="tool", content=content, tool_call_id=self.call_id or self.id))
        else:
            problem = f"what such an item says cannot be read here, got {kind[:32]!r}"
            raise InvalidRequest(f"{problem}: send the message, or the whole conversation", f"{place}.type")

    def stored(self) -> StoredItem | None:
        """Return the item as a conversation has it, with an id of its own; None for what is ignored.

        The item must be one that `add_to` accepts.
        """
        kind = self.kind
        if kind == "reasoning" or self.is_left_out:
            return None
        item_id = f"{PREFIXES.get(kind, kind)}_{new_id()}"
        fields = {"role": self.role, "content": self._parts()} if kind == "message" else msgspec.to_builtins(self)
        if kind == "function_call":
            fields["arguments"] = arguments_text(self.arguments)
        elif kind.endswith(OUTPUT):
            fields["output"] = self._result()
        described = {**fields, "id": item_id, "type": kind, "status": "completed"}
        return stored_item(described)

    def _as_call(self, place: str) -> common_pb2.ToolCall:
        name, arguments = self.name or "", arguments_text(self.arguments)
        match self.kind:
            case kind if kind in OF_CALLERS and not name:
                raise InvalidRequest("a call needs the name of a function", f"{place}.name")
            case "custom_tool_call":
                arguments = custom_arguments(arguments_text(self.input))
            case "function_call":
                pass
            case kind:
                name = name or kind.removesuffix(CALL)
                arguments = arguments or arguments_text(self.action or self.operation or self.input)
        return common_pb2.ToolCall(id=self.call_id, name=full_name(self.namespace or "", name), arguments=arguments)

    def _result(self) -> str:
        return result_text(self.tools if self.output is None else self.output)

    def _parts(self) -> list[dict[str, Any]]:
        parts = [Part("text", self.content)] if isinstance(self.content, str) else self.content or ()
        texts = [part.text or part.refusal or "" for part in parts if part.type not in REASONING]
        if self.role == "assistant":
            return [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
        return [{"type": "input_text", "text": text} for text in texts]


def stored_item(described: Mapping[str, Any]) -> StoredItem:
    """Return an item as a conversation has it, given the fields that clients get."""
    texts = [described.get("arguments"), described.get("output")]
    if described["type"] == "message":
        texts += [part["text"] for part in described["content"]]
    characters = sum(len(text) for text in texts if isinstance(text, str))
    return StoredItem(described["id"], msgspec.json.encode(described), characters)


def add_items(messages: MutableSequence[common_pb2.ChatMessage], items: Sequence[InputItem], place: str) -> None:
    """Append what `items` say to `messages`; raises InvalidRequest, which names an item below `place`, as `add_to`."""
    for index, item in enumerate(items):
        item.add_to(messages, f"{place}[{index}]")
