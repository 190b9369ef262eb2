"""A caller over gRPC, which sends its credentials in the call's metadata, and what it is sent."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import cast

import grpc

from fairlead.errors import FairleadError
from fairlead.rpc.status import REQUEST_ID_METADATA, to_status
from fairlead.v1 import common_pb2, inference_pb2
from gateway.call import Call, Receive, service_tier
from gateway.core.call_commands import Accepted, Finished, Message
from gateway.core.call_events import OutputChunk
from gateway.tenants import AUTHORIZATION, USER, Credentials, ambiguous

TRACEPARENT = "traceparent"


class GrpcCaller:
    """See CallerPort; it must be created in the task that writes to the caller."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext,
        credentials: Credentials,
        receive: Receive[inference_pb2.GenerateRequest],
        request_id: str,
    ) -> None:
        self.credentials = credentials
        self.receive = receive
        self.status: grpc.Status | None = None  # the status with which the call must end
        self._context = context
        self._request_id = request_id
        self._writer = asyncio.current_task()
        self._aborting: asyncio.Task[None] | None = None

    def write(self, message: Message) -> bool:
        """See CallerPort. Only the task of the call can write to its stream."""
        return False

    def refuse(self, error: FairleadError) -> None:
        self.status = to_status(error, self._request_id)

    def hang_up(self, error: FairleadError) -> None:
        assert self._writer is not None
        self._aborting = asyncio.create_task(_abort(self._context, to_status(error, self._request_id)))
        # The writer is cancelled only after the status is sent; otherwise no status would be sent.
        asyncio.get_running_loop().call_soon(self._writer.cancel)


def shown(metadata: Iterable[tuple[str, str | bytes]]) -> Credentials:
    """Return the credentials in a call's metadata; binary metadata is ignored."""
    texts = [(key, value) for key, value in metadata if isinstance(value, str)]
    values = dict(texts)
    return Credentials(
        authorization=values.get(AUTHORIZATION, ""),
        user=values.get(USER, ""),
        traceparent=values.get(TRACEPARENT, ""),
        request_id=values.get(REQUEST_ID_METADATA, ""),
        ambiguous=ambiguous(texts),
    )


async def _abort(context: grpc.aio.ServicerContext, status: grpc.Status) -> None:
    with contextlib.suppress(grpc.aio.AbortError, grpc.aio.UsageError):  # the call may have ended with a status already
        await context.abort_with_status(status)


def responses(message: Message, call: Call) -> Sequence[inference_pb2.GenerateResponse]:
    """Return the messages to a gRPC caller that `message` of `call` consists of."""
    match message:
        case OutputChunk():
            return [_chunk(message)]
        case Accepted():
            return [_accepted(call)]
        case Finished():
            return [_finished(call)] if message.last is None else [_chunk(message.last), _finished(call)]


def _accepted(call: Call) -> inference_pb2.GenerateResponse:
    return inference_pb2.GenerateResponse(
        accepted=inference_pb2.Accepted(
            request_id=call.request_id,
            model=call.model,
            worker=call.worker,
            prompt_tokens=call.usage.prompt_tokens,
            cached_tokens=call.usage.cached_tokens,
            interaction_token=call.interaction_token,
            app=call.app,
            output_format=call.output_format,
            service_tier=service_tier(call),
        )
    )


def _chunk(chunk: OutputChunk) -> inference_pb2.GenerateResponse:
    """Convert a chunk; nested messages are filled in place, as building and copying them costs 5 times as much."""
    response = inference_pb2.GenerateResponse()
    filled = response.chunk
    filled.text, filled.token_ids.packed = chunk.text, chunk.token_ids
    if chunk.logprobs:
        filled.logprobs.extend(cast("Sequence[common_pb2.TokenLogprobs]", chunk.logprobs))  # as the worker sent them
    if chunk.prompt_logprobs:
        filled.prompt_logprobs.extend(cast("Sequence[common_pb2.TokenLogprobs]", chunk.prompt_logprobs))
    return response


def _finished(call: Call) -> inference_pb2.GenerateResponse:
    reason = cast("common_pb2.FinishReason", call.finish_reason)  # the values are the same
    return inference_pb2.GenerateResponse(
        finished=inference_pb2.Finished(
            outcome=common_pb2.OUTCOME_COMPLETED,
            finish_reason=reason,
            stop_string=call.stop_string,
            usage=call.usage,
            timings=call.timings,
        )
    )
