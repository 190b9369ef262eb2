"""The gRPC interface of the served engine, that of vLLM."""

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import grpc

from engine_adapter.wire import common_pb2, vllm_pb2, vllm_pb2_grpc
from tests.fakes.served_engine.engine import ServedEngine
from tests.fakes.served_engine.running import Running
from tests.fakes.served_engine.tokens import EOS, text_of

CHUNK = 1000  # bytes of the tokenizer in one message
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class Feed:
    """The publisher of events to everybody who listens, as HTTP's is over ZeroMQ."""

    def __init__(self) -> None:
        self._listeners: list[asyncio.Queue[common_pb2.KvEventBatch]] = []

    async def publish(self, events: list[dict[str, Any]]) -> None:
        batch = common_pb2.KvEventBatch(events=[event_of(event) for event in events])
        for listener in self._listeners:
            listener.put_nowait(batch)

    async def batches(self) -> AsyncIterator[common_pb2.KvEventBatch]:
        queue: asyncio.Queue[common_pb2.KvEventBatch] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.remove(queue)


class Grpc:
    """The servicer."""

    def __init__(self, engine: ServedEngine, feed: Feed) -> None:
        self.engine, self.feed = engine, feed
        self.last_request: Any = None
        self.sends_for_ever = False  # whether its tokenizer has no end

    async def serve(self, address: str) -> grpc.aio.Server:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        vllm_pb2_grpc.add_VllmEngineServicer_to_server(self, server)
        server.add_insecure_port(address)
        await server.start()
        return server

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        return vllm_pb2.HealthCheckResponse(healthy=True)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        return vllm_pb2.GetModelInfoResponse(
            model_path="/m", served_model_name=self.engine.options.model, max_context_length=400, vocab_size=EOS + 1
        )

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        options = self.engine.options
        return vllm_pb2.GetServerInfoResponse(block_size=options.block, max_num_seqs=options.max_num_seqs)

    async def GetLoads(self, request: Any, context: Any) -> Any:
        engine, options = self.engine, self.engine.options
        held = sum(1 for count in engine.cache.held.values() if count > 0)
        load = vllm_pb2.SchedulerLoad(
            num_running_reqs=len(engine.running),
            num_waiting_reqs=len(engine.waiting),
            token_usage=held / (options.blocks - 1),
            max_total_num_tokens=options.blocks * options.block,
        )
        return vllm_pb2.GetLoadsResponse(loads=[load], version="0.32.0")

    async def GetTokenizer(self, request: Any, context: Any) -> AsyncIterator[common_pb2.GetTokenizerChunk]:
        data = await asyncio.to_thread(tokenizer_archive)
        while self.sends_for_ever:
            yield common_pb2.GetTokenizerChunk(data=bytes(CHUNK))
        for start in range(0, len(data), CHUNK):
            yield common_pb2.GetTokenizerChunk(data=data[start : start + CHUNK])

    async def FlushCache(self, request: Any, context: Any) -> common_pb2.FlushCacheResponse:
        if self.engine.running:
            return common_pb2.FlushCacheResponse(success=False, message="requests are in flight")
        self.engine.cache.clear()
        self.engine.work.set()
        return common_pb2.FlushCacheResponse(success=True)

    async def SubscribeKvEvents(self, request: Any, context: Any) -> AsyncIterator[common_pb2.KvEventBatch]:
        async for batch in self.feed.batches():
            yield batch

    async def Generate(self, given: Any, context: Any) -> AsyncIterator[Any]:
        self.last_request = given
        tokens, sampling = list(given.tokenized.input_ids), given.sampling_params
        text, sent = text_of(tokens), 0
        if "refuse" in text or "fail at" in text:
            code = grpc.StatusCode.INVALID_ARGUMENT if "refuse" in text else grpc.StatusCode.INTERNAL
            await context.abort(code, f"as you asked: {sampling.WhichOneof('constraint')}")
        request = Running(tokens, sampling.max_tokens, sampling.ignore_eos, "", self._logprobs(given))
        self.engine.waiting.append(request)
        self.engine.work.set()
        try:
            while True:
                choice = await request.output.get()
                if text.startswith("break") and sent == 3:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "as you asked")
                sent += 1
                yield vllm_pb2.GenerateResponse(chunk=self._chunk(choice))
                if choice["finish_reason"]:
                    end = vllm_pb2.GenerateComplete(finish_reason=choice["finish_reason"])
                    yield vllm_pb2.GenerateResponse(complete=end)
                    return
        finally:
            self.engine.leave(request)

    def _logprobs(self, given: Any) -> int | None:
        sampling = given.sampling_params
        return sampling.logprobs if sampling.HasField("logprobs") else None

    def _chunk(self, choice: dict[str, Any]) -> Any:
        chunk = vllm_pb2.GenerateStreamChunk(token_ids=choice["token_ids"])
        if "logprobs" in choice:
            found = choice["logprobs"]
            chunk.output_logprobs.token_logprobs.extend(found["token_logprobs"])
            for listed in found["top_logprobs"]:
                ids = [int(name.removeprefix("token_id:")) for name in listed]
                chunk.output_logprobs.top_logprobs.append(vllm_pb2.TopLogProbs(values=listed.values(), token_ids=ids))
        return chunk


def event_of(event: dict[str, Any]) -> common_pb2.KvCacheEvent:
    """The message of an event that HTTP's publisher sends as a map."""
    match event["type"]:
        case "BlockStored":
            block = common_pb2.KvBlock(block_hash=event["block_hashes"][0], token_ids=event["token_ids"])
            stored = common_pb2.KvBlocksStored(blocks=[block], parent_block_hash=event["parent_block_hash"])
            return common_pb2.KvCacheEvent(stored=stored)
        case "BlockRemoved":
            return common_pb2.KvCacheEvent(removed=common_pb2.KvBlocksRemoved(block_hashes=event["block_hashes"]))
        case _:
            return common_pb2.KvCacheEvent(cleared=common_pb2.KvCacheCleared())


def tokenizer_archive() -> bytes:
    """A zip archive of a tokenizer whose tokens are bytes, with EOS after them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE(vocab={name: byte for byte, name in enumerate(byte_names())}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True)])
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<eos>", "chat_template": TEMPLATE}
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("tokenizer.json", tokenizer.to_str())
        files.writestr("tokenizer_config.json", json.dumps({**config, "clean_up_tokenization_spaces": False}))
        files.writestr("generation_config.json", json.dumps({"eos_token_id": EOS}))
    return archive.getvalue()


def byte_names() -> list[str]:
    """The characters that stand for bytes in the vocabularies of byte-level tokenizers."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte) if byte in shown else chr(256 + hidden.index(byte)) for byte in range(256)]
