"""The public gRPC service: calls in, responses and rich statuses out."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial

import grpc

from fairlead.errors import FairleadError
from fairlead.rpc.status import request_id_metadata, to_status
from fairlead.v1 import inference_pb2
from gateway.admission import Admission, Receive
from gateway.call import Call
from gateway.driver import CallDriver, reason
from gateway.journal import Journal
from gateway.upstream.cluster import Cluster
from gateway.work import Admitted, Work
from serving.rpc.bodies import Bodies
from serving.rpc.incoming import only
from serving.wire import parsed

log = logging.getLogger(__name__)


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

    async def Generate(
        self, _messages: object, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """See inference.proto."""
        call = _new_call(context.time_remaining())
        # Not in the initial metadata: sent with nothing else they would cost a write of their own, and Accepted, the
        # first message, says it too.
        context.set_trailing_metadata(request_id_metadata(call.request_id))
        front = GrpcFront(context, self._admission, self._request(context), call.request_id)
        driver = CallDriver(front, self._cluster, self._journal, call, self._reader_seconds)
        # A generator that is suspended in a write learns of a cancellation only when it is collected; this is at once.
        context.add_done_callback(lambda _: driver.gone())
        try:
            async for response in driver.messages():
                yield response
        finally:
            driver.gone()
        if front.status is not None:
            await context.abort_with_status(front.status)

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


class GrpcFront:
    """A caller over gRPC; to be made in the task that writes to it."""

    def __init__(
        self, context: grpc.aio.ServicerContext, admission: Admission, receive: Receive, request_id: str
    ) -> None:
        self.status: grpc.Status | None = None  # with which the call is to end
        self._context = context
        self._admission = admission
        self._receive = receive
        self._request_id = request_id
        self._writer = asyncio.current_task()
        self._aborting: asyncio.Task[None] | None = None

    async def admit(self, call: Call) -> Admitted:
        """See Front."""
        return await self._admission.admit(self._receive, self._context.invocation_metadata(), call)

    async def encode(self, admitted: Admitted, call: Call) -> Work:
        """See Front."""
        return await self._admission.encode(admitted, call)

    def refuse(self, error: FairleadError) -> None:
        """See Front."""
        self.status = to_status(error, self._request_id)

    def hang_up(self, error: FairleadError) -> None:
        """See Front."""
        assert self._writer is not None
        self._aborting = asyncio.create_task(_abort(self._context, to_status(error, self._request_id)))
        # After the status is under way, or there will be none.
        asyncio.get_running_loop().call_soon(self._writer.cancel)


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


async def _abort(context: grpc.aio.ServicerContext, status: grpc.Status) -> None:
    with contextlib.suppress(grpc.aio.AbortError):
        await context.abort_with_status(status)


async def _refuse(context: grpc.aio.ServicerContext, error: FairleadError) -> None:
    """End a call that generates nothing, so that its caller can name it and the log knows it."""
    request_id = _new_id()
    log.info(
        "request refused",
        extra={"request_id": request_id, "outcome": error.outcome.name, "reason": reason(error)},
    )
    await context.abort_with_status(to_status(error, request_id))


def _new_call(time_remaining: float | None) -> Call:
    deadline = None if time_remaining is None else asyncio.get_running_loop().time() + time_remaining
    call = Call(request_id=_new_id(), deadline=deadline)
    call.timings.received = time.time_ns()
    return call


def _new_id() -> str:
    return secrets.token_hex(8)
