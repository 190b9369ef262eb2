"""Several gateways in front of one pool, and prompts that a worker must tokenize first."""

import random
from dataclasses import replace

import pytest

from fairlead.outcomes import Outcome
from gateway.core.hedge import HEDGE_SECONDS
from lab.loops import OpenLoop
from lab.rehearsal import encoding
from lab.rehearsal.encoding import EncodedCall
from lab.rehearsal.faults import Fault, FaultKind, cut_from_limits, inject
from lab.rehearsal.oracle import run_watched
from lab.rehearsal.sharing_cluster import SharingCluster, SharingSpec
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.prompts import PromptSegments
from simulation.spec import ClusterSpec, WorkerSpec
from tests.unit.lab.rehearsal.test_oracle import Patient
from throttler.core.pool_claims import EXCHANGE_SECONDS
from throttler.core.profiles import RateLimits

WORKER = WorkerSpec(kv_tokens=2048, max_prompt_tokens=512, max_output_tokens=64)


def calls(number: int, every: float, kind: type[SimulatedCall] = SimulatedCall) -> list[SimulatedCall]:
    segments = PromptSegments()
    return [
        kind(number=n, client="c", prompt=segments.fresh(50), output_tokens=4, arrival=n * every) for n in range(number)
    ]


def texts() -> SimulatedCluster:
    cluster = SimulatedCluster(ClusterSpec(workers=2, worker=WORKER), OpenLoop(calls(60, 0.02, EncodedCall)))
    inject(cluster, [Fault(FaultKind.STALL, "worker-0", at=0.0, seconds=3.0)])
    return cluster


def test_a_worker_that_has_stopped_holds_no_prompt_for_longer_than_the_patience() -> None:
    ended = run_watched(texts()).calls
    assert all(call.outcome is Outcome.COMPLETED for call in ended)
    at_the_other = [call for call in ended if call.worker == "worker-1"]
    waits = [call.admitted_at - call.arrival for call in at_the_other if call.admitted_at is not None]
    assert any(wait > HEDGE_SECONDS for wait in waits), "no prompt was at the worker that had stopped"
    assert min(waits) < HEDGE_SECONDS


def test_the_oracle_sees_a_prompt_that_waits_for_a_worker_that_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "Hedge", Patient)
    with pytest.raises(AssertionError, match="one worker had a prompt for"):
        run_watched(texts())


@pytest.mark.parametrize("cuts", [0, 5])
def test_gateways_share_a_limit_and_its_renewal(cuts: int) -> None:
    limits = RateLimits(user_per_minute=12, app_per_minute=600)
    spec = SharingSpec(gateways=3, throttle="rpm", limits=limits, window_seconds=4.0, worker=WORKER)
    cluster = SharingCluster(spec, OpenLoop(calls(400, 0.05)))
    cut_from_limits(cluster, random.Random(1), cuts, 10.0)
    admitted = [call for call in run_watched(cluster).calls if call.outcome is Outcome.COMPLETED]
    assert {call.gateway for call in admitted} == {0, 1, 2}
    assert 30 < len(admitted) <= 5 * 12 + cuts * 8, "of 12 calls in each of five windows"


def test_a_call_beyond_the_limit_of_open_calls_opens_no_interaction() -> None:
    """As at a gateway: a later call of that interaction is a first one, so it is throttled under overload."""
    segments = PromptSegments()

    def call(number: int, client: str, arrival: float, interaction: str = "", output: int = 4) -> SimulatedCall:
        return SimulatedCall(
            number=number,
            client=client,
            prompt=segments.fresh(50),
            output_tokens=output,
            arrival=arrival,
            interaction=interaction,
        )

    before, refused, later = call(0, "c", 0.0), call(1, "c", 0.01, "task"), call(2, "c", 12.0, "task")
    flood = [call(number, f"user-{number}", 1.0 + number / 100, output=64) for number in range(3, 63)]
    spec = ClusterSpec(
        worker=replace(WORKER, max_running=1),
        throttle="oit",
        limits=RateLimits(user_per_minute=2, app_per_minute=600),
        max_streams_per_client=1,
    )
    run_watched(SimulatedCluster(spec, OpenLoop([before, refused, *flood, later])))
    assert before.outcome is Outcome.COMPLETED
    assert refused.outcome is Outcome.REJECTED_CLIENT_LIMIT
    assert later.outcome is Outcome.THROTTLED_USER


def test_gateways_count_each_others_interactions_once_they_have_told_each_other() -> None:
    agents = calls(8, 0.1)
    for call in agents:
        call.interaction = f"agent-{call.number}"
    cluster = SharingCluster(SharingSpec(gateways=2, throttle="oit", worker=WORKER), OpenLoop(agents))
    held = list[list[int]]()

    def look() -> None:
        held.append([claims.of("").parts.held for claims in cluster.claims.gateways])

    for each in (EXCHANGE_SECONDS - 0.05, EXCHANGE_SECONDS + 0.05):
        cluster.clock.at(each, look)
    cluster.run()
    before, after = held
    assert sum(before) == after[0] == after[1] > max(before)
