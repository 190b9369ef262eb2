"""The subscription to KV events over real sockets: nothing missed, and nothing believed that may be gone."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("zmq", reason="the extra `adapter` is not installed")

from serving.kv_events import follower as kv_follower
from serving.kv_events.follower import KvFollower
from serving.kv_events.messages import AllRemoved, KvEvent, RemovedBlocks
from tests.fakes.served_engine.kv import Publisher

WAIT = 60


@pytest.fixture
def impatient() -> Iterator[None]:
    """Followers ask whenever they have heard nothing for 10 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_follower, "QUIET_SECONDS", 0.01)
        yield


class Heard:
    """What a follower said, and a way to wait for it."""

    def __init__(self) -> None:
        self.names: list[int] = []
        self.known: list[Hashable] = []  # since all was forgotten
        self.clears = 0
        self._changed = asyncio.Event()

    def apply(self, events: list[KvEvent]) -> None:
        for event in events:
            match event:
                case RemovedBlocks(names):
                    self.names += [name for name in names if isinstance(name, int)]
                    self.known += names
                case AllRemoved():
                    self.clears += 1
                    self.known.clear()
        self._changed.set()

    def clear(self) -> None:
        self.apply([AllRemoved()])

    async def until(self, name: int) -> None:
        async with asyncio.timeout(WAIT):
            while name not in self.names:
                self._changed.clear()
                await self._changed.wait()

    async def until_known(self, names: list[int]) -> None:
        async with asyncio.timeout(WAIT):
            while self.known != names:
                self._changed.clear()
                await self._changed.wait()


class Wire:
    """A publisher, and the addresses of its sockets."""

    def __init__(self, drop: int = 0) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.events, self.replay = (f"ipc://{self._folder.name}/{name}" for name in ("events", "replay"))
        self.start(drop)

    def start(self, drop: int = 0) -> None:
        self.publisher = Publisher(self.events, self.replay, arrays=False, drop=drop)
        self._replaying = asyncio.create_task(self.publisher.replay())

    def stop(self) -> None:
        self._replaying.cancel()
        self.publisher.close()

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()

    async def publish(self, name: int) -> None:
        await self.publisher.publish([{"type": "BlockRemoved", "block_hashes": [name], "medium": "GPU"}])


@asynccontextmanager
async def following(wire: Wire, replay: bool = True) -> AsyncIterator[Heard]:
    heard = Heard()
    follower = KvFollower(wire.events, wire.replay if replay else "", heard.apply, heard.clear)
    task = asyncio.create_task(follower.run())
    try:
        yield heard
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        wire.close()


async def publish_until_heard(wire: Wire, heard: Heard, first: int) -> int:
    """A subscriber hears nothing until it has connected: publish more until it does; return the next number."""
    number, end = first, time.monotonic() + WAIT
    while not any(name >= first for name in heard.names):
        assert time.monotonic() < end
        await wire.publish(number)
        number += 1
        await asyncio.sleep(0.02)
    return number


async def test_events_published_before_or_lost_are_replayed() -> None:
    wire = Wire(drop=2)
    for name in range(3):
        await wire.publish(name)
    async with following(wire) as heard:
        after = await publish_until_heard(wire, heard, 3)
        for name in range(after, after + 6):
            await wire.publish(name)
        if len(wire.publisher.sent) % 2 == 0:  # the last one was lost
            await wire.publish(after + 6)
        last = len(wire.publisher.sent) - 1
        await heard.until(last)
        assert heard.names == list(range(last + 1))
        assert heard.clears == 0


@pytest.mark.usefixtures("impatient")
async def test_events_published_before_are_known_while_the_engine_is_quiet() -> None:
    wire = Wire()
    for name in range(3):
        await wire.publish(name)
    async with following(wire) as heard:
        await heard.until_known([0, 1, 2])
        assert heard.clears == 0


@pytest.mark.usefixtures("impatient")
async def test_events_that_an_engine_no_longer_has_are_missing_and_later_ones_are_known() -> None:
    wire = Wire()
    for name in range(4):
        await wire.publish(name)
    wire.publisher.first = 2
    async with following(wire) as heard:
        await heard.until_known([2, 3])


ALL_LOST, NONE_LOST = 1, 0


@pytest.mark.usefixtures("impatient")
@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from([ALL_LOST, 2, 3, NONE_LOST]), st.integers(0, 5)), min_size=1, max_size=3))
def test_after_a_while_all_that_the_engine_has_published_in_this_life_is_known(lives: list[tuple[int, int]]) -> None:
    """Whatever was lost on its way, in this life or an earlier one; nothing of an earlier one is believed."""

    async def follow() -> None:
        wire = Wire()
        async with following(wire) as heard:
            for life, (drop, count) in enumerate(lives):
                wire.stop()
                wire.start(drop)
                names = [10 * life + index for index in range(count)]
                for name in names:
                    await wire.publish(name)
                await heard.until_known(names)

    asyncio.run(follow())


async def test_without_a_replay_all_blocks_are_forgotten_after_a_gap() -> None:
    wire = Wire()
    await wire.publish(0)
    async with following(wire, replay=False) as heard:
        after = await publish_until_heard(wire, heard, 1)
        assert heard.clears == 1
        await wire.publish(after)
        await heard.until(after)
        assert heard.clears == 1
        assert heard.names == list(range(heard.names[0], after + 1))


async def test_a_publisher_that_starts_anew_has_forgotten_all_blocks() -> None:
    wire = Wire()
    async with following(wire) as heard:
        after = await publish_until_heard(wire, heard, 0)
        for name in range(after, 500):
            await wire.publish(name)
        await heard.until(499)
        wire.stop()
        wire.start()
        await publish_until_heard(wire, heard, 1000)
        assert heard.clears == 1


async def test_a_message_that_is_no_event_of_vllm_does_not_end_the_following() -> None:
    wire = Wire()
    async with following(wire) as heard:
        after = await publish_until_heard(wire, heard, 0)
        await wire.publisher.send(b"\xc1")
        await wire.publish(after)
        await heard.until(after)
        assert heard.clears >= 1


FORGED = [
    {"type": "BlockStored", "block_hashes": None, "token_ids": [1]},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": 5},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": ["x"]},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": [-1]},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": [2**32]},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": [0.5]},
    {"type": "BlockStored", "block_hashes": [[1]], "token_ids": [1]},
    {"type": "BlockStored", "block_hashes": [1], "token_ids": [1], "parent_block_hash": {"a": 1}},
    {"type": "BlockRemoved", "block_hashes": None},
    {"type": "BlockRemoved", "block_hashes": 5},
    {"type": "BlockRemoved", "block_hashes": [[]]},
    {"type": 7},
    {},
    [],
    [[]],
    None,
    5,
]


@pytest.mark.usefixtures("impatient")
async def test_after_forged_events_and_numbers_a_follower_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire()
    async with following(wire, replay=False) as heard:
        await publish_until_heard(wire, heard, 0)
        for forged in FORGED:
            await wire.publisher.publish([forged])
        for frames in ([b""], [b"", b"", b""], [b"", b"x" * 9, b"\x93"], [b"", b"\xff" * 4096, b"\x93"]):
            await wire.publisher.send_frames(frames)
        await publish_until_heard(wire, heard, 1000)
        assert heard.clears >= 1
    assert caplog.text.count("is not understood") == 1, "one line for one engine that is not understood"


async def test_an_exception_of_what_applies_events_clears_and_goes_on() -> None:
    wire, heard = Wire(), Heard()

    def apply(events: list[KvEvent]) -> None:
        heard.apply(events)
        if any(isinstance(event, RemovedBlocks) and 7 in event.names for event in events):
            raise AssertionError("a mistake")

    follower = KvFollower(wire.events, "", apply, heard.clear)
    task = asyncio.create_task(follower.run())
    await publish_until_heard(wire, heard, 0)
    await wire.publish(7)
    await publish_until_heard(wire, heard, 1000)
    assert heard.clears >= 1
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])
    wire.close()
