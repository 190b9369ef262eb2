"""The gap that a running worker reports is the exact one over all intervals in which two clients were backlogged."""

from itertools import combinations

import pytest
from hypothesis import example, given, settings

from local_worker.core.accounts.service_ledger import SAMPLED, LiveGap
from tests.unit.local_worker.core.test_batcher import REQUESTS, TIERS, histories, tight

# A request of a is preempted, and a is hungry again.
PREEMPTED = [
    ("a", 0, 1, 4, 0),
    ("a", 0, 1, 1, 0),
    ("a", 0, 1, 1, 0),
    ("a", 1, 9, 20, 6),
    ("b", 0, 1, 16, 1),
    ("b", 1, 5, 20, 0),
    ("a", 0, 1, 1, 0),
    ("a", 0, 1, 1, 0),
    ("b", 0, 1, 16, 0),
]


def exact(rows: list[dict[str, tuple[int, bool]]]) -> int:
    """Every pair, every interval."""
    worst = 0
    for f, g in combinations("abc", 2):
        for start in range(len(rows)):
            for end in range(start, len(rows)):
                if not (rows[end][f][1] and rows[end][g][1]):
                    break
                gained = [rows[end][client][0] - rows[start][client][0] for client in (f, g)]
                worst = max(worst, abs(gained[0] - gained[1]))
    return worst


@pytest.mark.parametrize("name", ["dlpm", "lcf", "vtc"])
@settings(max_examples=40, deadline=None)
@given(arrivals=REQUESTS)
@example(PREEMPTED)
def test_the_gap_is_exact(name: str, arrivals: list[tuple[str, int, int, int, int]]) -> None:
    batcher = tight(name)
    rows: list[dict[str, tuple[int, bool]]] = []
    plan = batcher.plan

    def observed(now: float) -> object:
        made = plan(now)
        hungry = {account.name for account in batcher.queue.accounts if account.hungry}
        accounts = {account.name: account.weighted for account in batcher.queue.accounts}
        rows.append({c: (accounts.get(c, 0), c in hungry) for c in "abc"})
        return made

    batcher.plan = observed  # type: ignore[assignment, method-assign]
    histories(batcher, arrivals, TIERS)
    assert batcher.queue.ledger.worst_gap == exact(rows)


def test_a_bounded_number_of_clients_is_watched_and_others_take_their_place() -> None:
    gap, service = LiveGap[str](), {f"c{number}": 0 for number in range(SAMPLED + 1)}
    for client in service:
        gap.watch(client)
    gap.observe(service.get)
    service[f"c{SAMPLED}"] += 100
    gap.observe(service.get)
    assert gap.worst == 0, "the ninth is not watched"
    del service["c0"]
    gap.observe(service.get)
    gap.watch(f"c{SAMPLED}")
    gap.observe(service.get)
    service[f"c{SAMPLED}"] += 7
    gap.observe(service.get)
    assert gap.worst == 7


@pytest.mark.parametrize("pauses", ["f", "g"])
def test_an_interval_ends_when_one_of_two_clients_does_not_wait(pauses: str) -> None:
    gap = LiveGap[str]()

    def observe(**service: int) -> int:
        for client in service:
            gap.watch(client)
        gap.observe(service.get)
        return gap.worst

    assert observe(f=0, g=0, h=0) == 0
    assert observe(f=10, g=0, h=10) == 10
    service = {"f": 40, "g": 0, "h": 10}
    del service[pauses]
    observe(**{client: value for client, value in service.items() if client != "h"})
    before = gap.worst
    assert observe(f=80, g=0) == before
    assert observe(f=85, g=0) == before
