"""When a pool counts as overloaded."""

import pytest

from global_scheduler.core.fleet import Member, WorkerLoad
from global_scheduler.core.overload import FRESH_SECONDS, Overload
from tests.unit.global_scheduler.driving import dispatcher, identity

# Of a worker with 1,000 tokens of KV cache and 10 places: each enters the overload by one measure alone, just stays in
# it at four fifths of that measure's limit, and leaves it below.
ENTERS_STAYS_LEAVES = {
    "tokens": (
        WorkerLoad(waiting=1, kv_tokens_used=899),
        WorkerLoad(waiting=1, kv_tokens_used=900),
        WorkerLoad(kv_tokens_used=800),
        WorkerLoad(kv_tokens_used=799),
    ),
    "places": (
        WorkerLoad(waiting=1, running=9),
        WorkerLoad(waiting=1, running=10),
        WorkerLoad(running=8),
        WorkerLoad(running=7),
    ),
    "seconds": (
        WorkerLoad(queue_seconds=0.99),
        WorkerLoad(queue_seconds=1.0),
        WorkerLoad(queue_seconds=0.8),
        WorkerLoad(queue_seconds=0.79),
    ),
}


@pytest.mark.parametrize("loads", ENTERS_STAYS_LEAVES.values(), ids=ENTERS_STAYS_LEAVES)
def test_overload_begins_and_ends_with_hysteresis(loads: tuple[WorkerLoad, ...]) -> None:
    overload, member = Overload(), Member(0, identity("a"), reported_at=0)
    decisions = []
    for load in (*loads, loads[2]):
        member.load = load
        decisions.append(overload.update([member], now=0))
    assert decisions == [False, True, True, False, False]


def test_a_full_worker_for_which_nobody_waits_is_not_overloaded() -> None:
    member = Member(0, identity("a"), reported_at=0)
    member.load = WorkerLoad(kv_tokens_used=1000, running=10)
    assert not Overload().update([member], now=0)


@pytest.mark.parametrize(("workers", "decide"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_the_worst_tenth_decides_rounded_up(workers: int, decide: int) -> None:
    members = [Member(slot, identity(str(slot)), reported_at=0) for slot in range(workers)]
    for pressed, member in enumerate(members, start=1):
        member.load = WorkerLoad(queue_seconds=9)
        assert Overload().update(members, now=0) == (pressed >= decide), f"{pressed} of {workers}"


def test_a_worker_whose_report_is_old_is_unknown() -> None:
    member = Member(0, identity("a"), reported_at=0)
    member.load = WorkerLoad(queue_seconds=9)
    assert Overload().update([member], now=FRESH_SECONDS)
    assert not Overload().update([member], now=FRESH_SECONDS + 0.1)


def test_the_age_of_a_report_counts_not_its_time() -> None:
    member = Member(0, identity("a"), reported_at=1000)
    member.load = WorkerLoad(queue_seconds=9)
    assert Overload().update([member], now=1000.5)


def test_a_worker_that_drains_with_a_queue_overloads_nobody() -> None:
    deciding, members = dispatcher(workers=tuple("abcdefghij"))
    leaving = members[0]
    deciding.reported(leaving, WorkerLoad(queue_seconds=9), now=0)
    assert deciding.overloaded(now=0) == {"m": True}
    deciding.reported(leaving, WorkerLoad(queue_seconds=9, draining=True), now=0)
    assert deciding.overloaded(now=0) == {"m": False}


def test_a_pool_that_drains_as_a_whole_is_not_overloaded() -> None:
    deciding, (member,) = dispatcher(workers=("a",))
    deciding.reported(member, WorkerLoad(queue_seconds=9, draining=True), now=0)
    assert deciding.overloaded(now=0) == {"m": False}
