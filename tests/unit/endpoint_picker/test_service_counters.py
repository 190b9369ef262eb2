"""The counters that pickers keep in common: against a list of all that happened, one thing after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from endpoint_picker.core.service_counters import LEAST, CounterChange, ServiceCounters

NAMES = ["ann", "bob", "carol"]
PICKERS = 3
PICKER = st.integers(0, PICKERS - 1)
Happened = tuple[str, int, int]  # account, floor, added


def after(counters: dict[str, int], happened: Iterable[Happened]) -> dict[str, int]:
    """What becomes of `counters`, also of those that are 0: an account that was told may fall to 0 again."""
    found = dict(counters)
    for account, floor, added in happened:
        found[account] = max(found.get(account, 0), floor) + added
    return found


@dataclass(eq=False)
class NaivePicker:
    """What a picker was told last of each account that it knows, and what it did since then.

    It may have sent the beginning of that.
    """

    counters: ServiceCounters = field(default_factory=ServiceCounters)
    told: dict[str, int] = field(default_factory=dict)
    done: list[Happened] = field(default_factory=list)
    sent: int = 0  # how many of `done`
    number: int = 1  # of the next batch, or of the one that was sent
    is_answered: bool = False  # once


class CountersMachine(RuleBasedStateMachine):
    """Pickers lift, charge, refund, exchange and restart; messages and data are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.pickers = [NaivePicker() for _ in range(PICKERS)]
        self.lose()

    def lose(self) -> None:
        """Forget what the pickers have in common."""
        self.common: dict[str, int] = {}
        self.executed: set[tuple[int, int]] = set()  # batches, by picker and number
        self.present: set[int] = set()  # pickers that know of it

    @rule(at=PICKER, account=st.sampled_from(NAMES), floor=st.integers(0, 20))
    def lifts(self, at: int, account: str, floor: int) -> None:
        self.pickers[at].counters.lift(account, floor)
        self.pickers[at].told.setdefault(account, 0)
        if self.expected(at).get(account, 0) < floor:
            self.pickers[at].done.append((account, floor, 0))

    @rule(at=PICKER, account=st.sampled_from(NAMES), micro=st.integers(-5, 10))
    def charges(self, at: int, account: str, micro: int) -> None:
        self.pickers[at].counters.charge(account, micro)
        self.pickers[at].told.setdefault(account, 0)
        self.pickers[at].done.append((account, LEAST, micro))

    @rule(at=PICKER, arrives=st.booleans(), is_answered=st.booleans())
    def exchanges(self, at: int, arrives: bool, is_answered: bool) -> None:
        picker = self.pickers[at]
        changes, number = picker.counters.begin(len(NAMES)), picker.number
        picker.sent = picker.sent or len(picker.done)
        if not changes:  # what comes before the answer is not of this batch
            picker.number += 1
        if not arrives:
            return
        if at not in self.present and picker.is_answered:  # it was there before the data was lost
            self.present.add(at)
            picker.counters.restore()
            picker.done = [(account, counter, 0) for account, counter in picker.told.items()] + picker.done
            picker.told, picker.sent = dict.fromkeys(picker.told, 0), 0
            return
        self.present.add(at)
        if (at, number) not in self.executed:
            self.executed.add((at, number))
            executed = after(self.common, picker.done[: picker.sent])
            assert after(self.common, [(account, *change) for account, change in changes.items()]) == executed
            self.common = executed
        if is_answered:
            picker.counters.end(self.common.items())
            picker.told, picker.done, picker.sent = picker.told | self.common, picker.done[picker.sent :], 0
            picker.number, picker.is_answered = number + 1, True

    @rule(at=PICKER)
    def restarts(self, at: int) -> None:
        """It comes back under another name."""
        self.executed = {each for each in self.executed if each[0] != at}
        self.pickers[at] = NaivePicker()

    @rule()
    def data_is_lost(self) -> None:
        self.lose()

    def expected(self, at: int) -> dict[str, int]:
        """The counters of a picker."""
        return after(self.pickers[at].told, self.pickers[at].done)

    @invariant()
    def counters_agree(self) -> None:
        for at, picker in enumerate(self.pickers):
            expected = self.expected(at)
            assert {name: picker.counters[name] for name in NAMES} == {name: expected.get(name, 0) for name in NAMES}
            picker.counters.check_invariants()


CountersMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestServiceCounters = CountersMachine.TestCase
INTERVAL = 4  # moments between two exchanges of a picker


@settings(max_examples=50)
@given(
    st.lists(st.tuples(PICKER, st.integers(0, 100)), min_size=1, max_size=40),
    st.lists(st.integers(0, INTERVAL - 1), min_size=PICKERS, max_size=PICKERS),
)
def test_a_picker_lacks_at_most_what_others_charged_in_two_intervals(
    charges: list[tuple[int, int]], phases: list[int]
) -> None:
    """At each moment one picker charges, and those exchange whose turn it is."""
    pickers = [ServiceCounters() for _ in range(PICKERS)]
    common = 0
    for now, (charging, charged) in enumerate(charges):
        pickers[charging].charge("ann", charged)
        for at, picker in enumerate(pickers):
            if now % INTERVAL == phases[at]:
                for change in picker.begin(1).values():
                    common = change.applied(common)
                picker.end([("ann", common)])
        total = sum(micro for _, micro in charges[: now + 1])
        recent = charges[max(0, now + 1 - 2 * INTERVAL) : now + 1]
        for at, picker in enumerate(pickers):
            assert 0 <= total - picker["ann"] <= sum(micro for by, micro in recent if by != at)


def test_a_lift_after_charges_counts_from_what_they_make() -> None:
    """Two pickers lift a client to the same floor: it is lifted once, and charged for both."""
    first, second = ServiceCounters(), ServiceCounters()
    for picker in (first, second):
        picker.charge("ann", 3)
        picker.lift("ann", 100)
        picker.charge("ann", 5)
    (change,) = first.begin(1).values()
    assert change == CounterChange(97, 8)
    assert change.applied(change.applied(0)) == 113, "the second finds 105, of which no lift is left, and adds 3 and 5"


def test_accounts_that_are_sent_are_so_many_at_once_and_what_was_forgotten_is_not_sent() -> None:
    counters = ServiceCounters(most_idle=2)
    for name in NAMES:
        counters.charge(name, 1)
        counters.rest(name)
    assert counters["ann"] == 0
    assert list(counters.begin(2)) == ["bob"], "ann was idle for the longest"
    assert list(counters.begin(2)) == ["bob"], "until it is confirmed"
    counters.end([("bob", 1), ("dora", 7)])
    assert [counters[name] for name in ("bob", "carol", "dora")] == [0, 1, 7]
    assert list(counters.begin(2)) == ["carol"]
    counters.check_invariants()


def test_a_counter_below_zero_is_restored_as_zero() -> None:
    counters = ServiceCounters()
    counters.charge("ann", -1)
    counters.begin(1)
    counters.end([("ann", -1)])
    counters.restore()
    assert counters["ann"] == 0
    counters.check_invariants()


def test_accounts_that_are_not_idle_and_whose_counters_changed_are_told_once() -> None:
    counters = ServiceCounters()
    for name in NAMES:
        counters.lift(name, 5)
    counters.rest("carol")
    assert counters.active == ["ann", "bob"]
    assert counters.take_changed() == ["ann", "bob"], "carol is idle"
    counters.end([("ann", 5), ("bob", 4), ("carol", 4)])
    assert counters.take_changed() == [], "what others have told is what it was: the lift comes on top of it"
    counters.end([("ann", 6)])
    for name in NAMES[1:]:
        counters.charge(name, -1)
    assert counters.take_changed() == ["ann", "bob"]
    assert counters.take_changed() == []
    counters.charge("ann", -1)
    counters.rest("ann")
    assert counters.take_changed() == [], "it became idle after it changed"
    counters.lift("carol", 5)
    assert counters.active == ["bob", "carol"]


def test_a_lift_that_raises_nothing_is_not_sent() -> None:
    counters = ServiceCounters()
    counters.charge("ann", 3)
    counters.begin(1)
    counters.end([("ann", 3)])
    counters.lift("ann", 3)
    assert counters.begin(1) == {}


def test_unconfirmed_changes_are_sent_again_with_all_counters_after_a_loss() -> None:
    counters = ServiceCounters()
    counters.charge("ann", 3)
    counters.begin(1)
    counters.charge("bob", 4)
    counters.restore()
    assert {name: change.applied(0) for name, change in counters.begin(2).items()} == {"ann": 3, "bob": 4}
