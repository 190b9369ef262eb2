"""Random systems broken at random keep their promises; and the oracle would notice if they did not."""

import random

import pytest

from fairlead.outcomes import Outcome
from global_scheduler.core.dispatcher import Dispatcher
from lab.loops import OpenLoop
from lab.rehearsal.faults import Fault, FaultKind, inject
from lab.rehearsal.oracle import run_watched
from lab.rehearsal.rehearsal import rehearse
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.prompts import PromptSegments, output_run
from simulation.spec import ClusterSpec, WorkerSpec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))])
def test_seed(seed: int) -> None:
    rehearse(seed)


def test_gateways_do_not_ask_each_other_for_ever_where_the_ledger_is_far_away() -> None:
    assert max(call.ended_at - call.arrival for call in rehearse(5445).calls if call.ended_at is not None) < 60.0


def test_the_part_of_a_gateway_that_counts_alone_is_that_of_the_gateways_it_knew_then() -> None:
    rehearse(1157)  # it knew of one other gateway while it was alone, and of two when the limit was checked


def test_an_account_of_pages_has_its_place_by_the_weight_of_its_latest_request() -> None:
    rehearse(22029)


def test_a_request_pays_for_a_slice_of_another_one_and_never_enters() -> None:
    rehearse(4011)


def test_a_seed_whose_whole_state_is_checked_after_every_step() -> None:
    rehearse(1, every=1)


def system(workers: int = 2) -> SimulatedCluster:
    segments, rng = PromptSegments(), random.Random(3)
    calls = [
        SimulatedCall(
            number=n, client=f"c{n % 3}", prompt=segments.fresh(rng.randint(1, 200)), output_tokens=60, arrival=n * 0.02
        )
        for n in range(60)
    ]
    spec = WorkerSpec(kv_tokens=2048, max_prompt_tokens=512, max_output_tokens=64)
    return SimulatedCluster(ClusterSpec(workers=workers, worker=spec, stall_timeout=1.0), OpenLoop(calls))


def test_requests_that_gave_way_in_mid_stream_are_finished_by_another_worker() -> None:
    """The worker is lost while they wait for their places; the oracle sees each token and each charge once."""
    segments = PromptSegments()
    long = [("long", 0.001 * n, 100) for n in range(16)]
    short = [(f"short-{n % 4}", 0.2 + 0.005 * n, 4) for n in range(160)]
    calls = [
        SimulatedCall(number=n, client=client, prompt=segments.fresh(20), output_tokens=output, arrival=arrival)
        for n, (client, arrival, output) in enumerate(long + short)
    ]
    worker = WorkerSpec(max_running=4, kv_tokens=2048, quantum_tokens=16, preemption_quanta=1, max_output_tokens=100)
    cluster = SimulatedCluster(ClusterSpec(workers=2, worker=worker, stall_timeout=1.0), OpenLoop(calls))
    gave_way: list[str] = []

    def look() -> None:
        queue = cluster.workers["worker-0"].batcher.queue
        gave_way.extend(request.id for request in queue.waiting if request.output_tokens)

    cluster.clock.at(0.6, look)
    inject(cluster, [Fault(FaultKind.CRASH, "worker-0", at=0.6, seconds=3.0)])
    ended = {str(call.number): call for call in run_watched(cluster, every=1).calls}
    assert gave_way, "nobody had given way"
    assert all(ended[number].attempts == 2 for number in gave_way)
    assert all(call.outcome is Outcome.COMPLETED for call in ended.values())


@pytest.mark.parametrize("kind", [FaultKind.CRASH, FaultKind.STALL, FaultKind.GATEWAY_PARTITION])
def test_requests_of_a_lost_worker_are_finished_by_another_with_every_token_once(kind: FaultKind) -> None:
    cluster = system()
    inject(cluster, [Fault(kind, "worker-0", at=0.5, seconds=3.0)])
    calls = run_watched(cluster).calls
    assert all(call.outcome is Outcome.COMPLETED for call in calls)
    moved = [call for call in calls if call.attempts == 2]
    assert moved, "the fault struck nothing"
    assert any(call.first_token_at is not None and call.first_token_at < 0.5 for call in moved), "none was mid-stream"


def test_a_slow_worker_and_a_deaf_scheduler_lose_nothing() -> None:
    cluster = system()
    faults = [Fault(FaultKind.SLOW, "worker-0", 0.2, 2.0), Fault(FaultKind.SCHEDULER_PARTITION, "worker-1", 0.3, 2.0)]
    inject(cluster, faults)
    calls = run_watched(cluster).calls
    assert all(call.outcome is Outcome.COMPLETED and call.attempts == 1 for call in calls)


def test_without_workers_left_a_call_is_unavailable() -> None:
    cluster = system(workers=1)
    inject(cluster, [Fault(FaultKind.CRASH, "worker-0", at=1.1, seconds=30.0)])
    outcomes = {call.outcome for call in run_watched(cluster).calls}
    assert outcomes == {Outcome.COMPLETED, Outcome.UNAVAILABLE}


def test_who_cancels_is_served_no_further_and_who_is_late_is_dropped() -> None:
    calls = [
        SimulatedCall(number=1, client="a", prompt=[1] * 8, output_tokens=50, arrival=0.0),
        SimulatedCall(number=2, client="a", prompt=[2] * 8, output_tokens=50, arrival=0.0, patience=0.1),
        SimulatedCall(number=3, client="a", prompt=[3] * 8, output_tokens=50, arrival=0.0, deadline=0.2),
    ]
    run_watched(SimulatedCluster(ClusterSpec(workers=1, worker=WorkerSpec(kv_tokens=2048)), OpenLoop(calls)))
    assert [call.outcome for call in calls] == [Outcome.COMPLETED, Outcome.CANCELLED, Outcome.DEADLINE_EXCEEDED]
    completed, cancelled, late = (call.received for call in calls)
    assert 0 < cancelled < late < completed == 50


def test_the_oracle_sees_a_wrong_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.worker.output_run", lambda call, start, stop: output_run(call, start + 1, stop + 1))
    with pytest.raises(AssertionError, match="token"):
        run_watched(system())


def test_the_oracle_sees_a_lost_page(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = PrefixCache.finished

    def leaky(cache: PrefixCache, request: Request) -> None:
        request.pages = request.pages[:-1]
        finished(cache, request)

    monkeypatch.setattr(PrefixCache, "finished", leaky)
    with pytest.raises(AssertionError, match="references"):
        run_watched(system())


def test_the_oracle_sees_an_assignment_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatcher, "ended", lambda *_: None)
    with pytest.raises(AssertionError, match="never ended"):
        run_watched(system())
