"""A hedge asks at most two peers at a time, and takes one answer."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.hedge import Hedge

PATIENCE = 2.0
EVENTS = st.lists(st.sampled_from(["wait", "fail", "answer"]), max_size=12)


class NaiveHedge:
    """The rule, looked up in a list of all that has happened."""

    def __init__(self, peers: int, now: float) -> None:
        self.left = list(range(peers))
        self.working: list[int] = []
        self.answers = 0
        self.since = now

    def ask(self, now: float) -> int | None:
        if self.answers or not self.left or len(self.working) == 2:
            return None
        self.since = now
        self.working.append(self.left.pop(0))
        return self.working[-1]

    def waits_until(self) -> float | None:
        is_due = len(self.working) == 1 and self.left and not self.answers
        return self.since + PATIENCE if is_due else None


@given(peers=st.integers(0, 4), history=EVENTS)
def test_a_hedge_asks_the_next_peer_after_a_failure_or_its_patience(peers: int, history: list[str]) -> None:
    now, hedge, model = 0.0, Hedge(peers, PATIENCE), NaiveHedge(peers, 0.0)
    assert hedge.ask(now) == model.ask(now)
    for event in history:
        now += 1.0
        if event == "answer" and model.working:
            model.working.pop(0)
            model.answers += 1
            assert hedge.answered() == (model.answers == 1)
        elif event == "fail" and model.working and not model.answers:
            model.working.pop(0)
            assert hedge.failed(now) == model.ask(now)
        else:
            due = model.waits_until()
            assert hedge.tick(now) == (model.ask(now) if due is not None and now >= due else None)
        hedge.check_invariants()
        assert hedge.next_deadline() == model.waits_until()
        assert hedge.exhausted == (not model.left and not model.working and not model.answers)


def test_a_peer_that_fails_after_the_answer_is_not_replaced() -> None:
    hedge = Hedge(3, PATIENCE)
    assert (hedge.ask(0.0), hedge.tick(PATIENCE)) == (0, 1)
    assert hedge.answered()
    assert hedge.failed(3.0) is None
    assert hedge.next_deadline() is None
