"""An engine that lies over gRPC: messages by method, some of which never end."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any

import grpc

from engine_adapter.wire import common_pb2, vllm_pb2, vllm_pb2_grpc
from tests.fakes.served_engine.grpc import tokenizer_archive


def chunk(*token_ids: int, **fields: Any) -> vllm_pb2.GenerateResponse:
    """A part of an output."""
    return vllm_pb2.GenerateResponse(chunk=vllm_pb2.GenerateStreamChunk(token_ids=token_ids, **fields))


def complete(reason: str) -> vllm_pb2.GenerateResponse:
    """The end of an output."""
    return vllm_pb2.GenerateResponse(complete=vllm_pb2.GenerateComplete(finish_reason=reason))


def honest() -> dict[str, Any]:
    """The messages of an engine that says what is so."""
    load = vllm_pb2.SchedulerLoad(max_total_num_tokens=1616)
    return {
        "HealthCheck": vllm_pb2.HealthCheckResponse(healthy=True),
        "GetModelInfo": vllm_pb2.GetModelInfoResponse(model_path="m", max_context_length=400, vocab_size=257),
        "GetServerInfo": vllm_pb2.GetServerInfoResponse(block_size=16, max_num_seqs=8),
        "GetLoads": vllm_pb2.GetLoadsResponse(loads=[load], version="0.32.0"),
        "Generate": (chunk(97), chunk(97), complete("length")),
        "SubscribeKvEvents": (),
    }


class MaliciousGrpcEngine:
    """Serves `answers` by method: a message, an exception's text, or messages of a stream, which may have no end."""

    def __init__(self) -> None:
        self.answers = honest()
        self.address = ""
        self.sent = 0  # messages of streams
        self.left = asyncio.Event()  # whether a client has left a stream

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["MaliciousGrpcEngine"]:
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        vllm_pb2_grpc.add_VllmEngineServicer_to_server(self, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        yield self
        await server.stop(None)

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        return await self._one("HealthCheck", context)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        return await self._one("GetModelInfo", context)

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        return await self._one("GetServerInfo", context)

    async def GetLoads(self, request: Any, context: Any) -> Any:
        return await self._one("GetLoads", context)

    async def FlushCache(self, request: Any, context: Any) -> Any:
        return await self._one("FlushCache", context)

    async def GetTokenizer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        yield common_pb2.GetTokenizerChunk(data=await asyncio.to_thread(tokenizer_archive))

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for message in self._all("Generate", context):
            yield message

    async def SubscribeKvEvents(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async for message in self._all("SubscribeKvEvents", context):
            yield message

    async def _one(self, method: str, context: Any) -> Any:
        if isinstance(answer := self.answers[method], str):
            await context.abort(grpc.StatusCode.INTERNAL, answer)
        return answer

    async def _all(self, method: str, context: Any) -> AsyncIterator[Any]:
        if isinstance(answer := self.answers[method], str):
            await context.abort(grpc.StatusCode.INTERNAL, answer)
        try:
            for message in answer:
                yield message
                self.sent += 1
        finally:
            self.left.set()


def endless(message: Any) -> Iterator[Any]:
    """One message, for ever."""
    return repeat(message)
