"""Checks of requests, and of what a worker has made of them; each error names the field, the limit and the value."""

import math
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from google.protobuf import struct_pb2

from fairlead.errors import InvalidRequest, TooLong
from fairlead.token_ids import TOKEN_BYTES, unpack_ids
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2
from serving.names import MAX_NAME, MAX_SPELLING, normalized
from serving.prompt_size import check_size
from serving.sampling_params import SamplingParams
from serving.wire import sampling_from_proto

MAX_PARTS = 2**17  # strings, lists and objects; 10,000 messages with parts of their own have 100,000
ROLES = ("system", "user", "assistant", "tool")
PARTS = "strings, lists, objects and elements"
MAX_TOKEN = 1024  # bytes of an interaction's token; valid ones are far shorter
MAX_MESSAGES = 10_000  # messages of a chat; a request would have room for millions of empty ones
MAX_TOOLS = 512  # an agent with many MCP servers offers hundreds
MAX_CALLED = MAX_SPELLING  # characters of the name in an earlier call: a model that errs may go on
MAX_TOOL_CALLS = 10_000  # of all messages of a chat
TOOLS = "prompt.chat.tools"
CHOICE = "prompt.chat.tool_choice"
_TOOL_CALLS = attrgetter("tool_calls")
TEMPLATE_KWARGS = "prompt.chat.chat_template_kwargs"
MAX_TEMPLATE_BYTES = 4096  # of the variables as a message: far more than the switches that templates have
MAX_TEMPLATE_DEPTH = 8
# Parameters of the functions that render templates; then functions that templates call, and the tokenizer's own texts.
RESERVED_VARIABLES = frozenset(
    (
        "add_generation_prompt",
        "chat",
        "chat_template",
        "continue_final_message",
        "conversation",
        "conversations",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "sanitize_control_tokens",
        "self",
        "tokenize",
        "tokenizer",
        "tokenizer_kwargs",
        "tools",
        "truncation",
        "raise_exception",
        "strftime_now",
        "additional_special_tokens",
        "bos_token",
        "cls_token",
        "eos_token",
        "extra_special_tokens",
        "mask_token",
        "pad_token",
        "sep_token",
        "unk_token",
    )
)


def check_prompt(prompt: common_pb2.Prompt, model: scheduler_pb2.ModelInfo) -> None:
    """Raise InvalidRequest for an invalid prompt, or TooLong for one that is certainly too long; tokenize nothing."""
    _check_counts(prompt.chat)
    check_size(prompt, model.max_prompt_tokens, model.longest_token)
    match prompt.WhichOneof("kind"):
        case "text":
            _require(prompt.text != "", "must not be empty", "prompt.text")
        case "chat":
            _check_chat(prompt.chat)
        case "token_ids":
            _check_token_ids(prompt.token_ids.packed, model.vocab_size)
        case _:
            raise InvalidRequest("must hold one of text, chat and token_ids", "prompt")


def capacity(model: scheduler_pb2.ModelInfo) -> int:
    """Return the largest number of tokens that a prompt and its output may have together."""
    return min(model.max_model_tokens, model.kv_tokens)


def check_sampling(
    message: common_pb2.SamplingParams, vocab_size: int, default_max_tokens: int | None = None
) -> SamplingParams:
    """Return the sampling parameters with every default resolved; raise InvalidRequest."""
    sampling = sampling_from_proto(message, default_max_tokens)
    for token in sampling.stop_token_ids:
        _require(token < vocab_size, f"ids must be below {vocab_size}, got {token}", "sampling.stop_token_ids")
    for token, _ in sampling.logit_bias:
        _require(token < vocab_size, f"ids must be below {vocab_size}, got {token}", "sampling.logit_bias")
    return sampling


def check_request(
    request: inference_pb2.GenerateRequest, model: scheduler_pb2.ModelInfo, fills_context: bool
) -> SamplingParams:
    """Make all checks that need no tokenized prompt, and return the sampling parameters; raise InvalidRequest.

    See Call for `fills_context`.
    """
    check_prompt(request.prompt, model)
    known = inference_pb2.Streaming.keys()
    problem = f"must be one of {', '.join(known)}, got {request.streaming}"
    _require(request.streaming in inference_pb2.Streaming.values(), problem, "streaming")
    context = capacity(model)
    sampling = check_sampling(request.sampling, model.vocab_size, context if fills_context else None)
    if sampling.constraint is not None and needs_call(request.prompt.chat.tool_choice):
        message = "not together with a required call: an output has one constraint"
        raise InvalidRequest(message, sampling.constraint.field)
    return cut(sampling, context) if fills_context else sampling


def cut(sampling: SamplingParams, most: int) -> SamplingParams:
    """Return `sampling` with `max_tokens` of at most `most`; raise InvalidRequest if `min_tokens` is more than that."""
    return sampling if sampling.max_tokens <= most else replace(sampling, max_tokens=most)


def check_interaction(interaction: inference_pb2.Interaction) -> None:
    """Raise InvalidRequest for an invalid interaction; the throttler verifies its token later."""
    characters, size, stage = len(interaction.id), len(interaction.token), interaction.stage
    _require(interaction.id != "", "must not be empty", "interaction.id")
    _require(characters <= MAX_NAME, f"at most {MAX_NAME} characters, got {characters}", "interaction.id")
    _require(interaction.id.isprintable(), f"must be printable, got {interaction.id!a}", "interaction.id")
    _require(size <= MAX_TOKEN, f"at most {MAX_TOKEN} bytes, got {size}", "interaction.token")
    _require(size == 0 or stage > 0, f"a call with a token is not the first, got stage {stage}", "interaction.stage")


def app_name(app: str) -> str:
    """Return the normalized name of an app, empty if none is given; raise InvalidRequest if it is ambiguous."""
    try:
        return normalized(app) if app else ""
    except ValueError as error:
        raise InvalidRequest(str(error), "app") from error


def check_length(prompt_tokens: int, max_tokens: int, model: scheduler_pb2.ModelInfo) -> None:
    """Raise TooLong if the prompt and its output exceed a limit of the model."""
    if prompt_tokens > model.max_prompt_tokens:
        raise TooLong(f"at most {model.max_prompt_tokens} prompt tokens, got {prompt_tokens}", "prompt")
    total = prompt_tokens + max_tokens
    for limit, what in ((model.max_model_tokens, "context"), (model.kv_tokens, "KV cache")):
        if total <= limit:
            continue
        field = "prompt" if prompt_tokens >= limit else "sampling.max_tokens"
        raise TooLong(
            f"{prompt_tokens} prompt tokens + max_tokens {max_tokens} = {total} exceed the {limit} tokens "
            f"of the model's {what}",
            field,
        )


def _check_counts(chat: common_pb2.Chat) -> None:
    """Raise InvalidRequest for a chat of more parts than anything else should look at."""
    check_count(len(chat.messages), MAX_MESSAGES, "messages", "prompt.chat.messages")
    # Workers make objects of what is JSON in a chat.
    if calls := count_calls(chat):
        check_count(calls, MAX_TOOL_CALLS, "tool calls", "prompt.chat.messages")
        called = sum([parts(call.arguments) for message in chat.messages for call in message.tool_calls])
        check_count(called, MAX_PARTS, f"{PARTS} in arguments of tool calls", "prompt.chat.messages")
    if chat.tools:
        check_count(len(chat.tools), MAX_TOOLS, "tools", "prompt.chat.tools")
        offered = sum([parts(tool.parameters) for tool in chat.tools])
        check_count(offered, MAX_PARTS, f"{PARTS} in parameters of tools", "prompt.chat.tools")


def count_calls(chat: common_pb2.Chat) -> int:
    """Return the number of tool calls in all messages."""
    return sum(map(len, map(_TOOL_CALLS, chat.messages)))


def _check_chat(chat: common_pb2.Chat) -> None:
    if not chat.messages:
        raise InvalidRequest("must hold at least 1 message, got 0", "prompt.chat.messages")
    is_said = False
    for index, message in enumerate(chat.messages):
        if message.role not in ROLES:
            problem = f"must be one of {', '.join(ROLES)}, got {message.role[:MAX_NAME]!r}"
            raise InvalidRequest(problem, f"prompt.chat.messages[{index}].role")
        is_said = is_said or bool(message.content or message.tool_calls)
    if not is_said:
        raise InvalidRequest("at least 1 message must not be empty", "prompt.chat.messages")
    check_tools(chat)
    if chat.continue_final_message and chat.add_generation_prompt:
        problem = "not together with add_generation_prompt: the answer has begun already"
        raise InvalidRequest(problem, "prompt.chat.continue_final_message")
    if chat.HasField("chat_template_kwargs"):
        check_template_kwargs(chat.chat_template_kwargs, TEMPLATE_KWARGS)
    if chat.HasField("wishes"):
        check_template_kwargs(chat.wishes, "prompt.chat.wishes")


def _check_token_ids(packed: bytes, vocab_size: int) -> None:
    field, size = "prompt.token_ids.packed", len(packed)
    _require(size > 0, "must hold at least 1 token, got 0", field)
    _require(size % TOKEN_BYTES == 0, f"must be a multiple of {TOKEN_BYTES} bytes, got {size}", field)
    largest = max(unpack_ids(packed))
    _require(largest < vocab_size, f"ids must be below the vocabulary size {vocab_size}, got {largest}", field)


def _require(condition: bool, message: str, field: str) -> None:
    if not condition:
        raise InvalidRequest(message, field)


def check_count(count: int, most: int, what: str, field: str) -> None:
    """Raise InvalidRequest, which names `field`, for more than `most` of `what`."""
    if count > most:
        raise InvalidRequest(f"must hold at most {most} {what}, got {count}", field)


def check_tools(chat: common_pb2.Chat) -> None:
    """Raise InvalidRequest for names that are missing or too long, and for calls out of place."""
    for index, tool in enumerate(chat.tools):
        check_name(tool.name, f"{TOOLS}[{index}].name")
    if needs_call(chat.tool_choice):
        _check_choice(chat)
    for index, message in enumerate(chat.messages):
        field = f"prompt.chat.messages[{index}]"
        if message.tool_calls and message.role != "assistant":
            raise InvalidRequest(
                f"only an assistant's message makes calls, got {message.role!r}", f"{field}.tool_calls"
            )
        if message.tool_call_id and message.role != "tool":
            raise InvalidRequest(f"only a tool's message has it, got {message.role!r}", f"{field}.tool_call_id")
        for number, call in enumerate(message.tool_calls):
            check_name(call.name, f"{field}.tool_calls[{number}].name", MAX_CALLED)


def needs_call(choice: common_pb2.ToolChoice) -> bool:
    return choice.required or choice.name != ""


def _check_choice(chat: common_pb2.Chat) -> None:
    """Raise InvalidRequest for a choice of a call that no tool can fulfil."""
    name, names = chat.tool_choice.name, [tool.name for tool in chat.tools]
    if not names:
        raise InvalidRequest("a call is required, but there are no tools", CHOICE)
    if name and name not in names:
        raise InvalidRequest(f"must name one of the tools, got {name[:MAX_NAME]!r}", CHOICE)


def check_name(name: str, field: str, most: int = MAX_NAME) -> None:
    """Raise InvalidRequest, which names `field`, for the name of a tool that is missing or too long."""
    if not 0 < len(name) <= most:
        raise InvalidRequest(f"must have 1 to {most} characters, got {len(name)}", field)


def check_template_kwargs(kwargs: struct_pb2.Struct, place: str) -> None:
    """Raise InvalidRequest for variables that are too large, nested too deeply, not finite, or reserved.

    The error names the field below `place`.
    """
    size = kwargs.ByteSize()
    if size > MAX_TEMPLATE_BYTES:
        raise InvalidRequest(f"at most {MAX_TEMPLATE_BYTES} bytes, got {size}", place)
    for name, value in kwargs.fields.items():
        if name in RESERVED_VARIABLES:
            raise InvalidRequest("the chat template is not given this by callers", f"{place}.{name}")
        _check_template_value(value, f"{place}.{name}", MAX_TEMPLATE_DEPTH)


def _check_template_value(value: struct_pb2.Value, field: str, depth: int) -> None:
    if not depth:
        raise InvalidRequest(f"may be nested to a depth of at most {MAX_TEMPLATE_DEPTH}", field)
    if not math.isfinite(value.number_value):
        raise InvalidRequest(f"must be finite, got {value.number_value}", field)
    for inner in _inner_values(value):
        _check_template_value(inner, field, depth - 1)


def _inner_values(value: struct_pb2.Value) -> Iterator[struct_pb2.Value]:
    yield from value.list_value.values
    yield from value.struct_value.fields.values()


def parts(text: str) -> int:
    """Return the strings, lists, objects and elements of JSON, at most; those of a text that is no JSON are guessed."""
    marked = text.replace("\\\\", "").replace('\\"', "")
    between = marked.split('"')[::2] if marked.count('"') <= 2 * MAX_PARTS else [marked]
    return marked.count('"') // 2 + sum(each.count("[") + each.count("{") + each.count(",") for each in between)
