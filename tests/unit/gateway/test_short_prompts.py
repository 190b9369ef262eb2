"""Short prompts over one stream, between the gateway's links and the tokenizer service of a worker."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from fairlead.errors import Unavailable
from fairlead.prompt import as_prompt
from fairlead.token_ids import unpack_ids
from fairlead.v1 import scheduler_pb2, worker_pb2, worker_pb2_grpc
from gateway.upstream.workers import SHORT_PROMPT, WorkerLinks
from local_worker.fair_executor import FairExecutor
from local_worker.prompt_encoder import PromptEncoder
from local_worker.service import TokenizerService
from local_worker.tokenizer import ByteTokenizer
from serving.rpc.server import Server
from tests.unit.gateway.scripted_worker import SECRET

MOST_TOKENS = 2 * SHORT_PROMPT


class CountingTokenizer(TokenizerService):
    """A worker's tokenizer service, which counts calls and messages."""

    def __init__(self) -> None:
        prompts = PromptEncoder(ByteTokenizer(), ByteTokenizer.vocab_size, 16, SECRET, {"m": "r1"}, MOST_TOKENS)
        super().__init__(prompts, FairExecutor("tokenizer"))
        self.server = Server("127.0.0.1:0")
        self.server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, self, "fairlead.v1.Tokenizer", SECRET)
        self.member = scheduler_pb2.Member(worker="a", address=f"127.0.0.1:{self.server.port}")
        self.streams = self.batches = self.calls = 0

    async def Encode(
        self, request: worker_pb2.EncodeRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.EncodeResponse:
        self.calls += 1
        return await super().Encode(request, context)

    async def EncodeShort(
        self, request_iterator: AsyncIterator[worker_pb2.ShortPrompts], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[worker_pb2.EncodedPrompts]:
        self.streams += 1
        async for encoded in super().EncodeShort(self._counted(request_iterator), context):
            yield encoded

    async def _counted(self, batches: AsyncIterator[worker_pb2.ShortPrompts]) -> AsyncIterator[worker_pb2.ShortPrompts]:
        async for batch in batches:
            self.batches += 1
            yield batch


@pytest.fixture
async def tokenizer() -> AsyncIterator[CountingTokenizer]:
    tokenizer = CountingTokenizer()
    await tokenizer.server.start()
    yield tokenizer
    await tokenizer.server.stop(0)


@pytest.fixture
async def workers() -> AsyncIterator[WorkerLinks]:
    workers = WorkerLinks(SECRET, lambda: False)
    yield workers
    await workers.close()


async def tokens(workers: WorkerLinks, tokenizer: CountingTokenizer, text: str) -> list[int]:
    request = worker_pb2.EncodeRequest(prompt=as_prompt(text), model="m", client=text[:1])
    return unpack_ids((await workers.encode([tokenizer.member], request, None)).token_ids)


async def test_short_prompts_share_a_stream_and_its_messages(
    workers: WorkerLinks, tokenizer: CountingTokenizer
) -> None:
    texts = [f"{number} is a prompt" for number in range(50)]
    encoded = await asyncio.gather(*(tokens(workers, tokenizer, text) for text in texts))
    assert encoded == [list(text.encode()) for text in texts]
    assert (tokenizer.streams, tokenizer.calls) == (1, 0)
    assert tokenizer.batches < 10, "prompts of one turn of the event loop go together"


async def test_long_prompts_do_not_delay_those_of_the_stream(
    workers: WorkerLinks, tokenizer: CountingTokenizer
) -> None:
    assert len(await tokens(workers, tokenizer, "x" * SHORT_PROMPT)) == SHORT_PROMPT
    assert (tokenizer.streams, tokenizer.calls) == (0, 1)


async def test_a_prompt_that_cannot_be_tokenized_is_refused_with_the_reason(
    workers: WorkerLinks, tokenizer: CountingTokenizer
) -> None:
    chat = worker_pb2.EncodeRequest(prompt=as_prompt([5] * 10), model="another")
    with pytest.raises(Unavailable):
        await workers.encode([tokenizer.member], chat, None)
    assert await tokens(workers, tokenizer, "x") == [120], "the stream goes on"
    assert (tokenizer.streams, tokenizer.calls) == (1, 1)


async def test_prompts_of_a_stream_that_breaks_are_tokenized_by_calls(
    workers: WorkerLinks, tokenizer: CountingTokenizer
) -> None:
    await tokens(workers, tokenizer, "x")
    link = workers.link(tokenizer.member.address, "")
    pending = [asyncio.create_task(tokens(workers, tokenizer, text)) for text in "abc"]
    await asyncio.sleep(0)
    await link.short_prompts.close()
    assert await asyncio.gather(*pending) == [[97], [98], [99]]
    assert await tokens(workers, tokenizer, "d") == [100]
    assert tokenizer.streams == 2, "the next prompt opens another stream"
