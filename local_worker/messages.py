"""Translation between messages and the backend's values: prompts and submissions of gateways, events and replies."""

import json
import time
from dataclasses import replace
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from fairlead.errors import InvalidRequest
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from local_worker.attempt import AttemptAccepted, AttemptEnded, AttemptEvents, Submission
from local_worker.core.output import SpelledLogprobs
from local_worker.prompt import CallChoice, Chat, ChatMessage, EarlierCall, EncodedPrompt, PromptToEncode
from serving.constraint import CALLS, Constraint
from serving.cost import MICRO
from serving.tool_arguments import arguments_object
from serving.wire import sampling_from_proto

NANO = 1_000_000_000


def prompt_from(message: worker_pb2.EncodeRequest) -> PromptToEncode:
    """Return the prompt in `message`; raise InvalidRequest if it has no kind."""
    prompt = message.prompt
    content: str | Chat | bytes
    match prompt.WhichOneof("kind"):
        case "text":
            content = prompt.text
        case "chat":
            content = _chat_from(prompt.chat)
        case "token_ids":
            content = prompt.token_ids.packed
        case _:
            raise InvalidRequest("one of text, chat and token_ids must be given", "prompt")
    return PromptToEncode(
        model=message.model,
        content=content,
        cache_scope=message.cache_scope,
        public_system=message.public_system,
        with_special_tokens=not message.without_special_tokens,
    )


def _chat_from(message: common_pb2.Chat) -> Chat:
    continues = message.continue_final_message
    return Chat(
        messages=tuple(_message_from(each) for each in message.messages),
        add_generation_prompt=message.add_generation_prompt
        if message.HasField("add_generation_prompt")
        else not continues,
        continue_final_message=continues,
        variables=_variables_from(message.chat_template_kwargs),
        wishes=_variables_from(message.wishes),
        tools=tuple(_tool_from(tool, index) for index, tool in enumerate(message.tools)),
        choice=CallChoice(message.tool_choice.required, message.tool_choice.name, message.tool_choice.single),
        strict={tool.name: tool.strict for tool in message.tools if tool.HasField("strict")},
    )


def _message_from(message: common_pb2.ChatMessage) -> ChatMessage:
    calls = tuple(EarlierCall(call.id, call.name, _arguments_from(call.arguments)) for call in message.tool_calls)
    return ChatMessage(message.role, message.content, calls, message.tool_call_id)


def _arguments_from(text: str) -> dict[str, Any] | str:
    """Return the JSON object that `text` holds, else the text."""
    arguments = arguments_object(text)
    return text if arguments is None else arguments


def _tool_from(tool: common_pb2.Tool, index: int) -> dict[str, Any]:
    parameters = _object_from(tool.parameters, f"prompt.chat.tools[{index}].parameters")
    parameters = parameters or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _object_from(text: str, field: str) -> dict[str, Any]:
    """Return the JSON object `text`; raise InvalidRequest for anything else."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"must be JSON: {error}", field) from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"must be a JSON object, got {text[:32]!r}", field)
    return value


def _variables_from(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return the values in `struct` in the order of their names, so that equal ones are always rendered equally."""
    return {name: _variable_from(struct.fields[name]) for name in sorted(struct.fields)}


def _variable_from(value: struct_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            return _variables_from(value.struct_value)
        case "list_value":
            return [_variable_from(each) for each in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case None | "null_value":
            return None
        case kind:
            return getattr(value, kind)


def to_encode_response(encoded: EncodedPrompt) -> worker_pb2.EncodeResponse:
    """Return the reply to a gateway about an encoded prompt."""
    fields = {**encoded._asdict(), "output_format": common_pb2.OutputFormat(**encoded.output_format._asdict())}
    return worker_pb2.EncodeResponse(**fields)


def submission_from(message: worker_pb2.Submit) -> Submission:
    """Return the submission in `message`; raise InvalidRequest for sampling parameters out of range."""
    sampling = sampling_from_proto(message.sampling)
    if message.call_grammar:
        sampling = replace(sampling, constraint=Constraint(CALLS, (message.call_grammar,)))
    return Submission(
        request_id=message.request_id,
        attempt=message.attempt,
        client=message.client,
        model=message.model,
        token_ids=message.token_ids,
        generated_tokens=message.generated_tokens,
        sampling=sampling,
        weight=message.weight,
        user_weight=message.user_weight or 1.0,
        interaction=message.interaction,
        in_interaction=message.in_interaction,
        cache_scope=message.cache_scope,
        timeout_seconds=message.timeout_seconds if message.timeout_seconds > 0 else None,
        system_tokens=message.system_tokens,
        charged=message.charged,
        public_tokens=message.public_tokens,
    )


def add_events(message: worker_pb2.StepEvents, events: AttemptEvents) -> None:
    """Append `events` to `message`, which may hold those of earlier steps."""
    for request_id, attempt, cached_tokens, service in events.started:
        message.started.add(
            request_id=request_id, attempt=attempt, cached_tokens=cached_tokens, service=service / MICRO
        )
    for request_id, attempt, tokens, text, logprobs, service, prompt_logprobs in events.tokens:
        entry = message.tokens.add()  # setting field by field takes half as long as keyword arguments
        entry.request_id = request_id
        entry.attempt = attempt
        entry.token_ids = pack_ids(tokens)
        entry.text = text
        entry.service = service / MICRO
        for reported in logprobs:
            _add_logprobs(entry.logprobs, reported)
        for reported in prompt_logprobs:
            _add_logprobs(entry.prompt_logprobs, reported)
    for end in events.ended:
        _add_ended(message, end)


def to_accepted(accepted: AttemptAccepted) -> scheduler_pb2.AcceptedRequest:
    """Return a scheduler's message about an accepted attempt."""
    return scheduler_pb2.AcceptedRequest(**accepted._asdict())


def to_request_end(end: AttemptEnded) -> scheduler_pb2.RequestEnd:
    """Return a scheduler's message about an attempt that has ended."""
    return scheduler_pb2.RequestEnd(
        request_id=end.request_id,
        attempt=end.attempt,
        started=end.started_at is not None,
        output_tokens=end.output_tokens,
    )


def _add_logprobs(
    entries: RepeatedCompositeFieldContainer[common_pb2.TokenLogprobs], reported: SpelledLogprobs
) -> None:
    entries.add(
        logprob=reported.logprob,
        top_ids=[likely.id for likely in reported.top],
        top_logprobs=[likely.logprob for likely in reported.top],
        token=reported.token,
        top_tokens=[likely.token for likely in reported.top],
    )


def _add_ended(message: worker_pb2.StepEvents, end: AttemptEnded) -> None:
    message.ended.add(
        request_id=end.request_id,
        attempt=end.attempt,
        outcome=end.outcome.value,
        finish_reason=end.reason.value if end.reason is not None else 0,
        message=end.message,
        usage=common_pb2.Usage(
            prompt_tokens=end.prompt_tokens,
            cached_tokens=end.cached_tokens,
            output_tokens=end.output_tokens,
            service=end.service / MICRO,
        ),
        timings=_timings(end),
        text=end.text,
        stop_string=end.stop_string,
        field=end.field,
    )


def _timings(end: AttemptEnded) -> common_pb2.Timings:
    """Return the worker's times in Unix nanoseconds, 0 for events that did not happen.

    All are converted with one reading of the clocks, so that they keep their order.
    """
    unix = time.time_ns() - time.monotonic_ns()

    def at(seconds: float | None) -> int:
        return unix + int(seconds * NANO) if seconds is not None else 0

    return common_pb2.Timings(
        queued=at(end.queued_at),
        scheduled=at(end.started_at),
        first_token=at(end.first_token_at),
        finished=at(end.ended_at),
    )
