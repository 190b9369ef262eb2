"""The record of clients' service, against a list of everything that was observed."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.service_history import HISTORY_SECONDS, ClientSample, ServiceHistory

BOUND = 100.0
ONE = frozenset({"one"})


def waiting(service: float) -> ClientSample:
    return ClientSample(service, service, is_busy=True, is_backlogged=True)


def idle(service: float) -> ClientSample:
    return ClientSample(service, service, is_busy=False, is_backlogged=False)


# Of each client: what it is served until the next observation, and whether it asks (0: not, 1: runs, 2: waits).
STEPS = st.lists(st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(0, 9), st.integers(0, 2))), max_size=40)


@given(steps=STEPS)
def test_gains_and_positions_follow_what_workers_report(steps: list[dict[str, tuple[int, int]]]) -> None:
    history, sums = ServiceHistory(), dict.fromkeys("abc", 0.0)
    gained: list[dict[str, float]] = []
    floor = 0.0
    known: set[str] = set()
    for now, step in enumerate(steps):
        grown = {name: served for name, (served, _) in step.items()}
        for name, served in grown.items():
            sums[name] += served
        samples = {
            name: ClientSample(sums[name], sums[name] / 2, is_busy=asks > 0, is_backlogged=asks > 1)
            for name, (_, asks) in step.items()
        }
        history.observe(float(now), ONE, samples, BOUND)
        history.check_invariants()
        continues = now > 0
        gained.append({name: grown[name] if name in known and continues else 0.0 for name in samples})
        known = set(samples)
        least = history.points[-1].least
        assert (least is None) == (not any(sample.is_backlogged for sample in samples.values()))
        assert least is None or least >= floor, "the least served client that waits is never further behind"
        floor = floor if least is None else least
        recent = {name: sum(each.get(name, 0.0) for each in gained[-2:]) for name in samples}
        assert history.gains(2.0) == recent


def test_shares_are_of_the_window_alone() -> None:
    history = ServiceHistory()
    for second in range(11):
        ann = 10.0 * min(second, 5)  # served in the first five seconds only
        history.observe(float(second), ONE, {"ann": waiting(ann), "bob": waiting(4.0 * second)}, BOUND)
    assert history.gains(5.0) == {"ann": 0.0, "bob": 20.0}
    assert history.gains(60.0) == {"ann": 50.0, "bob": 40.0}


def test_a_client_that_begins_to_wait_is_owed_nothing_for_the_past() -> None:
    history = ServiceHistory()
    history.observe(0.0, ONE, {"ann": waiting(0.0), "bob": idle(0.0)}, BOUND)
    history.observe(1.0, ONE, {"ann": waiting(500.0), "bob": idle(0.0)}, BOUND)
    history.observe(2.0, ONE, {"ann": waiting(600.0), "bob": waiting(30.0)}, BOUND)
    assert history.points[-1].positions == {"ann": 600.0, "bob": 530.0}
    assert history.points[-1].least == 530.0
    assert history.points[-1].ahead == {"ann": 70.0, "bob": 0.0}
    assert history.points[-1].gained == {"ann": 100.0, "bob": 30.0}
    assert history.points[-1].bound == BOUND


def test_clients_that_begin_together_begin_at_one_position() -> None:
    history = ServiceHistory()
    runs = ClientSample(0.0, 0.0, is_busy=True, is_backlogged=False)
    history.observe(0.0, ONE, {"ann": runs, "bob": idle(0.0)}, BOUND)
    history.observe(1.0, ONE, {"ann": runs._replace(service=300.0, weighted=300.0), "bob": idle(0.0)}, BOUND)
    history.observe(2.0, ONE, {"ann": waiting(300.0), "bob": waiting(0.0)}, BOUND)
    assert history.points[-1].positions == {"ann": 300.0, "bob": 300.0}


def test_clients_are_compared_with_their_siblings_alone() -> None:
    history = ServiceHistory()

    def of(tenant: str, service: float) -> ClientSample:
        return waiting(service)._replace(siblings=tenant)

    history.observe(0.0, ONE, {"s/a": of("s", 0.0), "s/b": of("s", 0.0), "t/a": of("t", 0.0)}, BOUND)
    history.observe(1.0, ONE, {"s/a": of("s", 10.0), "s/b": of("s", 30.0), "t/a": of("t", 900.0)}, BOUND)
    assert history.points[-1].ahead == {"s/a": 0.0, "s/b": 20.0, "t/a": 0.0}
    assert history.points[-1].least is None, "there is no least client of all"
    history.check_invariants()
    late = {"s/c": of("s", 0.0), "t/b": of("t", 0.0)}
    history.observe(2.0, ONE, {"s/a": of("s", 10.0), "t/a": of("t", 900.0), **late}, BOUND)
    assert history.points[-1].positions == {"s/a": 10.0, "t/a": 900.0, "s/c": 10.0, "t/b": 900.0}


def test_the_sums_of_other_workers_continue_nothing() -> None:
    history = ServiceHistory()
    history.observe(0.0, frozenset({"one", "two"}), {"ann": waiting(50.0)}, BOUND)
    history.observe(1.0, frozenset({"one", "two"}), {"ann": waiting(80.0)}, BOUND)
    history.observe(2.0, ONE, {"ann": waiting(20.0)}, BOUND)  # a worker has left, and its sums with it
    history.observe(3.0, ONE, {"ann": waiting(25.0)}, BOUND)
    history.observe(4.0, frozenset({"one", "three"}), {"ann": waiting(95.0)}, BOUND)  # one that served ann before
    assert history.gains(60.0) == {"ann": 35.0}


def test_the_past_is_forgotten() -> None:
    history = ServiceHistory()
    for second in range(0, int(2 * HISTORY_SECONDS), 60):
        history.observe(float(second), ONE, {}, None)
        history.check_invariants()
    assert history.points[0].at == 2 * HISTORY_SECONDS - 60 - HISTORY_SECONDS


def test_a_client_begins_at_the_least_position_when_it_begins_to_run_or_to_wait_but_not_while_it_runs() -> None:
    history = ServiceHistory()

    def runs(service: float) -> ClientSample:
        return waiting(service)._replace(is_backlogged=False)

    for now in range(3):
        samples = {"ann": waiting(100.0 * now), "bob": runs(10.0 * now), "cat": idle(0.0)}
        history.observe(float(now), ONE, samples, BOUND)
    assert history.points[-1].positions == {"ann": 200.0, "bob": 20.0}
    history.observe(3.0, ONE, {"ann": waiting(300.0), "bob": waiting(20.0), "cat": runs(0.0)}, BOUND)
    assert history.points[-1].positions == {"ann": 300.0, "bob": 200.0, "cat": 200.0}


def test_sums_that_begin_anew_take_nothing_away() -> None:
    history = ServiceHistory()
    history.observe(0.0, ONE, {"ann": waiting(0.0)}, BOUND)
    history.observe(1.0, ONE, {"ann": waiting(50.0)}, BOUND)
    history.observe(2.0, ONE, {"ann": waiting(0.0)}, BOUND)  # the worker forgot her while she was idle
    assert history.points[-1].positions == {"ann": 50.0}
    assert history.gains(1.0) == {"ann": 0.0}
    history.check_invariants()
