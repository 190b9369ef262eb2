"""Open calls are bounded per client and in all: model first."""

import contextlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ClientLimit, QueueFull
from gateway.core.client_limits import OF_FREE, OpenCallLimiter

PER_CLIENT, TOTAL, RESERVE = 4, 20, 2
CLIENTS = ("a", "b/u", "b/v", "b/w", "b/x", "c/u")
STEPS = st.lists(st.tuples(st.sampled_from(["open", "protected", "close"]), st.sampled_from(CLIENTS)), max_size=40)


def most(model: Counter[str], client: str, protected: bool) -> int:
    tenant = client.partition("/")[0]
    of_tenant = sum(count for other, count in model.items() if other.partition("/")[0] == tenant)
    free = TOTAL - model.total() - (0 if protected else RESERVE)
    return min(free, OF_FREE * free - of_tenant)


@given(STEPS)
def test_bounds_hold_and_closing_makes_room(steps: list[tuple[str, str]]) -> None:
    streams, model = OpenCallLimiter(per_client=PER_CLIENT, total=TOTAL), Counter[str]()
    for act, client in steps:
        protected = act == "protected"
        if act == "close":
            if model[client]:
                streams.close(client)
                model[client] -= 1
        elif model[client] >= PER_CLIENT and not protected:
            with pytest.raises(ClientLimit, match="max_streams_per_client=4"):
                streams.open(client, protected)
        elif model[client] >= most(model, client, protected):
            with pytest.raises(QueueFull, match="max_streams=20"):
                streams.open(client, protected)
        else:
            streams.open(client, protected)
            model[client] += 1
        streams.check_invariants()


def test_clients_that_take_all_they_get_leave_room_for_others() -> None:
    streams = OpenCallLimiter(per_client=1000, total=100)
    for flooder in "abc":
        with contextlib.suppress(QueueFull):
            while True:
                streams.open(flooder, protected=False)
    assert streams.count < 100
    streams.open("quiet", protected=False)
    streams.check_invariants()


def test_a_tenant_with_many_users_leaves_room_for_other_tenants_and_for_its_own_users() -> None:
    streams = OpenCallLimiter(per_client=1000, total=1000)
    for call in range(1000):
        with contextlib.suppress(QueueFull):
            streams.open(f"many/{call % 10}", protected=False)
    for client in ("many/quiet", "few/one"):
        for _ in range(10):
            streams.open(client, protected=False)
    for user in range(1000):
        with contextlib.suppress(QueueFull):
            streams.open(f"many/new-{user}", protected=False)
    for _ in range(20):
        streams.open("few/two", protected=False)
    streams.check_invariants()


def test_a_refused_call_takes_no_room() -> None:
    streams = OpenCallLimiter(per_client=1, total=2)
    streams.open("a", protected=False)
    for _ in range(5):
        with contextlib.suppress(ClientLimit):
            streams.open("a", protected=False)
    streams.open("b", protected=False)
    streams.check_invariants()


def test_the_last_eighth_of_the_places_is_for_protected_calls() -> None:
    streams = OpenCallLimiter(per_client=1, total=16)
    for tenant in range(14):
        streams.open(f"t{tenant}", protected=False)
    with pytest.raises(QueueFull, match="14 calls open"):
        streams.open("new", protected=False)
    for tenant in range(14, 16):
        streams.open(f"t{tenant}", protected=True)
    with pytest.raises(QueueFull, match="16 calls open"):
        streams.open("new", protected=True)
    streams.check_invariants()
