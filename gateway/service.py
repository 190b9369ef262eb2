"""The public gRPC service: calls in, responses and rich statuses out."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from fairlead.errors import Cancelled, FairleadError, Internal, InvalidRequest
from fairlead.outcomes import Outcome
from fairlead.rpc.status import request_id_metadata, to_status
from fairlead.v1 import inference_pb2
from gateway.admission import Admission, Receive
from gateway.call import Call
from gateway.journal import Journal
from gateway.reader import Reader
from gateway.session import Session
from gateway.upstream.cluster import Cluster
from serving.rpc.bodies import Bodies
from serving.rpc.incoming import only
from serving.wire import parsed

log = logging.getLogger(__name__)
# The two ends' clocks and timers differ by a little: a cancellation this close to the deadline is the deadline's.
DEADLINE_SLACK = 0.05


class InferenceService:
    """Implements Inference; holds what all calls share."""

    def __init__(
        self, cluster: Cluster, admission: Admission, journal: Journal, bodies: Bodies, reader_seconds: float
    ) -> None:
        self._cluster = cluster
        self._admission = admission
        self._journal = journal
        self._bodies = bodies
        self._reader_seconds = reader_seconds
        self._farewells: set[asyncio.Task[None]] = set()

    async def Generate(
        self, _messages: object, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """See inference.proto."""
        running = RunningCall(self._journal, context.time_remaining())
        request_id = running.call.request_id
        # Not in the initial metadata: sent with nothing else they would cost a write of their own, and Accepted, the
        # first message, says it too.
        context.set_trailing_metadata(request_id_metadata(request_id))
        writer = asyncio.current_task()
        assert writer is not None
        gave_up = partial(self._leave, running, context, writer)
        reader = Reader(self._reader_seconds, lambda: running.is_complete, gave_up)
        # A generator that is suspended in a write learns of a cancellation only when it is collected; this is at once.
        context.add_done_callback(lambda _: running.gone())
        context.add_done_callback(lambda _: reader.gone())
        try:
            work = await self._admission.admit(self._request(context), context.invocation_metadata(), running.call)
            running.session = Session(self._cluster, work, running.call)
            async for response in running.session.responses():
                if response.HasField("finished"):
                    running.end(Outcome.COMPLETED)
                reader.writing()
                yield response
                reader.written()
        except FairleadError as error:
            running.end(error.outcome, _reason(error))
            status = to_status(error, request_id)
        except Exception as error:
            log.exception("call failed", extra={"request_id": request_id})
            running.end(Outcome.INTERNAL, repr(error))
            status = to_status(Internal("internal error of the gateway; see its log"), request_id)
        else:
            return
        finally:
            running.gone()
            reader.gone()
        # Not where the error is handled: abort raises, and the one would keep the other, with the request, in memory.
        await context.abort_with_status(status)

    def _leave(self, running: "RunningCall", context: grpc.aio.ServicerContext, writer: asyncio.Task[Any]) -> None:
        """End a call that nobody reads, for its `writer`, which is suspended in a write."""
        error = Cancelled(f"nothing was read for {self._reader_seconds:g} s")
        running.end(error.outcome, error.message)
        farewell = asyncio.create_task(_abort(context, error, running.call.request_id))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)
        asyncio.get_running_loop().call_soon(writer.cancel)  # after the status is under way, or there will be none

    async def EndInteraction(
        self, _messages: object, context: grpc.aio.ServicerContext
    ) -> inference_pb2.EndInteractionResponse:
        """See inference.proto."""
        try:
            await self._admission.end_interaction(self._request(context), context.invocation_metadata())
        except FairleadError as error:
            await _refuse(context, error)
        return inference_pb2.EndInteractionResponse()

    async def ListModels(
        self, _messages: object, context: grpc.aio.ServicerContext
    ) -> inference_pb2.ListModelsResponse:
        """See inference.proto."""
        try:
            self._admission.identify(context.invocation_metadata())
            parsed(inference_pb2.ListModelsRequest.FromString, await self._request(context)())
        except FairleadError as error:
            await _refuse(context, error)
        members = self._cluster.members
        models = [
            inference_pb2.Model(
                name=name, max_model_tokens=members.resolve(name).max_model_tokens, workers=len(workers)
            )
            for name, workers in members.pools().items()
        ]
        return inference_pb2.ListModelsResponse(models=models)

    def _request(self, context: grpc.aio.ServicerContext) -> Receive:
        """Reads the call's only message."""
        return partial(only, self._bodies.receive, context)


class RunningCall:
    """A call between its arrival and its one outcome."""

    def __init__(self, journal: Journal, time_remaining: float | None) -> None:
        self._journal = journal
        self._clock = asyncio.get_running_loop().time
        deadline = None if time_remaining is None else self._clock() + time_remaining
        self.call = Call(request_id=_new_id(), deadline=deadline)
        self.call.timings.received = time.time_ns()
        self.session: Session | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all that its caller is to read is there."""
        return self.call.outcome is not None or (self.session is not None and self.session.is_complete)

    def end(self, outcome: Outcome, message: str = "") -> None:
        """Set the outcome; later ones are ignored."""
        call = self.call
        if call.outcome is not None:
            return
        call.outcome, call.message = outcome, message
        if self.session is not None:
            self.session.close()
        self._journal.ended(call)
        call.cleanup.close()

    def gone(self) -> None:
        """The call is over for gRPC: if nothing ended it before, the caller or its deadline did."""
        late = self.call.deadline is not None and self._clock() >= self.call.deadline - DEADLINE_SLACK
        self.end(Outcome.DEADLINE_EXCEEDED if late else Outcome.CANCELLED)


def add_inference_to_server(service: InferenceService, server: grpc.aio.Server) -> None:
    """Like the generated function, but for gRPC requests are streams: nothing is read of callers that nobody knows."""
    handlers = {
        "Generate": grpc.stream_stream_rpc_method_handler(
            service.Generate, response_serializer=inference_pb2.GenerateResponse.SerializeToString
        ),
        "EndInteraction": grpc.stream_unary_rpc_method_handler(
            service.EndInteraction, response_serializer=inference_pb2.EndInteractionResponse.SerializeToString
        ),
        "ListModels": grpc.stream_unary_rpc_method_handler(
            service.ListModels, response_serializer=inference_pb2.ListModelsResponse.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fairlead.v1.Inference", handlers),))


async def _abort(context: grpc.aio.ServicerContext, error: FairleadError, request_id: str) -> None:
    with contextlib.suppress(grpc.aio.AbortError):
        await context.abort_with_status(to_status(error, request_id))


async def _refuse(context: grpc.aio.ServicerContext, error: FairleadError) -> None:
    """End a call that generates nothing, so that its caller can name it and the log knows it."""
    request_id = _new_id()
    log.info(
        "request refused",
        extra={"request_id": request_id, "outcome": error.outcome.name, "reason": _reason(error)},
    )
    await context.abort_with_status(to_status(error, request_id))


def _reason(error: FairleadError) -> str:
    """What the log says: a bad request's message may hold what it said, so only the field's name."""
    return error.field if isinstance(error, InvalidRequest) else error.message


def _new_id() -> str:
    return secrets.token_hex(8)
