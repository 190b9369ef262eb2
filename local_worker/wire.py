"""Translation between protobuf and the worker's values: prompts and requests of gateways, events, and reports.

No core, no backend and no engine of the worker uses protobuf: a field of a message is read or written here alone.
"""

import json
import time
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from fairlead.errors import FairleadError, InvalidRequest
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from local_worker.core.batch import SampledLogprobs
from local_worker.core.events import ClientAccountReport, EngineLoad, RequestAccepted, RequestEnded, RequestEvents
from local_worker.core.output_text import Text
from local_worker.core.request import Request
from local_worker.prompt import CallChoice, Chat, ChatMessage, EarlierCall
from local_worker.prompt_encoder import PromptEncoder
from serving.blocks import runs, unpack_digests
from serving.constraint import CALLS, Constraint
from serving.cost import MICRO, WEIGHT_ONE
from serving.tool_arguments import arguments_object
from serving.wire import sampling_from_proto, weight_from_proto

NANO = 1_000_000_000
FIRST = SampledLogprobs(0.0, ())  # of a prompt's first token, for which no model has a log-probability
MAX_SCORES = 65_536  # log-probabilities of a prompt, which leave in one message


def content_from(prompt: common_pb2.Prompt) -> str | Chat | bytes:
    """Return the text, the chat or the packed token ids in `prompt`; raise InvalidRequest if it has no kind."""
    match prompt.WhichOneof("kind"):
        case "text":
            return prompt.text
        case "chat":
            return _chat_from(prompt.chat)
        case "token_ids":
            return prompt.token_ids.packed
    raise InvalidRequest("one of text, chat and token_ids must be given", "prompt")


def _chat_from(message: common_pb2.Chat) -> Chat:
    continues = message.continue_final_message
    return Chat(
        messages=tuple([_message_from(each) for each in message.messages]),
        add_generation_prompt=message.add_generation_prompt
        if message.HasField("add_generation_prompt")
        else not continues,
        continue_final_message=continues,
        variables=_variables_from(message.chat_template_kwargs) if message.HasField("chat_template_kwargs") else {},
        wishes=_variables_from(message.wishes) if message.HasField("wishes") else {},
        tools=tuple([_tool_from(tool, index) for index, tool in enumerate(message.tools)]),
        choice=CallChoice(message.tool_choice.required, message.tool_choice.name, message.tool_choice.single),
        strict={tool.name: tool.strict for tool in message.tools if tool.HasField("strict")},
    )


def _message_from(message: common_pb2.ChatMessage) -> ChatMessage:
    calls = tuple([EarlierCall(call.id, call.name, _arguments_from(call.arguments)) for call in message.tool_calls])
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


def request_from(
    message: worker_pb2.Submit, prompts: PromptEncoder, owner: Hashable, arrival: int, now: float
) -> Request:
    """Return the request in `message`, the `arrival`-th of this worker, which came from `owner` at `now` (seconds).

    Raises InvalidRequest for values that a gateway must not send, Unavailable for a model that is not served here.
    """
    sampling = sampling_from_proto(message.sampling)
    if message.call_grammar:
        sampling = replace(sampling, constraint=Constraint(CALLS, (message.call_grammar,)))
    model = prompts.model(message.model)
    ids = prompts.check_ids(message.token_ids, "token_ids")
    _check_most(message.generated_tokens, len(ids) - 1, "generated_tokens", "below the number of token ids", len(ids))
    _check_most(message.public_tokens, len(ids), "public_tokens", "at most the number of token ids", len(ids))
    _check_scores(len(ids), sampling.prompt_logprobs)
    chain = prompts.chain(message.token_ids, model, message.cache_scope, message.public_tokens)
    return Request(
        id=message.request_id,
        attempt=message.attempt,
        owner=owner,
        tokens_per_message=max(1, message.tokens_per_message),
        client=message.client,
        model=model,
        tokens=ids,
        packed=message.token_ids,
        prompt_tokens=len(ids),
        digests=list(unpack_digests(chain.digests)),
        chain_seed=chain.seed,
        cache_scope=message.cache_scope,
        public_blocks=chain.public_blocks,
        sampling=sampling,
        arrival=arrival,
        system_tokens=message.system_tokens,
        weight=weight_from_proto(message.weight, "weight"),
        user_weight=weight_from_proto(message.user_weight or 1.0, "user_weight"),
        interaction=message.interaction,
        in_interaction=message.in_interaction,
        ends_interaction=message.ends_interaction,
        background=message.background,
        seed_position=message.generated_tokens,
        charged=len(message.token_ids) if message.charged else 0,
        deadline=now + message.timeout_seconds if message.timeout_seconds > 0 else None,
    )


def _check_most(value: int, most: int, field: str, limit: str, tokens: int) -> None:
    if value > most:
        raise InvalidRequest(f"must be {limit}, {tokens}; got {value}", field)


def _check_scores(tokens: int, alternatives: int | None) -> None:
    if alternatives is not None and tokens * (1 + alternatives) > MAX_SCORES:
        raise InvalidRequest(
            f"at most {MAX_SCORES} values are reported, got {tokens} tokens with {alternatives} alternatives each",
            "sampling.prompt_logprobs",
        )


def add_events(message: worker_pb2.StepEvents, events: RequestEvents) -> None:
    """Append `events` of one owner's requests to `message`, which may hold those of earlier steps."""
    for request, service in events.started:
        message.started.add(
            request_id=request.id, attempt=request.attempt, cached_tokens=request.cached, service=service / MICRO
        )
    for tokens in events.tokens:
        request = tokens.request
        entry = message.tokens.add()  # setting field by field takes half as long as keyword arguments
        entry.request_id = request.id
        entry.attempt = request.attempt
        entry.token_ids = pack_ids(tokens.tokens)
        entry.text = tokens.text
        entry.service = tokens.service / MICRO
        if tokens.logprobs:
            _add_logprobs(entry.logprobs, zip(tokens.tokens, tokens.logprobs, strict=False), request.text)
        if tokens.prompt_logprobs is not None:
            prompt, found = request.tokens[: request.prompt_tokens], (FIRST, *tokens.prompt_logprobs)
            _add_logprobs(entry.prompt_logprobs, zip(prompt, found, strict=True), request.text)
    for end in events.ended:
        _add_ended(message, end)


def add_refusal(message: worker_pb2.StepEvents, request_id: str, attempt: int, error: FairleadError) -> None:
    """Append to `message` that a request which has not entered ended with `error`."""
    field = error.field if isinstance(error, InvalidRequest) else ""
    message.ended.add(
        request_id=request_id,
        attempt=attempt,
        outcome=error.outcome.value,
        message=error.message,
        usage=common_pb2.Usage(),
        timings=common_pb2.Timings(),
        field=field,
    )


def to_accepted(accepted: RequestAccepted) -> scheduler_pb2.AcceptedRequest:
    """Return a scheduler's message about an accepted request; output of earlier attempts is no part of its prompt."""
    request = accepted.request
    return scheduler_pb2.AcceptedRequest(
        request_id=request.id,
        attempt=request.attempt,
        client=request.client,
        model=request.model,
        prompt_tokens=request.prompt_tokens - request.seed_position,
        weight=request.weight / WEIGHT_ONE,
        cached_tokens=accepted.cached_tokens,
        background=request.background,
    )


def to_computed_prompt(request: Request) -> scheduler_pb2.ComputedPrompt:
    return scheduler_pb2.ComputedPrompt(request_id=request.id, attempt=request.attempt)


def to_request_end(end: RequestEnded) -> scheduler_pb2.RequestEnd:
    request = end.request
    return scheduler_pb2.RequestEnd(
        request_id=request.id,
        attempt=request.attempt,
        started=request.started_at is not None,
        output_tokens=request.output_tokens,
    )


def to_load(load: EngineLoad) -> scheduler_pb2.Load:
    """Return a scheduler's message about the load, without the clients' accounts."""
    levels = [scheduler_pb2.LevelGap(level=each.level, gap=each.gap) for each in load.levels]
    fields = load._asdict()
    del fields["pages"]
    return scheduler_pb2.Load(
        **{**fields, "levels": levels},
        tenant_pages=[scheduler_pb2.PageShare(**share._asdict()) for share in load.pages.tenants],
        client_pages=[scheduler_pb2.PageShare(**share._asdict()) for share in load.pages.clients],
        evicted_pages=[scheduler_pb2.EvictedPages(**each._asdict()) for each in load.pages.evicted],
    )


def to_client_service(account: ClientAccountReport) -> scheduler_pb2.ClientService:
    return scheduler_pb2.ClientService(
        client=account.client,
        service=account.service,
        weighted_service=account.weighted,
        balance=account.balance,
        waiting=account.waiting,
        running=account.running,
    )


def to_block_runs(links: Iterable[tuple[int, int]]) -> list[scheduler_pb2.BlockRun]:
    """Convert pairs (digest, digest of its parent) to block runs."""
    return [scheduler_pb2.BlockRun(parent=run.parent, digests=run.digests) for run in runs(links)]


def _add_logprobs(
    entries: RepeatedCompositeFieldContainer[common_pb2.TokenLogprobs],
    scored: Iterable[tuple[int, SampledLogprobs]],
    text: Text,
) -> None:
    """Append the log-probabilities of each token, with the bytes of all tokens that are named."""
    for token, found in scored:
        entries.add(
            logprob=found.logprob,
            top_ids=[likely for likely, _ in found.top],
            top_logprobs=[logprob for _, logprob in found.top],
            token=text.token_bytes(token),
            top_tokens=[text.token_bytes(likely) for likely, _ in found.top],
        )


def _add_ended(message: worker_pb2.StepEvents, end: RequestEnded) -> None:
    request = end.request
    message.ended.add(
        request_id=request.id,
        attempt=request.attempt,
        outcome=end.outcome.value,
        finish_reason=end.reason.value if end.reason is not None else 0,
        message=end.message,
        usage=common_pb2.Usage(
            prompt_tokens=request.prompt_tokens,
            cached_tokens=request.cached,
            output_tokens=request.output_tokens,
            service=request.service / MICRO,
        ),
        timings=_timings(request),
        text=end.text,
        stop_string=end.stop_string,
    )


def _timings(request: Request) -> common_pb2.Timings:
    """Return the worker's times in Unix nanoseconds, 0 for events that did not happen.

    All are converted with one reading of the clocks, so that they keep their order.
    """
    unix = time.time_ns() - time.monotonic_ns()

    times = (request.queued_at, request.started_at, request.first_token_at, request.ended_at)
    queued, scheduled, first_token, finished = [0 if at is None else unix + int(at * NANO) for at in times]
    return common_pb2.Timings(queued=queued, scheduled=scheduled, first_token=first_token, finished=finished)
