"""Bare servers: the cost of the libraries alone, for the same chunks as the gateway sends, without any logic.

Run as `python -m lab.bench.control_plane.bare http|grpc SECONDS` it serves on a free port of loopback and prints it.
A request is read and not parsed; its answer is the first token and then one chunk per four tokens, or per token where
the caller asks for that. A chunk follows the one before it after the time that its tokens take at a worker.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import uvicorn
import uvloop

from fairlead.v1 import inference_pb2, inference_pb2_grpc
from gateway.core.call_events import TOKENS as TOKENS_PER_CHUNK
from lab.bench.control_plane.job import TOKENS
from serving.rpc.channel import SERVER_OPTIONS

EVENT = (
    b'data: {"object":"text_completion","id":"cmpl-0123456789abcdef","created":1790000000,"model":"fake","choices":['
)
EVENT += b'{"index":0,"text":"abcd","logprobs":null,"finish_reason":null}]}\n\n'
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


def chunks(each_token: bool) -> Iterator[int]:
    """Yield the number of tokens of each chunk of an answer."""
    yield 1
    per_chunk = 1 if each_token else TOKENS_PER_CHUNK
    for begin in range(1, TOKENS, per_chunk):
        yield min(per_chunk, TOKENS - begin)


class BareApplication:
    """An ASGI application that answers every request with the same stream."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Read the body and stream the chunks."""
        while (await receive()).get("more_body"):
            pass
        each_token = (b"x-fairlead-streaming", b"each_token") in scope["headers"]
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        for tokens in chunks(each_token):
            await asyncio.sleep(self._step_seconds * tokens)
            await send({"type": "http.response.body", "body": EVENT, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


class BareInference(inference_pb2_grpc.InferenceServicer):
    """A service that answers every call with the same stream."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """Stream the chunks between the two messages that frame them."""
        yield inference_pb2.GenerateResponse(accepted=inference_pb2.Accepted())
        for tokens in chunks(request.streaming == inference_pb2.STREAMING_EACH_TOKEN):
            await asyncio.sleep(self._step_seconds * tokens)
            yield inference_pb2.GenerateResponse(chunk=inference_pb2.TokenChunk(text="abcd"))
        yield inference_pb2.GenerateResponse(finished=inference_pb2.Finished())


@contextmanager
def bare_server(kind: str, step_seconds: float) -> Iterator[tuple[str, int]]:
    """Run a bare server of `kind`, http or grpc; yield its address and its process id."""
    with running([sys.executable, "-m", "lab.bench.control_plane.bare", kind, str(step_seconds)]) as started:
        yield started


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """Run a command that prints its port on loopback; yield its address and its process id."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().strip()}", process.pid
    finally:
        process.kill()
        process.wait()


async def _http(step_seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(BareApplication(step_seconds), lifespan="off", log_config=None, access_log=False)
        await uvicorn.Server(config).serve([listener])


async def _grpc(step_seconds: float) -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    inference_pb2_grpc.add_InferenceServicer_to_server(BareInference(step_seconds), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    kind, seconds = sys.argv[1], float(sys.argv[2])
    uvloop.run(_http(seconds) if kind == "http" else _grpc(seconds))
