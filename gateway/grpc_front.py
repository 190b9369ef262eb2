"""The gRPC front, for callers that send their credentials in the call's metadata."""

import asyncio
import contextlib
from collections.abc import Iterable

import grpc

from fairlead.errors import FairleadError
from fairlead.rpc.status import REQUEST_ID_METADATA, to_status
from fairlead.v1 import inference_pb2
from gateway.admission import Admission, Receive
from gateway.call import Call
from gateway.core.call_commands import Message
from gateway.credentials import Credentials
from gateway.prepared_request import AdmittedRequest, PreparedRequest
from gateway.request import CallRequest
from gateway.tenants import AUTHORIZATION, USER

TRACEPARENT = "traceparent"


class GrpcFront:
    """A gRPC caller; it must be created in the task that writes to the caller."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext,
        admission: Admission,
        receive: Receive[inference_pb2.GenerateRequest],
        request_id: str,
    ) -> None:
        self.status: grpc.Status | None = None  # the status with which the call must end
        self._context = context
        self._admission = admission
        self._receive = receive
        self._request_id = request_id
        self._writer = asyncio.current_task()
        self._aborting: asyncio.Task[None] | None = None

    async def admit(self, call: Call) -> AdmittedRequest:
        """See Front."""
        return await self._admission.admit(self._request, shown(self._context.invocation_metadata()), call)

    async def _request(self) -> CallRequest:
        return CallRequest(message=await self._receive())

    async def encode(self, admitted: AdmittedRequest, call: Call) -> PreparedRequest:
        """See Front."""
        return await self._admission.encode(admitted, call)

    def write(self, message: Message) -> bool:
        """See Front. Only the task of the call can write to its stream."""
        return False

    def refuse(self, error: FairleadError) -> None:
        """See Front."""
        self.status = to_status(error, self._request_id)

    def hang_up(self, error: FairleadError) -> None:
        """See Front."""
        assert self._writer is not None
        self._aborting = asyncio.create_task(_abort(self._context, to_status(error, self._request_id)))
        # The writer is cancelled only after the status is sent; otherwise no status would be sent.
        asyncio.get_running_loop().call_soon(self._writer.cancel)


def shown(metadata: Iterable[tuple[str, str | bytes]]) -> Credentials:
    """Return the credentials in a call's metadata; binary metadata is ignored."""
    values = {key: value for key, value in metadata if isinstance(value, str)}
    return Credentials(
        authorization=values.get(AUTHORIZATION, ""),
        user=values.get(USER, ""),
        traceparent=values.get(TRACEPARENT, ""),
        request_id=values.get(REQUEST_ID_METADATA, ""),
    )


async def _abort(context: grpc.aio.ServicerContext, status: grpc.Status) -> None:
    with contextlib.suppress(grpc.aio.AbortError):
        await context.abort_with_status(status)
