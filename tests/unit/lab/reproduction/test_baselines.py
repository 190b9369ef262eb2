"""Measured systems where they differ from the baselines that are offered."""

from global_scheduler.core.fleet import OutstandingTable
from global_scheduler.core.policies import Candidates
from global_scheduler.core.policies.base import RoutePolicyConfig, RouteRequest
from lab.reproduction.baselines import MOST_SORTED, PrebleFixed, SglangLpm
from lab.reproduction.programs import Programs, Reading, Sender
from lab.reproduction.systems import least_recently_used
from serving.cost import WeightedTokens
from simulation.baselines import Preble
from simulation.run import Scenario
from simulation.spec import ClusterSpec, WorkerSpec
from tests.unit.local_worker.core.test_policies import CONFIG, Driver

CACHED = 16


def order(waiting: int) -> list[int]:
    """Arrival numbers as they are admitted; only the last one to arrive has a cached prefix."""
    driver = Driver(SglangLpm(CONFIG))
    for _ in range(waiting - 1):
        driver.arrive("a", 0, 8)
    driver.arrive("a", CACHED, 8)
    driver.room.left = 10_000
    return [request.arrival for request in driver.policy.select(driver.room)]


def test_sglang_sorts_by_match_until_too_many_wait() -> None:
    most = MOST_SORTED
    assert order(most) == [most - 1, *range(most - 1)]
    assert order(most + 1) == list(range(most + 1))


def test_a_match_is_never_left_however_long_its_queue() -> None:
    queues = OutstandingTable()
    for slot in range(2):
        queues.join(slot, 1)
    queues.add(0, 100)
    request = RouteRequest("r", 1, "client", "model", b"", 100, 1000)
    config = RoutePolicyConfig(1, WeightedTokens())
    matched = Candidates([(0b11, 0), (0b01, 51)], block_tokens=1, waiting=0b01, queues=queues)
    assert PrebleFixed(config).select(request, matched) == 0
    assert Preble(config).select(request, matched) == 1
    half = Candidates([(0b11, 0), (0b01, 50)], block_tokens=1, waiting=0b01, queues=queues)
    assert PrebleFixed(config).select(request, half) == 1


def test_a_cache_as_printed_lets_a_flood_evict_what_another_client_needs() -> None:
    quiet, flood = Reading(documents=1, document_tokens=640), Reading(documents=10_000, document_tokens=640)
    workload = Programs((Sender("quiet", quiet, 0.1), Sender("flood", flood, 4.0)), seconds=100.0)
    fair = WorkerSpec(kv_tokens=6_400)
    found = {}
    for worker in (fair, least_recently_used(fair)):
        run = Scenario(ClusterSpec(worker=worker), workload).run()
        found[worker] = [call.cached_tokens for call in run.of("quiet")][1:]
    assert set(found[fair]) == {640}, "the document stays within the client's part"
    assert 0 in found[least_recently_used(fair)]
