"""A guaranteed share that its owner left to others comes back within the bound, in the middle of a flood."""

from collections.abc import Iterator

import pytest

from lab.bench.fair_slices.isolation import served, worker_spec
from lab.loops import ClosedLoop
from serving.cost import MICRO, WEIGHT_ONE
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.run import Scenario, SimulationRun
from simulation.spec import ClusterSpec

SHARE = 3  # of the owner, times that of the flood
RETURNS, END = 20, 60  # seconds
OWNER, FLOOD = "owner", "flood"


class Returning:
    """A flood from the beginning, and the owner of most of the worker, which asks for nothing until it returns."""

    def make(self) -> ClosedLoop:
        self.loop, self.segments, self.made = ClosedLoop(), PromptSegments(), 0
        for client, open_calls, start in ((FLOOD, 200, 0.0), (OWNER, 200, float(RETURNS))):
            for number in range(open_calls):
                self.loop.start(self._call(client, start + 0.001 * number), self._next)
        return self.loop

    def _next(self, ended: SimulatedCall) -> Iterator[SimulatedCall]:
        now = ended.arrival + ended.latency
        if now < END:
            yield self.loop.follow(self._call(ended.client, now), self._next)

    def _call(self, client: str, at: float) -> SimulatedCall:
        self.made += 1
        return SimulatedCall(
            number=self.made,
            client=client,
            prompt=self.segments.fresh(1500 if client == FLOOD else 300),
            output_tokens=400 if client == FLOOD else 60,
            arrival=at,
            weight=SHARE * WEIGHT_ONE if client == OWNER else WEIGHT_ONE,
        )


@pytest.fixture(scope="module")
def run() -> SimulationRun:
    return Scenario(ClusterSpec(worker=worker_spec("dlpm", 64)), Returning()).run()


def total(run: SimulationRun, client: str, second: int) -> float:
    return served(run, second, client) * second


def test_the_flood_has_the_whole_worker_while_the_owner_is_away(run: SimulationRun) -> None:
    assert total(run, OWNER, RETURNS - 1) == 0
    before = (total(run, FLOOD, RETURNS - 1) - total(run, FLOOD, 5)) / (RETURNS - 6)
    after = (total(run, FLOOD, END - 1) - total(run, FLOOD, END - 11)) / 10
    assert before > 2 * after, "the owner's share is lent while it is away"


def test_the_owner_has_its_share_again_within_the_bound(run: SimulationRun) -> None:
    assert run.bound is not None
    bound, rate = run.bound / MICRO, served(run, END) / (1 + SHARE)  # over weight; the flood's fair rate
    lags = []
    for second in range(RETURNS + 1, END):
        flood = total(run, FLOOD, second) - total(run, FLOOD, RETURNS)
        owner = (total(run, OWNER, second) - total(run, OWNER, RETURNS)) / SHARE
        lags.append(flood - owner)
        assert flood - owner <= bound, f"{second - RETURNS} s after its return the owner is {flood - owner:.0f} behind"
    print(f"bound {bound:.0f} or {bound / rate:.1f} s, at most {max(lags):.0f} or {max(lags) / rate:.2f} s behind")
    last = total(run, OWNER, END - 1) - total(run, OWNER, END - 11)
    assert last == pytest.approx(SHARE * (total(run, FLOOD, END - 1) - total(run, FLOOD, END - 11)), rel=0.1)
