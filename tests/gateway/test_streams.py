"""Open calls are bounded per client and in all: model first."""

import contextlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import ClientLimit, QueueFull
from gateway.streams import Streams

PER_CLIENT, TOTAL = 4, 9


@given(st.lists(st.tuples(st.sampled_from(["open", "close"]), st.sampled_from("abcd")), max_size=40))
def test_bounds_hold_and_closing_makes_room(steps: list[tuple[str, str]]) -> None:
    streams, model = Streams(per_client=PER_CLIENT, total=TOTAL), Counter[str]()
    for act, client in steps:
        if act == "close":
            if model[client]:
                streams.close(client)
                model[client] -= 1
        elif model[client] == PER_CLIENT:
            with pytest.raises(ClientLimit, match="max_streams_per_client=4"):
                streams.open(client)
        elif model[client] >= TOTAL - model.total():
            with pytest.raises(QueueFull, match="max_streams=9"):
                streams.open(client)
        else:
            streams.open(client)
            model[client] += 1
        streams.check_invariants()


def test_clients_that_take_all_they_get_leave_room_for_others() -> None:
    streams = Streams(per_client=1000, total=100)
    for flooder in "abc":
        with contextlib.suppress(QueueFull):
            while True:
                streams.open(flooder)
    assert streams.count < 100
    streams.open("quiet")
    streams.check_invariants()


def test_a_refused_call_takes_no_room() -> None:
    streams = Streams(per_client=1, total=2)
    streams.open("a")
    for _ in range(5):
        with contextlib.suppress(ClientLimit):
            streams.open("a")
    streams.open("b")
    streams.check_invariants()
