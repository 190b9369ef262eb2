"""The order in which a worker tokenizes the clients' prompts, through its gRPC service."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc
import pytest

from fairlead.errors import FairleadError
from fairlead.prompt import as_prompt
from fairlead.rpc.status import from_call
from fairlead.v1 import worker_pb2, worker_pb2_grpc
from local_worker.fair_executor import FairExecutor
from local_worker.prompt_encoder import PromptEncoder
from local_worker.service import TokenizerService
from local_worker.tokenizer import ByteTokenizer
from serving.rpc.channel import secret_metadata
from serving.rpc.server import Server

SECRET = "a secret of the worker's tests"
LONG, SHORT = "x" * 10_000, "y"


class HeldTokenizer(ByteTokenizer):
    """A tokenizer that blocks until it is released; `begun` holds the lengths of its prompts in order."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.has_begun = threading.Event()
        self.let_go = threading.Event()

    def encode(self, text: str, with_special_tokens: bool = True) -> list[int]:
        self.begun.append(len(text))
        self.has_begun.set()
        self.let_go.wait()
        return super().encode(text)


@dataclass
class Worker:
    """The service, its tokenizer and a client's stub."""

    tokenizer: HeldTokenizer
    turns: FairExecutor
    stub: worker_pb2_grpc.TokenizerStub

    async def await_waiting(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.turns.waiting != count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def asked(self, client: str, text: str) -> grpc.aio.UnaryUnaryCall:
        request = worker_pb2.EncodeRequest(prompt=as_prompt(text), client=client)
        return self.stub.Encode(request, metadata=secret_metadata(SECRET), timeout=60)

    async def answers(self, calls: Sequence[grpc.aio.UnaryUnaryCall]) -> list[int]:
        """Release the tokenizer, and return the lengths of the prompts in their order."""
        self.tokenizer.let_go.set()
        return [len(answer.token_ids) // 4 for answer in await asyncio.gather(*calls)]


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    tokenizer, turns = HeldTokenizer(), FairExecutor("tokenizer")
    prompts = PromptEncoder(tokenizer, ByteTokenizer.vocab_size, 16, SECRET, {"a model": "r1"}, 20_000)
    server = Server("127.0.0.1:0")
    service = TokenizerService(prompts, turns)
    server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, service, "fairlead.v1.Tokenizer", SECRET)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield Worker(tokenizer, turns, worker_pb2_grpc.TokenizerStub(channel))
    tokenizer.let_go.set()
    await server.stop(0)


async def test_one_clients_long_prompts_do_not_delay_anothers(worker: Worker) -> None:
    many = [worker.asked("many", LONG) for _ in range(10)]
    await asyncio.to_thread(worker.tokenizer.has_begun.wait)
    other = worker.asked("other", SHORT)
    await worker.await_waiting(10)
    lengths = await worker.answers([*many, other])
    assert lengths == [10_000] * 10 + [1]
    assert worker.tokenizer.begun[1] == 1, "next to the one that was under way"


async def test_a_cancelled_prompt_is_not_tokenized(worker: Worker) -> None:
    first = worker.asked("many", LONG)
    await asyncio.to_thread(worker.tokenizer.has_begun.wait)
    gone = [worker.asked("many", LONG[:-1]) for _ in range(5)]
    await worker.await_waiting(5)
    for call in gone:
        call.cancel()
    await worker.await_waiting(0)
    last = worker.asked("many", SHORT)
    assert await worker.answers([first, last]) == [10_000, 1]
    assert worker.tokenizer.begun == [10_000, 1]


async def test_a_refused_prompt_lets_the_next_one_run(worker: Worker) -> None:
    worker.tokenizer.let_go.set()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.asked("many", "x" * 20_001)
    assert isinstance(from_call(caught.value), FairleadError)
    assert await worker.answers([worker.asked("many", SHORT)]) == [1]
