"""Prefixes as engines tell them: the tokens of prompts, and the events of KV caches."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zmq", reason="the extra `adapter` is not installed")

from endpoint_picker import followed_caches, token_prompts
from endpoint_picker.app import make_picker
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.followed_caches import FollowedCaches
from endpoint_picker.picker import Picker
from endpoint_picker.request_body import Prompt, prompt_of
from endpoint_picker.token_prompts import TokenPrompts, token_root
from fairlead.token_ids import pack_ids
from serving.config import ConfigError
from serving.http_client import HttpClient
from serving.kv_events import follower
from serving.kv_events.messages import StoredBlocks
from tests.fakes.served_engine.kv import Publisher
from tests.fakes.served_engine.process import EngineProcess
from tests.ports import free_ports
from tests.services import DEADLINE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine tokenizes as soon as this machine's other load lets it."""
    monkeypatch.setattr(token_prompts, "CALL_SECONDS", DEADLINE)
    monkeypatch.setattr(token_prompts, "REST_SECONDS", DEADLINE)


BLOCK = 4
TOKENS = list(range(10, 22))


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


class TokenizingServer:
    """Answers every call with `answer`, in HTTP."""

    def __init__(self) -> None:
        self.answer = b""
        self.asked: list[dict[str, Any]] = []
        self.address = ""

    def says(self, found: object, status: int = 200) -> None:
        text = json.dumps(found).encode()
        self.answer = f"HTTP/1.1 {status} x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.split("Content-Length: ")[1].split("\r\n")[0])
        self.asked.append(json.loads(await reader.readexactly(length)))
        writer.write(self.answer)
        await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[TokenizingServer]:
    served = TokenizingServer()
    listening = await asyncio.start_server(served.handle, "127.0.0.1", 0)
    served.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    served.says({"tokens": TOKENS, "count": len(TOKENS)})
    yield served
    listening.close()


async def test_a_chat_has_the_tokens_that_the_engine_says(server: TokenizingServer) -> None:
    prompts = TokenPrompts(lambda: [server.address])
    messages = [{"role": "user", "content": "Hello"}]
    prompt = await prompts.read(body(messages=messages, temperature=0, max_tokens=9, cache_salt="s", tools=[]))
    assert prompt == Prompt(pack_ids(TOKENS), token_root("s"), 9)
    assert server.asked == [{"model": "m", "messages": messages, "tools": []}]
    assert (await prompts.read(body(prompt="Hello"))).packed == pack_ids(TOKENS)


async def test_token_ids_are_asked_of_nobody(server: TokenizingServer) -> None:
    prompts = TokenPrompts(lambda: [server.address])
    assert await prompts.read(body(prompt=TOKENS)) == Prompt(pack_ids(TOKENS), token_root(""))
    assert not server.asked


@pytest.mark.parametrize(
    "fields", [{"prompt": ["a", "b"]}, {"system": "s", "messages": []}, {"input": "a"}, {"prompt": 7}, {}]
)
async def test_a_prompt_that_no_engine_tokenizes_is_matched_as_text(
    server: TokenizingServer, fields: dict[str, Any]
) -> None:
    prompts = TokenPrompts(lambda: [server.address])
    assert await prompts.read(body(**fields)) == prompt_of(body(**fields))
    assert not server.asked
    for garbage in (b"", b"[1", b"[]", b"\xff", b'{"cache_salt": {}, "prompt": "a"'):
        assert await prompts.read(garbage) == prompt_of(garbage)


async def test_an_engine_that_tokenizes_nothing_is_left_alone_for_a_while(server: TokenizingServer) -> None:
    prompts = TokenPrompts(lambda: [server.address])
    text = body(prompt="Hello")
    server.says({"error": "no"}, 400)
    assert [await prompts.read(text) for _ in range(2)] == [prompt_of(text)] * 2
    assert len(server.asked) == 2  # the next prompt may be better
    server.says({"detail": "no tokens"})
    assert [await prompts.read(text) for _ in range(3)] == [prompt_of(text)] * 3
    assert len(server.asked) == 3
    assert await TokenPrompts(list).read(text) == prompt_of(text)


def stored(tokens: list[int]) -> dict[str, Any]:
    """The event of one chain of blocks, named by their ends."""
    ends = range(BLOCK, len(tokens) + 1, BLOCK)
    return {
        "type": "BlockStored",
        "block_hashes": [str(tokens[:end]) for end in ends],
        "parent_block_hash": None,
        "token_ids": tokens,
        "block_size": BLOCK,
        "medium": "GPU",
    }


@asynccontextmanager
async def following(picker: Picker, events: int, replay: int, block: int) -> AsyncIterator[None]:
    task = asyncio.create_task(FollowedCaches(picker, events, replay, block).run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


def make(addresses: list[str], block: int, **options: Any) -> Picker:
    config = PickerConfig(endpoints=",".join(addresses), block_tokens=block, policy="least-delay", **options)
    picker = make_picker(config, ServiceCounters())
    picker.set_endpoints(addresses)
    return picker


async def match(picker: Picker, prompt: Prompt) -> tuple[str, int]:
    """Where a request goes, and how many of its tokens are thought to be cached there; it is refused."""
    pick = await picker.place("ann", 1000, prompt, None)
    picker.refused(pick)
    return pick.endpoint, pick.matched_tokens


async def until(picker: Picker, prompt: Prompt, expected: tuple[str, int]) -> None:
    """Wait until requests with the prompt go to the expected endpoint, where so much is cached."""
    async with asyncio.timeout(60):
        while True:
            if await match(picker, prompt) == expected:
                return
            await asyncio.sleep(0.01)


async def test_requests_go_where_events_say_that_their_blocks_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines publish at one port of two addresses; one that goes and comes back is followed from its beginning."""
    monkeypatch.setattr(followed_caches, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(follower, "QUIET_SECONDS", 0.01)
    events, replay = free_ports(2)
    addresses = ["127.0.0.1:80", "127.0.0.2:80"]
    hosts = [address.removesuffix(":80") for address in addresses]
    publishers = [Publisher(f"tcp://{host}:{events}", f"tcp://{host}:{replay}", False, 0) for host in hosts]
    replaying = [asyncio.create_task(each.replay()) for each in publishers]
    picker = make(addresses, BLOCK)
    prompt = Prompt(pack_ids(TOKENS), token_root(""))
    async with following(picker, events, replay, BLOCK):
        await publishers[0].publish([stored(TOKENS[:4])])
        await publishers[1].publish([stored(TOKENS)])
        await until(picker, prompt, (addresses[1], 12))
        await publishers[1].publish([{"type": "BlockRemoved", "block_hashes": [str(TOKENS)], "medium": "GPU"}])
        await until(picker, prompt, (addresses[1], 8))
        await publishers[1].publish([stored(TOKENS)])
        await until(picker, prompt, (addresses[1], 12))
        names = [str(TOKENS[:end]) for end in (4, 8, 12)]
        gone = [{"type": "BlockRemoved", "block_hashes": [name], "medium": "GPU"} for name in names[::-1]]
        offloaded = {"type": "BlockStored", "block_hashes": names, "token_ids": [], "medium": "CPU"}
        await publishers[1].publish([offloaded, *gone, *gone[1:]])
        await until(picker, prompt, (addresses[1], 8))
        await publishers[1].publish([{"type": "BlockRemoved", "block_hashes": names[::-1], "medium": "CPU"}])
        await until(picker, prompt, (addresses[0], 4))
        await publishers[1].publish([stored(TOKENS[:8])])
        await until(picker, prompt, (addresses[1], 8))
        picker.set_endpoints(addresses[:1])
        picker.set_endpoints(addresses)
        await until(picker, prompt, (addresses[0], 4))
        await until(picker, prompt, (addresses[1], 8))
        await publishers[1].publish([{"type": "AllBlocksCleared"}])
        await until(picker, prompt, (addresses[0], 4))
    picker.pool.check_invariants()
    for task, publisher in zip(replaying, publishers, strict=True):
        task.cancel()
        publisher.close()


async def test_a_long_prompt_goes_once_events_say_that_its_clients_last_one_is_computed() -> None:
    address = "127.0.0.1:80"
    picker = make([address], BLOCK, token_budget=4 * len(TOKENS) - 4, kv_events="5557")
    cache = followed_caches.FollowedCache(picker, address, BLOCK)
    cache.apply([StoredBlocks(["other"], None, [1] * BLOCK, "")])
    first = await picker.place("ann", 1000, Prompt(pack_ids(TOKENS), token_root("")), None)
    waits = asyncio.create_task(picker.place("ann", 1000, Prompt(pack_ids([*TOKENS, 1][1:]), token_root("")), None))
    await asyncio.sleep(0)
    assert picker.waiting == 1
    cache.apply([StoredBlocks(["a", "b"], None, TOKENS[: 2 * BLOCK], "")])
    assert picker.waiting == 1
    cache.apply([StoredBlocks(["c"], "b", TOKENS[2 * BLOCK :], "")])
    second = await waits
    assert first.endpoint == second.endpoint == address
    picker.pool.check_invariants()


async def test_blocks_of_another_size_are_reported_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    picker = make(["127.0.0.1:80"], 8)
    cache = followed_caches.FollowedCache(picker, "127.0.0.1:80", 8)
    for _ in range(2):
        cache.apply([StoredBlocks(["a", "b"], None, TOKENS[:8], "")])
    [record] = caplog.records
    assert (record.__dict__["block_tokens"], record.__dict__["configured"]) == (4, 8)
    assert await match(picker, Prompt(pack_ids(TOKENS), token_root(""))) == ("127.0.0.1:80", 0)


@pytest.mark.e2e
async def test_prefixes_that_another_caller_sent_to_an_engine_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "QUIET_SECONDS", 0.01)
    engine = EngineProcess(tmp_path / "engine.log", block=16)
    try:
        engine.metric("served_engine_most_requests")
        events, replay = (int(each.rpartition(":")[2]) for each in (engine.events, engine.replay))
        picker = make([engine.address], 16)
        prompts = TokenPrompts(lambda: picker.pool.endpoints)
        text = "A story of which the engine has the beginning. " * 2
        async with following(picker, events, replay, 16):
            sent = json.dumps(
                {"prompt": list(text.encode()), "max_tokens": 2, "stream": True, "ignore_eos": True}
            ).encode()
            async with HttpClient(engine.address).call("POST", "/v1/completions", sent) as response:
                assert (response.status, (await response.body())[:5]) == (200, b"data:")
            prompt = await prompts.read(body(prompt=text + "And then"))
            await until(picker, prompt, (engine.address, len(text) // 16 * 16))
    finally:
        engine.kill()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_events": "70000"}, "kv_events: expected PORT[,PORT], each at most 65535, got '70000'"),
        ({"kv_events": "5557,-1"}, "kv_events: expected PORT[,PORT], each at most 65535, got '5557,-1'"),
        ({"block_tokens": 0}, "block_tokens: must be above 0, got 0"),
        ({"token_budget": 0, "kv_events": "5557"}, "token_budget: must be positive, and needs kv_events"),
        ({"token_budget": 2048}, "token_budget: must be positive, and needs kv_events"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        PickerConfig(endpoints="127.0.0.1:80", **options)
