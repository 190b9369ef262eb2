"""The requests for OpenAI's Responses."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.common_fields import Level, Maximum, OpenAIRequest, Wish, effort, verbosity
from gateway.http.constraint import JsonObjectFormat, SchemaFormat, TextFormat, TextOptions, of_schema
from gateway.http.decoding import check_supported, decode
from gateway.http.input_item import ADDITION, InputItem
from gateway.http.response_tools import ResponseTool, ResponseTools
from gateway.validation import MAX_MESSAGES, needs_call


class UnsupportedByResponses(OpenAIRequest, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    background: Any = None
    top_logprobs: Any = None
    moderation: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "top_logprobs": (0,),
}
LOGPROBS = "message.output_text.logprobs"
# Bytes that a response may repeat of its request, beside what the prompt may hold: they are kept while it is generated.
MOST_REPEATED = 256 * 1024
OF_PROMPT = ("instructions", "tools")


class ReasoningWishes(msgspec.Struct):
    """The wishes about reasoning: how much of it there is to be, and whether the caller is to be told of it."""

    effort: Level | None = None
    summary: Level | None = None
    generate_summary: Level | None = None  # an older name of `summary`


class AskedAnswer(NamedTuple):
    """What a request says about its answer."""

    repeated: Mapping[str, msgspec.Raw]  # the fields of the request that a response repeats, as JSON
    is_single: bool  # at most one tool is called
    wants_summary: bool
    is_to_be_stored: bool


class ResponsesRequest(UnsupportedByResponses, kw_only=True):
    """The body of a request for a response."""

    input: str | Annotated[list[InputItem], msgspec.Meta(max_length=MAX_MESSAGES)]
    instructions: str | None = None
    max_output_tokens: Maximum | None = None
    text: TextOptions | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    store: bool | None = None
    prompt: Any = None
    metadata: dict[str, str] | None = None
    include: list[str] | None = None
    reasoning: ReasoningWishes | None = None
    truncation: str | None = None
    context_management: Any = None
    tools: list[ResponseTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None

    @property
    def is_to_be_stored(self) -> bool:
        """Whether the response may be read again or continued later, as it may by default."""
        return self.store is not False

    @property
    def format(self) -> TextFormat | JsonObjectFormat | SchemaFormat:
        """The constraint on the text of the response."""
        return (self.text and self.text.format) or TextFormat()

    @property
    def wants_summary(self) -> bool:
        """Whether reasoning is told as a summary, for which programs ask that do not know it otherwise."""
        asked = self.reasoning or ReasoningWishes()
        return (asked.summary or asked.generate_summary) is not None

    def answer(self) -> AskedAnswer:
        """Return what the answer needs, which takes less memory than the request; raises InvalidRequest."""
        fields = {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "reasoning": self.reasoning or ReasoningWishes(),
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "store": self.is_to_be_stored,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "text": {"format": self.format, "verbosity": self.text and self.text.verbosity},
            "tool_choice": self.tool_choice or "auto",
            "tools": [tool.described() for tool in self.tools or () if tool.is_known],
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "user": self.user,
        }
        repeated = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
        sizes = {name: memoryview(value).nbytes for name, value in repeated.items() if name not in OF_PROMPT}
        if (size := sum(sizes.values())) > MOST_REPEATED:
            limit = f"a response repeats at most {MOST_REPEATED} bytes of {', '.join(sizes)} together, got {size}"
            raise InvalidRequest(limit, max(sizes, key=sizes.__getitem__))
        return AskedAnswer(repeated, self.parallel_tool_calls is False, self.wants_summary, self.is_to_be_stored)

    def wishes(self) -> list[Wish]:
        """Return what the body wishes for."""
        wishes: list[Wish] = []
        if self.reasoning is not None and self.reasoning.effort is not None:
            wishes.append(effort("reasoning.effort", self.reasoning.effort))
        if self.text is not None and self.text.verbosity is not None:
            wishes.append(verbosity("text.verbosity", self.text.verbosity))
        if self.truncation not in (None, "disabled"):
            wishes.append(Wish("truncation"))
        if self.context_management:
            wishes.append(Wish("context_management"))
        return wishes

    def left_out(self, tools: ResponseTools) -> list[str]:
        """Return the known fields that have no effect; see ParsedRequest. `tools` are those of `known_tools`."""
        items = self.input if isinstance(self.input, list) else []
        calls = [f"input[{index}]" for index, item in enumerate(items) if item.is_left_out]
        parts = [f"input[{index}].output[{part}]" for index, item in enumerate(items) for part in item.left_out_parts]
        return [*tools.left_out, *calls, *parts]

    def known_tools(self) -> ResponseTools:
        """Return the tools by the names by which the model knows them, those with them that items of the input add."""
        tools = ResponseTools(self.tools or ())
        for index, item in enumerate(self.items()):
            if item.kind == ADDITION:
                tools.add(item.tools or (), f"input[{index}].tools")
        return tools

    def sampling(self, choice: common_pb2.ToolChoice) -> common_pb2.SamplingParams:
        """Return how tokens are chosen. A call that has to be made is no text, so that the format of texts is left."""
        sampling = self.parameters(self.max_output_tokens, None)
        match self.format:
            case _ if needs_call(choice):
                pass
            case JsonObjectFormat():
                sampling.json_object = True
            case SchemaFormat(schema=schema):
                sampling.MergeFrom(of_schema(schema))
        return sampling

    def items(self) -> list[InputItem]:
        """Return the items of the input; a text is a message of the user."""
        return [InputItem(role="user", content=self.input)] if isinstance(self.input, str) else self.input


_DECODER = msgspec.json.Decoder(ResponsesRequest)


def read(body: bytes) -> ResponsesRequest:
    """Return what `body` asks for; raises InvalidRequest."""
    request = decode(_DECODER, body)
    check_supported(request, UnsupportedByResponses, HARMLESS)
    if request.include and LOGPROBS in request.include:
        raise InvalidRequest(f"{LOGPROBS!r} is not supported yet", "include")
    if request.prompt is not None:
        raise InvalidRequest("no prompt is stored: send it as input and instructions", "prompt.id")
    if request.conversation is not None:
        raise InvalidRequest("no conversation is stored: send previous_response_id or the whole input", "conversation")
    return request
