"""Measured systems where they differ from the baselines that are offered."""

from global_scheduler.core.outstanding_table import OutstandingTable
from global_scheduler.core.policies import Candidates
from global_scheduler.core.policies.base import RoutePolicyConfig, RouteRequest
from lab.reproduction.baselines import MOST_SORTED, PrebleFixed, SglangLpm
from serving.cost import WeightedTokens
from simulation.baselines import Preble
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
