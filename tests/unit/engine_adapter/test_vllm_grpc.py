"""An engine that serves gRPC, by the adapter's port: in this process, over a real connection."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine_adapter.engine_api import EngineApi, EngineAway, EngineRefused, OpenEngine
from engine_adapter.vllm_grpc import CHANNEL_OPTIONS, VllmGrpc
from fairlead.errors import InvalidRequest
from fairlead.outcomes import FinishReason
from fairlead.rpc.channel import open_channel
from local_worker.core.request import Request
from local_worker.prompt import CallChoice, Chat, ChatMessage
from serving.constraint import Constraint
from serving.kv_events.messages import AllRemoved, KvEvent, StoredBlocks
from serving.sampling_params import SamplingParams
from tests.fakes.served_engine.engine import ServedEngine
from tests.fakes.served_engine.grpc import Feed, Grpc
from tests.fakes.served_engine.tokens import REPLACEMENT, output_after
from tests.ports import free_ports

BLOCK = 16
OPTIONS = {
    "model": "m",
    "block": BLOCK,
    "blocks": 65,
    "max_num_seqs": 8,
    "budget": 64,
    "long_prefill_token_threshold": 0,
    "prefix_caching": 1,
}


class Serving:
    """An engine that runs, with the adapter's port to it."""

    def __init__(self, servicer: Grpc, api: EngineApi, engine: OpenEngine) -> None:
        self.servicer, self.api, self.engine = servicer, api, engine

    async def output(self, prompt: str, generated: int = 0, **sampling: Any) -> tuple[str, list[int], FinishReason]:
        """The text, the tokens and the end of an output; `prompt` ends with `generated` tokens of earlier attempts."""
        params = SamplingParams(**{"max_tokens": 20, "ignore_eos": True, **sampling})
        output = self.engine.make_output(request_of(prompt.encode(), generated, params))
        text, tokens = "", []
        async for piece in output.pieces():
            tokens += piece.tokens
            released, stop = output.text.push(piece.tokens[:-1] if piece.finish is FinishReason.STOP else piece.tokens)
            text += released
            if stop:
                return text, tokens, FinishReason.STOP
            if piece.finish is not None:
                return text + output.text.rest().rstrip(REPLACEMENT), tokens, piece.finish
        raise AssertionError("it has no end")


def request_of(tokens: bytes, generated: int, sampling: SamplingParams) -> Request:
    return Request(
        id="r",
        client="ann",
        tokens=list(tokens),
        prompt_tokens=len(tokens),
        seed_position=generated,
        digests=[],
        chain_seed=0,
        sampling=sampling,
        arrival=0,
    )


@asynccontextmanager
async def serving(step_seconds: float = 0.0) -> AsyncIterator[Serving]:
    (port,) = free_ports(1)
    engine, feed = ServedEngine(argparse.Namespace(**OPTIONS, step_seconds=step_seconds)), Feed()
    servicer = Grpc(engine, feed)
    server = await servicer.serve(f"127.0.0.1:{port}")
    stepping = asyncio.create_task(engine.run(feed))
    channel = open_channel(f"127.0.0.1:{port}", CHANNEL_OPTIONS)
    api = VllmGrpc(channel, "")
    try:
        yield Serving(servicer, api, await api.open(await api.describe()))
    finally:
        stepping.cancel()
        await channel.close()
        await server.stop(None)


async def test_an_engines_description_of_itself_is_read() -> None:
    async with serving() as served:
        info = served.engine.info
        assert (info.model, info.engine) == ("m", "vllm 0.32.0")
        assert info.root == "/m"
        assert (info.max_model_tokens, info.block_tokens, info.vocab_size, info.max_running) == (400, BLOCK, 257, 8)
        assert info.pages == 64  # vLLM keeps one for itself
        assert not info.has_cache_scopes
        assert await served.api.counts() == (0, 0.0)


async def test_a_tokenizer_that_never_ends_is_refused_while_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as served:
        served.servicer.sends_for_ever = True
        monkeypatch.setattr("engine_adapter.vllm_grpc.MOST_BYTES", 9_999)
        with pytest.raises(EngineAway, match="name it with `tokenizer`: its archive has more than 9999 bytes"):
            await served.api.open(served.engine.info)


async def test_outputs_texts_and_ends() -> None:
    async with serving() as served:
        for count in (1, 2, 40):
            text, tokens, end = await served.output("Once upon a time", max_tokens=count)
            assert (text, tokens) == output_after("Once upon a time", count)
            assert end is FinishReason.LENGTH
        stop = text[5:8]
        stopped, _, end = await served.output("Once upon a time", max_tokens=40, stop=(stop,))
        assert (stopped, end) == (text[: text.index(stop)], FinishReason.STOP)
        ended = [await served.output(f"Story {number}", max_tokens=200, ignore_eos=False) for number in range(3)]
        assert {end for _, _, end in ended} == {FinishReason.STOP}
        assert all(tokens[-1] == 256 and "<eos>" not in text for text, tokens, _ in ended)


async def test_a_text_that_is_cut_within_a_character_goes_on_exactly() -> None:
    """With output of an earlier attempt that ends at each of its tokens."""
    whole, tokens = output_after("A story", 40)
    assert len(whole) < len(tokens), "no character has several tokens"
    async with serving() as served:
        for cut in range(1, len(tokens)):
            earlier = bytes(tokens[:cut]).decode(errors="ignore")
            prompt = b"A story" + bytes(tokens[:cut])
            output = served.engine.make_output(
                request_of(prompt, cut, SamplingParams(max_tokens=40 - cut, ignore_eos=True))
            )
            assert earlier + "".join([output.text.push(piece.tokens)[0] async for piece in output.pieces()]) == whole


async def test_logprobs_have_the_likely_tokens_and_all_have_bytes() -> None:
    async with serving() as served:
        sampling = SamplingParams(max_tokens=4, ignore_eos=True, logprobs=2)
        output = served.engine.make_output(request_of(b"Once", 0, sampling))
        pieces = [piece async for piece in output.pieces()]
        found = [each for piece in pieces for each in piece.logprobs]
        tokens = [token for piece in pieces for token in piece.tokens]
        assert [each.top for each in found] == [((token, -0.5), (token + 1, -1.0)) for token in tokens]
        assert {each.logprob for each in found} == {-0.5}
        assert b"".join(map(output.text.token_bytes, tokens)) == bytes(tokens)


async def test_errors_are_told_apart() -> None:
    async with serving() as served:
        with pytest.raises(EngineRefused, match="as you asked"):
            await served.output("refuse it")
        for text in ("fail at", "break"):
            with pytest.raises(EngineAway, match="as you asked"):
                await served.output(text)


async def test_leaving_an_output_aborts_it() -> None:
    async with serving(step_seconds=0.05) as served:
        output = served.engine.make_output(request_of(b"Long", 0, SamplingParams(max_tokens=300, ignore_eos=True)))
        pieces = output.pieces()
        await anext(aiter(pieces))
        assert (await served.api.counts()).requests == 1
        with pytest.raises(EngineRefused, match="in flight"):
            await served.api.reset_prefix_cache()
        await pieces.aclose()  # type: ignore[attr-defined]
        counts = [await served.api.counts()]
        while counts[-1].requests:
            counts.append(await served.api.counts())
        await served.api.reset_prefix_cache()


async def test_events_name_the_blocks_that_are_stored() -> None:
    async with serving() as served:
        events: asyncio.Queue[KvEvent | None] = asyncio.Queue()

        def apply(found: list[KvEvent]) -> None:
            for event in found:
                events.put_nowait(event)

        assert served.engine.make_follower is not None
        following = asyncio.create_task(served.engine.make_follower(apply, lambda: events.put_nowait(None)).run())
        text = "A prefix of some blocks, which are stored."
        while events.empty():  # until the subscription has reached the engine
            await served.output(f"{len(text)} {text}", max_tokens=1)
            text = f"{text}."
        await served.output(text, max_tokens=1)
        beginning, stored = list(text.encode())[:BLOCK], list[StoredBlocks]()
        # Behind events of the outputs before; where there were many, between events of blocks that give way.
        while len(stored) < len(text) // BLOCK:
            event = await events.get()
            if isinstance(event, StoredBlocks) and (stored or event.tokens == beginning):
                stored.append(event)
        tokens = [token for event in stored for token in event.tokens]
        assert tokens == list(text.encode())[: len(tokens)]
        assert [event.parent for event in stored] == [None, *[event.names[-1] for event in stored[:-1]]]
        await served.api.reset_prefix_cache()
        while await events.get() != AllRemoved():
            pass
        following.cancel()


async def test_chats_are_rendered_by_the_engines_template() -> None:
    async with serving() as served:
        messages = (ChatMessage("system", "be brief"), ChatMessage("user", "hello"))
        encoded = served.engine.tokenizer.encode_chat(Chat(messages))
        assert bytes(encoded.ids) == b"system: be brief\nuser: hello\nassistant: "
        with pytest.raises(InvalidRequest, match="calls cannot be promised"):
            served.engine.tokenizer.encode_chat(Chat(messages, choice=CallChoice(is_required=True)))


FLOATS = {
    "temperature": 0.5,
    "top_p": 0.5,
    "min_p": 0.25,
    "repetition_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
}
SAMPLING: dict[str, Any] = {
    **FLOATS,
    "top_k": 7,
    "stop_token_ids": (5, 6),
    "logit_bias": ((7, 2.0), (8, -100.0)),
    "seed": 2**63 + 9,
    "ignore_eos": False,
}


async def test_a_request_becomes_vllms_request() -> None:
    async with serving() as served:
        await served.output("Once", min_tokens=2, max_tokens=3, **SAMPLING)
        given = served.servicer.last_request.sampling_params
        assert {name: getattr(given, name) for name in FLOATS} == FLOATS
        assert (given.top_k, given.min_tokens, given.max_tokens, given.seed) == (7, 2, 3, 9)
        assert (list(given.stop_token_ids), dict(given.logit_bias)) == ([5, 6], {7: 2.0, 8: -100.0})
        await served.output("Once", max_tokens=1, temperature=0.0)
        assert served.servicer.last_request.sampling_params.HasField("temperature")  # whose default is not 0
        for constraint, field, value in (
            (Constraint("json_object"), "json_object", True),
            (Constraint("json_schema", ("{}",)), "json_schema", "{}"),
            (Constraint("regex", ("a+",)), "regex", "a+"),
            (Constraint("grammar", ("start: a",)), "grammar", "start: a"),
        ):
            await served.output("Once", max_tokens=1, ignore_eos=False, constraint=constraint)
            assert getattr(served.servicer.last_request.sampling_params, field) == value
        choice = Constraint("choice", ("a", "b"))
        await served.output("Once", max_tokens=1, ignore_eos=False, constraint=choice)
        assert list(served.servicer.last_request.sampling_params.choice.choices) == ["a", "b"]
