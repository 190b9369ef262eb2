"""The requests for OpenAI's Responses."""

from typing import Annotated, Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.chat_prompt import ROLES, CalledFunction, MadeCall
from gateway.http.constraint import JsonObjectFormat, SchemaFormat, TextFormat, TextOptions, of_schema
from gateway.http.content import Content, text_of
from gateway.http.decoding import decode
from gateway.http.openai_request import OpenAIRequest
from gateway.http.sampling import Natural
from gateway.http.tools import FunctionDefinition, as_tool
from gateway.http.unsupported import check_supported
from gateway.validation import MAX_MESSAGES

ITEMS = ("message", "function_call", "function_call_output", "reasoning")
TEXTS = ("input_text", "output_text", "text")


class UnsupportedByResponses(OpenAIRequest, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    conversation: Any = None
    background: Any = None
    reasoning: Any = None
    include: Any = None
    truncation: Any = None
    context_management: Any = None
    top_logprobs: Any = None
    moderation: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "reasoning": ({}, {"effort": "none"}),
    "include": ([], ["reasoning.encrypted_content"]),  # of reasoning that there is not
    "truncation": ("disabled",),
    "context_management": ([],),
    "top_logprobs": (0,),
}


class FunctionTool(msgspec.Struct):
    """A tool; only functions are understood."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def as_tool(self) -> common_pb2.Tool:
        """Return the function as the chat template is given it."""
        return as_tool(FunctionDefinition(self.name, self.description, self.parameters, self.strict))


class ResponseItem(msgspec.Struct):
    """Hold one item of the input, whose fields depend on its type."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: Content = None

    def add_to(self, messages: list[common_pb2.ChatMessage], place: str) -> None:
        """Append what the item says to `messages`; a call joins the message of the assistant before it.

        Earlier reasoning is ignored. Raises InvalidRequest for items of other types, and for what is not text.
        """
        match self.type:
            case "message" if self.role is None:
                raise InvalidRequest("a message needs a role", f"{place}.role")
            case "function_call" if not self.name:
                raise InvalidRequest("a call needs the name of a function", f"{place}.name")
            case "message":
                role = ROLES.get(self.role or "", self.role)
                content = text_of(self.content, f"{place}.content", TEXTS)
                messages.append(common_pb2.ChatMessage(role=role, content=content))
            case "function_call":
                if not messages or messages[-1].role != "assistant":
                    messages.append(common_pb2.ChatMessage(role="assistant"))
                call = MadeCall(CalledFunction(self.name, self.arguments), self.call_id)
                messages[-1].tool_calls.append(call.as_call(place))
            case "function_call_output":
                content = text_of(self.output, f"{place}.output", TEXTS)
                messages.append(common_pb2.ChatMessage(role="tool", content=content, tool_call_id=self.call_id))
            case "reasoning":
                pass
            case _:
                raise InvalidRequest(f"must be one of {', '.join(ITEMS)}, got {self.type[:32]!r}", f"{place}.type")


class ResponsesRequest(UnsupportedByResponses, kw_only=True):
    """Say what response is to be generated."""

    input: str | Annotated[list[ResponseItem], msgspec.Meta(max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Natural | None = None
    text: TextOptions | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    prompt: Any = None
    metadata: dict[str, str] | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    @property
    def is_to_be_stored(self) -> bool:
        """Whether the response may be read again or continued later, as it may by default."""
        return self.store is not False

    @property
    def format(self) -> TextFormat | JsonObjectFormat | SchemaFormat:
        """What the text of the response has to be."""
        return (self.text and self.text.format) or TextFormat()

    def sampling(self) -> common_pb2.SamplingParams:
        """Return how tokens are chosen."""
        sampling = self.parameters(self.max_output_tokens, None)
        match self.format:
            case JsonObjectFormat():
                sampling.json_object = True
            case SchemaFormat(schema=schema):
                sampling.MergeFrom(of_schema(schema))
        return sampling

    def messages(self) -> list[common_pb2.ChatMessage]:
        """Return the input without the instructions; raises InvalidRequest for items that are not understood."""
        if isinstance(self.input, str):
            return [common_pb2.ChatMessage(role="user", content=self.input)]
        messages: list[common_pb2.ChatMessage] = []
        for index, item in enumerate(self.input):
            item.add_to(messages, f"input[{index}]")
        return messages

    def tools_to_offer(self) -> list[common_pb2.Tool]:
        """Return the tools that the model is told of; raises InvalidRequest for what is no function."""
        for index, tool in enumerate(self.tools or ()):
            if tool.type != "function":
                got = tool.type[:32]
                raise InvalidRequest(
                    f"only tools of type 'function' are supported, got {got!r}", f"tools[{index}].type"
                )
        return [] if self.tool_choice == "none" else [tool.as_tool() for tool in self.tools or ()]


_DECODER = msgspec.json.Decoder(ResponsesRequest)


def read(body: bytes) -> ResponsesRequest:
    """Return what `body` asks for; raises InvalidRequest."""
    request = decode(_DECODER, body)
    check_supported(request, UnsupportedByResponses, HARMLESS)
    if request.prompt is not None:
        raise InvalidRequest("no prompt is stored: send it as input and instructions", "prompt.id")
    return request
