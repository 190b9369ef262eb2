"""Conversion of a call's messages to those of inference.proto."""

from collections.abc import Iterator, Sequence
from typing import cast

from fairlead.v1 import common_pb2, inference_pb2
from gateway.call import Call
from gateway.core.call_commands import Accepted, Finished, Message
from gateway.core.coalescer import OutputChunk


def responses(message: Message, call: Call) -> Iterator[inference_pb2.GenerateResponse]:
    """Yield the messages to a gRPC caller that `message` of `call` consists of."""
    match message:
        case OutputChunk():
            yield _chunk(message)
        case Accepted():
            yield _accepted(call)
        case Finished():
            if message.last is not None:
                yield _chunk(message.last)
            yield _finished(call)


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
