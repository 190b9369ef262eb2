"""When a pool counts as overloaded."""

import pytest

from global_scheduler.core.fleet import Load, Member
from global_scheduler.core.overload import Overload
from tests.global_scheduler.driving import dispatcher, identity

PRESSED = [
    Load(waiting=1, kv_tokens_used=900),
    Load(waiting=1, running=10),
    Load(queue_seconds=1.0),
]


@pytest.mark.parametrize("load", PRESSED)
def test_overload_begins_and_ends_with_hysteresis(load: Load) -> None:
    overload, member = Overload(), Member(0, identity("a"), reported_at=0)
    member.load = Load(kv_tokens_used=1000, running=9)
    assert not overload.update([member], now=0), "nobody waits"
    member.load = load
    assert overload.update([member], now=0)
    member.load = Load(kv_tokens_used=850)
    assert overload.update([member], now=0), "above the lower threshold"
    member.load = Load(kv_tokens_used=799, running=7, queue_seconds=0.7)
    assert not overload.update([member], now=0)


def test_the_worst_tenth_decides_and_stale_is_unknown() -> None:
    members = [Member(slot, identity(str(slot)), reported_at=0) for slot in range(20)]
    members[0].load = Load(queue_seconds=9)
    assert not Overload().update(members, now=0)
    members[1].load = Load(queue_seconds=9)
    assert Overload().update(members, now=1.0)
    assert not Overload().update(members, now=1.1)


def test_a_worker_that_drains_with_a_queue_overloads_nobody() -> None:
    deciding, members = dispatcher(workers=tuple("abcdefghij"))
    leaving = members[0]
    deciding.reported(leaving, Load(queue_seconds=9), now=0)
    assert deciding.overloaded(now=0) == {"m": True}
    deciding.reported(leaving, Load(queue_seconds=9, draining=True), now=0)
    assert deciding.overloaded(now=0) == {"m": False}


def test_a_pool_that_drains_as_a_whole_is_not_overloaded() -> None:
    deciding, (member,) = dispatcher(workers=("a",))
    deciding.reported(member, Load(queue_seconds=9, draining=True), now=0)
    assert deciding.overloaded(now=0) == {"m": False}
