"""The requests for OpenAI's Responses."""

from typing import Annotated, Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.constraint import JsonObjectFormat, SchemaFormat, TextFormat, TextOptions, of_schema
from gateway.http.decoding import decode
from gateway.http.input_item import InputItem
from gateway.http.openai_request import OpenAIRequest
from gateway.http.sampling import Natural
from gateway.http.tools import FunctionDefinition, as_tool
from gateway.http.unsupported import check_supported
from gateway.validation import MAX_MESSAGES


class UnsupportedByResponses(OpenAIRequest, kw_only=True):
    """Parameters that clients know and this API does not obey."""

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


class ConversationReference(msgspec.Struct):
    """Name a conversation."""

    id: str


class ResponsesRequest(UnsupportedByResponses, kw_only=True):
    """The body of a request for a response."""

    input: str | Annotated[list[InputItem], msgspec.Meta(max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Natural | None = None
    text: TextOptions | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
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
    def conversation_id(self) -> str | None:
        """Name the conversation that the response is to be added to, if there is one."""
        return self.conversation.id if isinstance(self.conversation, ConversationReference) else self.conversation

    @property
    def format(self) -> TextFormat | JsonObjectFormat | SchemaFormat:
        """The constraint on the text of the response."""
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

    def items(self) -> list[InputItem]:
        """Return the items of the input; a text is a message of the user."""
        return [InputItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    def tools_to_offer(self) -> list[common_pb2.Tool]:
        """Return the tools that the prompt offers to the model; raises InvalidRequest for what is no function."""
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
    if request.conversation is not None and request.previous_response_id is not None:
        raise InvalidRequest("must not be given together with previous_response_id", "conversation")
    return request
