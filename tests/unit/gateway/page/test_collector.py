"""One snapshot for all viewers: collected while somebody looks, and never at the cost of the gateway."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.page.collector import MOST_BEHIND, MOST_VIEWERS, Collector, NoPlace, Viewer
from tests.unit.gateway.merge_patches import apply


class Cluster:
    """A state that counts how often it was looked at; it cannot be looked at while `is_broken`."""

    def __init__(self) -> None:
        self.looks = 0
        self.has_rested = asyncio.Event()
        self.is_broken = False

    async def look(self) -> dict[str, Any]:
        self.looks += 1
        if self.is_broken:
            self.is_broken = False
            raise ValueError("a defect")
        return {"looks": self.looks, "same": "always"}

    def past(self) -> dict[str, Any]:
        return {"until": self.looks}

    async def rest(self) -> None:
        self.has_rested.set()


@contextlib.asynccontextmanager
async def collecting(cluster: Cluster) -> AsyncIterator[Collector]:
    collector = Collector(cluster.look, cluster.past, period=0.001, linger=0.01)
    task = asyncio.create_task(collector.run(cluster.rest))
    yield collector
    task.cancel()
    await asyncio.wait([task])


def parsed(event: bytes) -> tuple[str, dict[str, Any]]:
    name, data = event.decode().rstrip("\n").split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


async def test_a_viewer_is_sent_the_state_and_then_what_changed() -> None:
    cluster = Cluster()
    async with collecting(cluster) as collector:
        with collector.viewing() as viewer:
            events = viewer.events()
            name, state = parsed(await anext(events))
            assert (name, state["same"], state.pop("past")) == ("state", "always", {"until": 1})
            for _ in range(3):
                name, patch = parsed(await anext(events))
                assert (name, set(patch)) == ("patch", {"looks"})
                state = apply(state, patch)
            with collector.viewing() as late:
                name, whole = parsed(await anext(late.events()))
                assert (name, whole["past"]) == ("state", {"until": whole["looks"]})


async def test_nothing_is_collected_while_nobody_looks() -> None:
    cluster = Cluster()
    async with collecting(cluster) as collector:
        with collector.viewing() as viewer:
            await anext(viewer.events())
        await cluster.has_rested.wait()
        looks = cluster.looks
        await asyncio.sleep(0)
        assert cluster.looks == looks
        with collector.viewing() as viewer:
            assert parsed(await anext(viewer.events()))[0] == "state"


async def test_a_defect_ends_neither_the_collector_nor_the_viewers(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    async with collecting(cluster) as collector:
        with collector.viewing() as viewer:
            events = viewer.events()
            await anext(events)
            cluster.is_broken = True
            while not caplog.records:
                await anext(events)
            await anext(events)
    assert "the page cannot be collected" in caplog.text


async def test_a_viewer_that_takes_nothing_is_dropped() -> None:
    viewer = Viewer()
    assert [viewer.send(b"%d" % number) for number in range(MOST_BEHIND + 2)] == [True] * MOST_BEHIND + [False] * 2
    assert [event async for event in viewer.events()] == [b"%d" % number for number in range(MOST_BEHIND)]


async def test_the_number_of_viewers_has_a_limit() -> None:
    collector = Collector(Cluster().look, Cluster().past)

    @contextlib.contextmanager
    def many() -> Iterator[None]:
        with contextlib.ExitStack() as viewers:
            for _ in range(MOST_VIEWERS):
                viewers.enter_context(collector.viewing())
            yield

    with many(), pytest.raises(NoPlace, match=f"at most {MOST_VIEWERS}"), collector.viewing():
        pass
    with collector.viewing():
        pass


async def test_all_viewers_end_when_the_gateway_stops() -> None:
    collector = Collector(Cluster().look, Cluster().past)
    with collector.viewing() as viewer:
        collector.close()
        assert [event async for event in viewer.events()] == []
