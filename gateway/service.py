"""The public gRPC service: calls in, responses and rich statuses out."""

import asyncio
from collections.abc import Callable

import grpc

from fairlead.errors import FairleadError
from fairlead.rpc.status import REQUEST_ID_METADATA, to_status
from fairlead.v1 import inference_pb2
from gateway.admission import Admission
from gateway.call import Message, Receive, new_call, predicted_wait
from gateway.call_log import note_refusal
from gateway.driver import CallDrivers
from gateway.grpc_caller import GrpcCaller, responses, shown
from gateway.tenants import Credentials
from gateway.upstream.cluster import Cluster
from serving.rpc.interceptors import only
from serving.rpc.message_body_limiter import MessageBodyLimiter
from serving.wire import parsed
from throttler.core.budgets import HEADER


class InferenceService:
    """The service fairlead.v1.Inference, with the objects that all calls share."""

    def __init__(
        self,
        cluster: Cluster,
        admission: Admission,
        calls: CallDrivers,
        bodies: MessageBodyLimiter,
    ) -> None:
        self._cluster = cluster
        self._admission = admission
        self._calls = calls
        self._bodies = bodies

    async def Generate(self, _messages: object, context: grpc.aio.ServicerContext) -> None:
        """See inference.proto. A generator would be closed only when it is collected; a task is cancelled at once."""
        remaining = context.time_remaining()
        call = new_call(None if remaining is None else asyncio.get_running_loop().time() + remaining)
        # The id is not in the initial metadata, which would cost a write of their own; Accepted, the first message,
        # carries it too.
        told = ((REQUEST_ID_METADATA, call.request_id),)
        context.set_trailing_metadata(told)

        def parse(data: bytes) -> inference_pb2.GenerateRequest:
            call.body_bytes = len(data)
            return inference_pb2.GenerateRequest.FromString(data)

        credentials = shown(context.invocation_metadata())
        caller = GrpcCaller(context, credentials, self._receiving(context, credentials, parse), call.request_id)
        driver = self._calls.drive(caller, call)
        try:
            async for message in driver.messages():
                for response in responses(message, call):
                    await context.write(response)
            warnings = [(HEADER, warning) for warning in self._admission.budget_warnings(call)]
            context.set_trailing_metadata((*told, *warnings, *predicted_wait(call)))
        finally:
            driver.gone()
        if caller.status is not None:
            await context.abort_with_status(caller.status)

    async def EndInteraction(
        self, _messages: object, context: grpc.aio.ServicerContext
    ) -> inference_pb2.EndInteractionResponse:
        try:
            credentials = shown(context.invocation_metadata())
            receive = self._receiving(context, credentials, inference_pb2.EndInteractionRequest.FromString)
            await self._admission.end_interaction(receive, credentials)
        except FairleadError as error:
            await _refuse(context, error)
        return inference_pb2.EndInteractionResponse()

    async def ListModels(
        self, _messages: object, context: grpc.aio.ServicerContext
    ) -> inference_pb2.ListModelsResponse:
        try:
            credentials = shown(context.invocation_metadata())
            self._admission.identify(credentials)
            await self._receiving(context, credentials, inference_pb2.ListModelsRequest.FromString)()
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

    def _receiving(
        self, context: grpc.aio.ServicerContext, credentials: Credentials, parse: Callable[[bytes], Message]
    ) -> Receive[Message]:
        """Return a function that reads and parses the call's only message."""

        async def receive() -> Message:
            data = await only(self._bodies.receive, context)
            payer = credentials.authorization or context.peer().rpartition(":")[0]
            await self._bodies.turns.turn(payer, len(data))
            return parsed(parse, data)

        return receive


def add_inference_to_server(service: InferenceService, server: grpc.aio.Server) -> None:
    """Register the service like the generated function, but with requests as streams.

    gRPC then reads no message before its caller is authenticated.
    """
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


async def _refuse(context: grpc.aio.ServicerContext, error: FairleadError) -> None:
    await context.abort_with_status(to_status(error, note_refusal(error)))
