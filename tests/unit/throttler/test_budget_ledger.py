"""The ledger of budgets under virtual time: whatever is delayed, lost or dies, nobody uses more than the limit."""

import random
from dataclasses import dataclass, field
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttler.calendar_window import CalendarPeriod
from throttler.core.budget import SLICES, BudgetAccount, BudgetWindow, SlidingSpan
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budget_ledger import BudgetEntry, BudgetLedger, BudgetReply, BudgetRequest, entry_of

LIMIT = 1000
WINDOWS = (SlidingSpan("x", 64.0), CalendarPeriod("day", UTC))


@dataclass
class Process:
    """One that asks about one account, one message at a time; a message or its answer may be lost."""

    name: str
    ledger: BudgetLedger
    account: BudgetAccount
    accounts: BudgetAccounts = field(default_factory=lambda: BudgetAccounts(is_shared=True))
    asked: BudgetRequest | None = None
    answer: BudgetReply | None = None

    def books(self, amount: int, now: float) -> bool:
        if fits := self.accounts.fits(self.account, amount, now):
            self.accounts.book(self.account, amount, now)
        return fits

    def send(self, amount: int, now: float) -> None:
        if self.asked is None and self.accounts.may_grow(self.account, amount, now):
            self.asked = self.accounts.request(self.account, amount, now)

    def arrive(self) -> None:
        if self.asked is not None and self.answer is None:
            self.answer = self.ledger.ask(self.name, self.asked)

    def hear(self, now: float) -> None:
        if self.asked is not None and self.answer is not None:
            self.accounts.answered(self.asked, self.answer, now)
            self.asked = self.answer = None

    def exchange(self, amount: int, now: float) -> None:
        self.send(amount, now)
        self.arrive()
        self.hear(now)

    def lose(self) -> None:
        self.asked = self.answer = None

    def give_back(self, now: float) -> None:
        if self.asked is None and (report := self.accounts.give_all_back(self.account.key, now)) is not None:
            self.accounts.answered(report, self.ledger.ask(self.name, report), now)


@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: window.name)
@pytest.mark.parametrize("seed", range(40))
def test_no_window_ever_holds_more_than_the_limit(window: BudgetWindow, seed: int) -> None:
    draw, ledger, account = random.Random(seed), BudgetLedger(), BudgetAccount("a", LIMIT, window)
    now, booked, born = 0.0, list[tuple[float, int]](), 3
    processes = [Process(f"p{number}", ledger, account) for number in range(3)]
    for _ in range(600):
        now += draw.choice([0.0, 0.0, 0.1, 1.0, window.seconds / 20])
        process = draw.choice(processes)
        amount = draw.choice([1, 5, 40, 300])
        step = draw.choice(["book"] * 6 + ["exchange"] * 4 + ["send", "arrive", "hear", "lose", "return", "die"])
        match step:
            case "book":
                if process.books(amount, now):
                    booked.append((now, amount))
            case "exchange":
                process.exchange(amount, now)
            case "send":
                process.send(amount, now)
            case "arrive":
                process.arrive()
            case "hear":
                process.hear(now)
            case "lose":
                process.lose()
            case "return":
                process.give_back(now)
            case "die" if draw.random() < 0.1:
                processes[processes.index(process)] = Process(f"p{born}", ledger, account)
                born += 1
        process.accounts.check_invariants()
        if isinstance(window, SlidingSpan):
            used = sum(amount for at, amount in booked if at > now - window.seconds)
        else:
            used = sum(amount for at, amount in booked if window.slot(at) == window.slot(now))
        assert used <= LIMIT
    assert sum(amount for _, amount in booked) > LIMIT, "the limit is used"


def test_one_that_dies_loses_what_it_held_until_its_entry_leaves_the_window() -> None:
    ledger, window = BudgetLedger(), SlidingSpan("x", 64.0)
    account = BudgetAccount("a", LIMIT, window)
    mortal, heir = Process("m", ledger, account), Process("h", ledger, account)
    mortal.exchange(10, 0.0)
    assert mortal.books(10, 0.0)
    held = ledger.entries["a"]["m"].held
    assert held == LIMIT // 16
    heir.exchange(LIMIT - held, 1.0)
    assert heir.books(LIMIT - held, 1.0)
    heir.exchange(1, 5.0)
    assert not heir.books(1, 5.0)
    assert heir.accounts.used(account, 5.0) == LIMIT
    heir.exchange(held, 67.0)
    assert heir.books(held, 67.0)


def test_a_lease_is_recalled_only_where_others_hold_one() -> None:
    ledger, account = BudgetLedger(), BudgetAccount("a", LIMIT, SlidingSpan("x", 64.0))

    def ask(process: str, need: int) -> BudgetReply:
        return ledger.ask(process, BudgetRequest(account, 0, BudgetEntry(1, 0, 0, {}), need, 0))

    assert not ask("p", LIMIT + 1).recalled
    assert ask("q", 10).granted == LIMIT // 32
    assert ask("p", LIMIT + 1).recalled
    assert not ask("p", 10).recalled


ENTRIES = st.builds(
    BudgetEntry,
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 10**15),
    st.dictionaries(st.integers(0, 10**9), st.integers(0, 10**15), max_size=SLICES),
)


@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: BudgetEntry) -> None:
    assert entry_of(entry.text()) == entry


@given(st.permutations([BudgetEntry(version, 0, version, {0: version}) for version in range(1, 6)]))
def test_entries_that_are_written_back_in_any_order_are_the_newest(entries: list[BudgetEntry]) -> None:
    ledger = BudgetLedger()
    for entry in entries * 2:
        ledger.restore("a", "p", entry)
    assert ledger.entries == {"a": {"p": BudgetEntry(5, 0, 5, {0: 5})}}


def test_a_ledger_that_has_lost_its_data_is_written_again_by_one_who_has_read_it() -> None:
    ledger, account = BudgetLedger(), BudgetAccount("a", LIMIT, SlidingSpan("x", 64.0))
    first, second = Process("f", ledger, account), Process("s", ledger, account)
    for process, amount in ((first, 300), (second, 200)):
        process.exchange(amount, 0.0)
        assert process.books(amount, 0.0)
    before = {name: sum(entry.amounts(0).values()) for name, entry in ledger.entries["a"].items()}
    ledger.entries.clear()
    for report, others in second.accounts.everything(1.0):
        for name, text in others.items():
            ledger.restore("a", name, entry_of(text))
        second.accounts.answered(report, ledger.ask("s", report), 1.0)
    after = {name: sum(entry.amounts(0).values()) for name, entry in ledger.entries["a"].items()}
    assert after == before, "also what the first one used and holds, which is gone"
