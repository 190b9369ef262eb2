"""The papers' theorems other than the gap between backlogged clients, which test_batcher.py checks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.cost import MICRO
from serving.sampling_params import SamplingParams
from simulation.spec import LOCAL_POLICIES
from tests.unit.local_worker.core.test_batcher import PAGES, REQUESTS, histories, serve_step, tight
from tests.unit.local_worker.engine.driving import BLOCK, WHOLE_DLPM, WHOLE_VTC, make_request

pytestmark = pytest.mark.slow

CAPACITY = PAGES * BLOCK  # M


@pytest.mark.parametrize("name", ["vtc", WHOLE_VTC])
@settings(max_examples=80, deadline=None)
@given(arrivals=REQUESTS)
def test_counters_of_backlogged_clients_stay_within_u(
    name: str, arrivals: list[tuple[str, int, int, int, int]]
) -> None:
    """VTC Lemma 4.3, at every step."""
    batcher = tight(name)
    bound, plan, spreads = batcher.queue.policy.bound_micro, batcher.plan, [0]
    assert bound is not None

    def observed(now: float) -> object:
        made = plan(now)
        counters = [batcher.queue.policy.balance(request.client) for request in batcher.queue.waiting]
        spreads.append(max(counters, default=0) - min(counters, default=0))
        return made

    batcher.plan = observed  # type: ignore[assignment, method-assign]
    histories(batcher, arrivals)
    assert max(spreads) <= bound // 2


@pytest.mark.parametrize("name", LOCAL_POLICIES)
def test_no_work_conserving_policy_does_better_than_half_of_vtcs_bound(name: str) -> None:
    """VTC Theorem 4.8, its construction: an output as long as the memory, and two clients that wait meanwhile."""
    batcher = tight(name)
    whole = SamplingParams(max_tokens=CAPACITY - 1, ignore_eos=True)
    for arrival in (0, 3, 1):  # clients c0, c0, c1
        batcher.queue.submit(make_request([arrival], arrival=arrival, sampling=whole), 0.0)
    before = {"c0": 0, "c1": 0} | serve_step(batcher)
    leader = max(before, key=lambda client: before[client])
    service = dict(before)
    while len(batcher.queue.waiting) == 2:
        last = dict(service)
        service |= serve_step(batcher)
    other = "c1" if leader == "c0" else "c0"
    assert last[leader] - last[other] >= 2 * (CAPACITY - 2) * MICRO


FLOODS = st.lists(
    st.tuples(st.sampled_from("bc"), st.integers(0, 3), st.integers(1, 14), st.integers(1, 20), st.integers(0, 40)),
    min_size=20,
    max_size=40,
)


@pytest.mark.parametrize("name", ["dlpm", WHOLE_DLPM, "drr", "vtc", WHOLE_VTC])
@settings(max_examples=40, deadline=None)
@given(floods=FLOODS, length=st.integers(1, 14), at=st.integers(0, 40))
def test_a_newcomer_is_dispatched_after_a_bounded_amount_of_service_to_others(
    name: str, floods: list[tuple[str, int, int, int, int]], length: int, at: int
) -> None:
    """VTC Theorem 4.11 and DLPM A.2, with service for time: their `a` is the capacity. n = 3 clients."""
    batcher = tight(name)
    rows = histories(batcher, [*floods, ("a", 9, length, 1, at)])
    waiting = [row for row in rows if row["a"][1]]
    bound = batcher.queue.policy.bound_micro
    assert bound is not None
    if waiting:
        served = sum(waiting[-1][client][0] - waiting[0][client][0] for client in "bc")
        assert served <= 2 * bound


def test_a_client_that_asks_for_less_than_its_share_has_everything_dispatched() -> None:
    """VTC Theorem 4.13: for every t, what f asks for in [t, t2) is less than T(t, t2) / n - 5 U."""
    batcher = tight("vtc")
    floods = [(client, 1, 10, 10, 0) for client in "bc" for _ in range(250)]
    asks = range(0, 480, 24)
    rows = histories(batcher, [*floods, *(("a", 2, 6, 5, step) for step in asks)])
    bound = batcher.queue.policy.bound_micro
    assert bound is not None
    most = (2 * 4 + 6 + 2 * 5) * MICRO  # what one of its requests costs
    end = next(step for step, row in enumerate(rows) if not (row["b"][1] and row["c"][1]))
    total = [sum(row[client][0] for client in "abc") for row in rows]
    for start in asks:
        share = (total[end] - total[start]) // 3 - 5 * bound // 2
        assert most * sum(1 for at in asks if at >= start) < share, "the theorem's premise"
    assert not rows[end]["a"][1], "everything that it asked for is dispatched"
