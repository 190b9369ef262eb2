"""Balances at workers, against the paper's rounds written out (DLPM Alg. 2, lines 4 to 6, 16 and 22)."""

from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.core.policies.credit import Credit

QUANTUM = 10
SLOTS = 4
SLOT = st.integers(0, SLOTS - 1)
CHARGES = st.tuples(st.just("charge"), SLOT, st.integers(-25, 35))
FORGETTING = st.tuples(st.just("forget"), SLOT, st.none())
CANDIDATES = st.tuples(st.just("available"), st.integers(1, 2**SLOTS - 1), st.none())


class Rounds:
    """Balances that every round visits."""

    def __init__(self) -> None:
        self.balances = [QUANTUM] * SLOTS

    def charge(self, slot: int, micro: int) -> None:
        self.balances[slot] = min(QUANTUM, self.balances[slot] - micro)

    def forget(self, slot: int) -> None:
        self.balances[slot] = QUANTUM

    def available(self, candidates: int) -> int:
        while not (positive := self._positive() & candidates):
            self.balances = [balance + QUANTUM if balance <= 0 else balance for balance in self.balances]
        return positive

    def _positive(self) -> int:
        return sum(1 << slot for slot, balance in enumerate(self.balances) if balance > 0)


@given(st.lists(CHARGES | FORGETTING | CANDIDATES, max_size=30))
def test_a_balance_is_that_of_the_rounds(acts: list[tuple[str, int, int | None]]) -> None:
    credit, rounds = Credit(QUANTUM), Rounds()
    for act, target, micro in acts:
        of_act = () if micro is None else (micro,)
        assert getattr(credit, act)(target, *of_act) == getattr(rounds, act)(target, *of_act)
        credit.check_invariants()
        assert [credit.balance(slot) for slot in range(SLOTS)] == rounds.balances


def test_a_refund_ends_at_a_full_quantum() -> None:
    credit = Credit(QUANTUM)
    credit.charge(0, 3)
    credit.charge(0, -5)
    assert credit.balance(0) == QUANTUM
