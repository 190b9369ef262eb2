"""A real gRPC server that says, as a worker, whatever a test wants it to say."""

import asyncio
from collections.abc import AsyncIterator

import grpc

from fairlead.errors import InvalidRequest
from fairlead.rpc.status import to_status
from fairlead.v1 import worker_pb2, worker_pb2_grpc
from serving.rpc.server import Server

SECRET = "a secret of the gateway's tests"


class ScriptedWorker(worker_pb2_grpc.WorkerServicer, worker_pb2_grpc.TokenizerServicer):
    """The worker's side of the wire: records commands, says what the test puts into `events`."""

    def __init__(self) -> None:
        self.server = Server("127.0.0.1:0")
        self.server.add(worker_pb2_grpc.add_WorkerServicer_to_server, self, "fairlead.v1.Worker", SECRET)
        self.server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, self, "fairlead.v1.Tokenizer", SECRET)
        self.address = f"127.0.0.1:{self.server.port}"
        self.commands: asyncio.Queue[worker_pb2.SessionCommands] = asyncio.Queue()
        self.events: asyncio.Queue[worker_pb2.StepEvents] = asyncio.Queue()
        self.is_frozen = False

    async def Session(
        self, request_iterator: AsyncIterator[worker_pb2.SessionCommands], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[worker_pb2.StepEvents]:
        async def read() -> None:
            async for commands in request_iterator:
                self.commands.put_nowait(commands)

        reader = asyncio.create_task(read())
        try:
            while True:
                yield await self.events.get()
        finally:
            reader.cancel()

    async def Encode(
        self, request: worker_pb2.EncodeRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.EncodeResponse:
        if self.is_frozen:
            await asyncio.Event().wait()
        if request.prompt.text == "bad":
            await context.abort_with_status(to_status(InvalidRequest("no good", "prompt.text")))
        return worker_pb2.EncodeResponse(token_ids=b"1234")
