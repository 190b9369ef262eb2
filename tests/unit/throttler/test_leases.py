"""The whole protocol under virtual time: whatever happens in whatever order, no more than the limit gets through."""

import random
from dataclasses import dataclass, field

import pytest

from throttler.core.leased_quota import FORGETTING, MOST_PATIENCE, RECALL_AGAIN, LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.windows import FixedWindow, QuotaAccount, SlidingWindow

SECONDS = 64.0
LIMIT = 20
ACCOUNT = QuotaAccount("user:u", LIMIT)


@dataclass
class Gateway:
    """A gateway whose asks are under way for a while; like the store, one per account at a time."""

    name: str
    ledger: QuotaLedger
    leases: LeasedQuota = field(default_factory=lambda: LeasedQuota(SECONDS))
    asked: tuple[LeaseRequest, float] | None = None
    answer: LeaseReply | None = None

    def __post_init__(self) -> None:
        self.window: SlidingWindow | FixedWindow = SlidingWindow(SECONDS, self.leases)

    def arrives(self, now: float) -> bool:
        """Under overload: admitted or not, without waiting for more."""
        return not self.window.arrived(ACCOUNT, now)

    def send(self, more: int, now: float) -> None:
        if self.asked is None:
            used = self.window.used(ACCOUNT.key, now)
            if not more or self.leases.may_grow(ACCOUNT, used, now):
                self.asked = self.leases.ask(ACCOUNT, used, more, now), now

    def reach_ledger(self, gateways: list["Gateway"], now: float) -> None:
        if self.asked is not None and self.answer is None:
            self.answer = self.ledger.ask(self.name, self.asked[0], len(gateways), now)
            for other in gateways:
                if self.answer.recalled and other is not self:
                    other.recall(now)

    def recall(self, now: float) -> None:
        if self.asked is None:
            self.leases.recalled(ACCOUNT, self.window.used(ACCOUNT.key, now), now)

    def hear(self, now: float) -> None:
        if self.asked is not None and self.answer is not None:
            self.leases.answered(self.asked[0], self.answer, self.asked[1], now)
            self.asked = self.answer = None


class Traffic:
    """Random arrivals in phases, at changing gateways; one of them may tell the ledger nothing for a while."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._ledger = QuotaLedger(SECONDS)
        self._gateways = [Gateway(f"g{number}", self._ledger) for number in range(3)]
        self._now = 1000.0
        self.admitted: list[float] = []
        for ago in (3.5, 2.7, 1.9, 1.1, 0.3, 0.0):
            for gateway in self._gateways:
                self._beat(gateway, self._now - ago * SECONDS)
        for gateway in self._gateways:
            gateway.leases.restore(self._now - 3.4 * SECONDS)

    def run(self) -> None:
        for phase in range(12):
            for _ in range(self._rng.choice([0, 32, 70, 129])):
                self._now += 1.0
                for gateway in self._gateways:
                    self._beat(gateway, self._now)
            if phase == 9:
                del self._gateways[0]
            if phase == 4:
                late = Gateway("late", self._ledger)
                late.leases.restore(self._now)
                self._gateways.append(late)
            demand = [self._rng.choice([0, 0, 1, 3, 10]) for _ in self._gateways]
            cut_off = self._rng.randrange(8)
            for _ in range(80):
                self._now += self._rng.choice([0.0, 0.0, 0.01, 1.0, 3.0])
                number = self._rng.randrange(len(self._gateways))
                self._arrivals(self._gateways[number], demand[number])
                if number != cut_off:
                    self._talk(self._gateways[number], demand[number])
                self._check()

    def _beat(self, gateway: Gateway, now: float) -> None:
        gateway.leases.set_gateways(self._ledger.beat(gateway.name, now), now)

    def _arrivals(self, gateway: Gateway, demand: int) -> None:
        """Most of the refused do not insist."""
        for each in self._gateways:
            self._beat(each, self._now)
        for _ in range(demand * self._rng.randrange(2)):
            if gateway.window.fits(ACCOUNT, self._now) or self._rng.random() < 0.02:
                self.admitted += [self._now] * gateway.arrives(self._now)

    def _talk(self, gateway: Gateway, demand: int) -> None:
        if demand and self._rng.random() < 0.5:
            gateway.send(1, self._now)
        elif gateway.leases.take_due():
            gateway.send(0, self._now)
        if self._rng.random() < 0.7:
            gateway.reach_ledger(self._gateways, self._now)
        if self._rng.random() < 0.7:
            gateway.hear(self._now)

    def _check(self) -> None:
        for gateway in self._gateways:
            gateway.leases.check_invariants()
            gateway.window.check_invariants()
        self._ledger.check_invariants()
        recent = sum(when > self._now - SECONDS for when in self.admitted[-2 * LIMIT :])
        assert recent <= LIMIT, f"{recent} in the window that ends at {self._now}"


@pytest.mark.parametrize("seeds", range(15))
def test_never_more_than_the_limit_in_any_window(seeds: int) -> None:
    total = 0
    for seed in range(seeds * 20, seeds * 20 + 20):
        traffic = Traffic(seed)
        traffic.run()
        total += len(traffic.admitted)
    assert total > 20 * 3 * LIMIT, "and much is admitted"


def test_all_of_the_limit_is_had_by_asking() -> None:
    ledger, now = QuotaLedger(SECONDS), 1000.0
    gateway = Gateway("g", ledger)
    gateway.leases.restore(now)
    admitted = 0
    for _ in range(100):
        gateway.send(1, now)
        gateway.reach_ledger([gateway], now)
        gateway.hear(now)
        if gateway.window.fits(ACCOUNT, now):
            admitted += gateway.arrives(now)
    assert admitted == LIMIT


def test_calls_that_one_gateway_refuses_take_nothing_of_a_fixed_limit_from_the_others() -> None:
    """Three gateways, twice as many calls as the limit allows: each minute admits as many as one gateway would."""
    ledger, admitted = QuotaLedger(SECONDS), [0] * 8
    gateways = [Gateway(f"g{number}", ledger) for number in range(3)]
    windows = [FixedWindow(SECONDS, gateway.leases) for gateway in gateways]
    for gateway, window in zip(gateways, windows, strict=True):
        gateway.window = window
        gateway.leases.restore(-4 * SECONDS)
    calls = 2 * LIMIT * len(admitted)
    for call in range(calls):
        now, number = call * SECONDS / (2 * LIMIT), call % 3
        for each in gateways:
            each.leases.set_gateways(ledger.beat(each.name, now), now)
        for _ in range(2):  # again after the others have given back
            if not windows[number].fits(ACCOUNT, now):
                gateways[number].send(1, now)
                gateways[number].reach_ledger(gateways, now)
                gateways[number].hear(now)
            for each in gateways:
                if each.leases.take_due():
                    each.send(0, now)
                    each.reach_ledger(gateways, now)
                    each.hear(now)
        admitted[int(now // SECONDS)] += windows[number].arrived(ACCOUNT, now) == 0.0
    assert admitted == [LIMIT] * len(admitted)


def test_degraded_each_gateway_has_its_part() -> None:
    leases = LeasedQuota(SECONDS, gateways=4)
    assert leases.degraded
    window = SlidingWindow(SECONDS, leases)
    assert [not window.arrived(ACCOUNT, 0.0) for _ in range(6)] == [True] * 5 + [False]
    assert leases.allowance(QuotaAccount("user:v", 2), 0.0) == 1, "a limit below the number of gateways still serves"
    assert not leases.may_grow(ACCOUNT, 0, 0.0)


def test_steady_traffic_asks_no_more_once_capacity_is_where_it_is_needed() -> None:
    ledger = QuotaLedger(SECONDS)
    gateways = [Gateway(name, ledger) for name in "ab"]
    for gateway in gateways:
        ledger.beat(gateway.name, 0.0)
        gateway.leases.set_gateways(2, 0.0)
        gateway.leases.restore(-3 * SECONDS)
    account, asks, refused = QuotaAccount("app:a", 640), 0, 0
    for tick in range(64 * 20 * 8):  # eight windows of 400 at one gateway, 100 at the other: 78 % of the limit
        now = tick / 20
        for gateway, every in ((gateways[0], 16 / 5), (gateways[1], 64 / 5)):
            if int(tick / every) == int((tick - 1) / every):
                continue
            for other in gateways:
                ledger.beat(other.name, now)
            used = gateway.window.used(account.key, now)
            due = gateway.leases.take_due()
            lacks = not gateway.window.fits(account, now) and gateway.window.may_grow(account, now)
            if lacks or due:
                ask = gateway.leases.ask(account, used, int(lacks), now)
                asks += tick >= 64 * 20 * 2
                gateway.leases.answered(ask, ledger.ask(gateway.name, ask, 2, now), now, now)
            refused += bool(gateway.window.arrived(account, now))
    assert refused == 0
    assert asks <= 2 * 6 * 2 + 10, "renewals, twice a window, and few more"


def test_parts_of_gateways_that_left_are_taken_over_only_after_a_while() -> None:
    leases, account = LeasedQuota(SECONDS), QuotaAccount("app:a", 240)
    leases.set_gateways(4, 0.0)
    leases.restore(0.0)
    assert leases.allowance(account, 3 * SECONDS - 1) == 0, "one that has just joined has nothing without asking"
    now = 3 * SECONDS
    leases.set_gateways(4, now)
    assert leases.allowance(account, now) == 30
    leases.set_gateways(3, now + 1)
    assert leases.allowance(account, now + 1) == 30, "leases given while there were four still count"
    leases.set_gateways(3, now + 2 * SECONDS)
    assert leases.allowance(account, now + 2 * SECONDS) == 40
    leases.set_gateways(6, now + 2 * SECONDS)
    assert leases.allowance(account, now + 2 * SECONDS) == 20, "newcomers reduce it at once"


@pytest.mark.parametrize(("used", "kept"), [(0, 0), (4, 10), (5, 10), (15, 15), (16, 16), (18, 18)])
def test_a_gateway_that_is_asked_to_give_back_keeps_half_of_what_it_has_not_used(used: int, kept: int) -> None:
    leases = LeasedQuota(SECONDS)
    leases.restore(0.0)
    leases.answered(leases.ask(ACCOUNT, 0, 1, 0.0), LeaseReply(16, recalled=False), 0.0, 0.0)
    assert leases.recalled(ACCOUNT, used, 1.0) == (used < 16)
    assert leases.allowance(ACCOUNT, 1.0) == (kept if used < 16 else 16)
    assert [due.key for due in leases.take_due()] == [ACCOUNT.key] * (used < 16), "the ledger hears of it"
    leases.check_invariants()


def test_a_refusal_is_remembered_for_twice_as_long_each_time() -> None:
    leases, now = LeasedQuota(SECONDS), 0.0
    leases.restore(now)

    def patience(capacity: int) -> float:
        """For which part of a window it does not ask again after an answer of `capacity`, having used 10."""
        nonlocal now
        leases.answered(leases.ask(ACCOUNT, 10, 1, now), LeaseReply(capacity, recalled=False), now, now)
        steps = next(n for n in range(1000) if leases.may_grow(ACCOUNT, 10, now + n * SECONDS * RECALL_AGAIN))
        now += steps * SECONDS * RECALL_AGAIN
        return steps * RECALL_AGAIN

    doubled = [RECALL_AGAIN * 2**times for times in range(6)]
    assert [patience(10) for _ in range(8)] == [*doubled, MOST_PATIENCE, MOST_PATIENCE]
    assert patience(11) == 0.0, "more than it has used is no refusal"
    assert patience(10) == RECALL_AGAIN, "the count begins anew"


def ledger_of_two() -> QuotaLedger:
    ledger = QuotaLedger(SECONDS)
    for name in "ab":
        ledger.beat(name, 0.0)
    return ledger


def test_the_ledger_grants_a_part_of_what_nobody_holds_or_may_use_unasked() -> None:
    ledger = ledger_of_two()
    wants = LeaseRequest(ACCOUNT, held=0, used=0, more=1)
    assert ledger.ask("a", wants, 2, SECONDS - 1) == LeaseReply(LIMIT // 4, recalled=False), "b has just joined"
    later = QuotaAccount("user:v", LIMIT)
    granted = ledger.ask("a", LeaseRequest(later, held=0, used=0, more=1), 2, SECONDS)
    assert granted == LeaseReply((LIMIT - LIMIT // 4) // 4, recalled=False), "b may use a quarter without a request"


def test_the_ledger_recalls_what_others_hold_once_in_a_while() -> None:
    ledger = ledger_of_two()
    wants = LeaseRequest(ACCOUNT, held=0, used=0, more=1)
    ledger.ask("a", LeaseRequest(ACCOUNT, held=LIMIT, used=LIMIT, more=0), 2, 0.0)
    reports = LeaseRequest(ACCOUNT, held=0, used=0, more=0)
    assert not ledger.ask("b", reports, 2, 0.0).recalled, "a report requests nothing"
    assert ledger.ask("b", wants, 2, 1.0).recalled
    pause = SECONDS * RECALL_AGAIN
    asked = [ledger.ask("b", wants, 2, 1.0 + part * pause).recalled for part in (0, 0.5, 1)]
    assert asked == [False, False, True]


def test_a_gateway_counts_for_one_window_after_its_heartbeat() -> None:
    ledger = QuotaLedger(SECONDS)
    ledger.beat("a", 0.0)
    assert ledger.beat("b", SECONDS - 1) == 2
    assert ledger.beat("b", SECONDS) == 1


@pytest.mark.parametrize(
    ("pause", "granted"),
    [(0.0, 0), (SECONDS - 1, 0), (SECONDS, 5), (2 * SECONDS - 1, 5), (2 * SECONDS, 10)],
)
def test_an_entry_counts_with_its_use_for_one_window_and_with_its_capacity_for_two(pause: float, granted: int) -> None:
    ledger = QuotaLedger(SECONDS)
    ledger.ask("a", LeaseRequest(ACCOUNT, held=LIMIT // 2, used=0, more=0), 1, 0.0)
    ledger.ask("a", LeaseRequest(ACCOUNT, held=LIMIT // 2, used=LIMIT, more=0), 1, 0.0)
    wants = LeaseRequest(ACCOUNT, held=0, used=0, more=1)
    assert ledger.ask("b", wants, 1, pause).capacity == granted


def test_the_ledger_recalls_the_only_call_of_a_limit_of_one() -> None:
    ledger, single = QuotaLedger(SECONDS), QuotaAccount("user:v", 1)
    ledger.ask("a", LeaseRequest(single, held=1, used=0, more=1), 2, 0.0)
    assert ledger.ask("b", LeaseRequest(single, held=0, used=0, more=1), 2, 0.0) == LeaseReply(0, recalled=True)


def test_the_ledger_recalls_nothing_where_nobody_else_has_any() -> None:
    ledger = QuotaLedger(SECONDS)
    ledger.beat("a", 0.0)
    full = LeaseRequest(ACCOUNT, held=LIMIT, used=LIMIT, more=1)
    assert ledger.ask("a", full, 1, SECONDS) == LeaseReply(LIMIT, recalled=False)


def test_a_lease_is_renewed_once_half_of_its_window_has_passed() -> None:
    leases = LeasedQuota(SECONDS)
    leases.restore(0.0)
    leases.answered(leases.ask(ACCOUNT, 0, 1, 0.0), LeaseReply(10, recalled=False), 0.0, 0.0)
    leases.counted(ACCOUNT, 1, SECONDS / 2 - 1)
    assert leases.take_due() == []
    leases.counted(ACCOUNT, 2, SECONDS / 2)
    assert leases.take_due() == [ACCOUNT]


def test_arrivals_beyond_a_lease_of_a_small_limit_are_reported_one_by_one() -> None:
    leases, single = LeasedQuota(SECONDS), QuotaAccount("user:v", 1)
    leases.restore(0.0)
    leases.answered(leases.ask(single, 0, 1, 0.0), LeaseReply(0, recalled=False), 0.0, 0.0)
    leases.counted(single, 1, 1.0)
    assert leases.take_due() == [single]


def test_the_ledger_misjudges_what_exceeds_the_part_that_needs_no_request() -> None:
    leases = LeasedQuota(SECONDS)
    leases.set_gateways(2, 0.0)
    assert [leases.misjudged(ACCOUNT, used) for used in (LIMIT // 4, LIMIT // 4 + 1)] == [False, True]
    leases.restore(0.0)
    leases.answered(leases.ask(ACCOUNT, 0, 1, 0.0), LeaseReply(1, recalled=False), 0.0, 0.0)
    assert leases.misjudged(ACCOUNT, 0), "the ledger has an entry, which may say more"


def test_the_assumed_number_of_gateways_is_replaced_by_the_first_count_from_redis() -> None:
    leases = LeasedQuota(SECONDS, gateways=5)
    leases.restore(-3 * SECONDS)
    leases.set_gateways(1, 0.0)
    assert leases.allowance(ACCOUNT, 0.0) == LIMIT // 2


def test_a_lease_is_forgotten_when_its_time_has_come() -> None:
    leases = LeasedQuota(SECONDS)
    leases.restore(0.0)
    leases.answered(leases.ask(ACCOUNT, 0, 1, 0.0), LeaseReply(1, recalled=False), 0.0, 0.0)
    leases.set_gateways(1, FORGETTING * SECONDS)
    assert not leases.misjudged(ACCOUNT, 0)


def leased(capacity: int, used: int = 0, asked_at: float = 0.0, now: float = 0.0) -> LeasedQuota:
    """A gateway, alone since its start, that has asked for `ACCOUNT` once and was answered."""
    leases = LeasedQuota(SECONDS)
    leases.restore(0.0)
    leases.answered(leases.ask(ACCOUNT, used, 1, asked_at), LeaseReply(capacity, recalled=False), asked_at, now)
    return leases


def test_a_lease_is_valid_for_one_window_after_it_was_asked_for() -> None:
    leases = leased(10, asked_at=1.0, now=5.0)
    end = 1.0 + SECONDS
    assert [leases.allowance(ACCOUNT, now) for now in (end - 1, end, end + 1)] == [10, 0, 0]
    assert leases.ask(ACCOUNT, 3, 1, end - 1) == LeaseRequest(ACCOUNT, held=10, used=3, more=1)
    assert leased(LIMIT + 5).allowance(ACCOUNT, 0.0) == LIMIT, "the limit may have been lowered since"


def test_a_gateway_asks_for_more_up_to_the_limit() -> None:
    leases = leased(10)
    assert [leases.may_grow(ACCOUNT, used, 0.0) for used in (LIMIT - 1, LIMIT, LIMIT + 1)] == [True, False, False]


def test_a_gateway_that_is_cut_off_has_its_part_and_later_nothing_of_its_leases() -> None:
    leases = leased(16)
    assert not leases.degraded
    leases.counted(ACCOUNT, 17, 1.0)
    leases.degrade()
    assert leases.degraded
    assert leases.take_due() == []
    leases.counted(ACCOUNT, 17, 1.0)
    assert leases.take_due() == [], "there is nobody to report to"
    assert leases.allowance(ACCOUNT, 1.0) == LIMIT
    assert leases.ask(ACCOUNT, 3, 1, 1.0) == LeaseRequest(ACCOUNT, held=0, used=3, more=1)
    leases.answered(leases.ask(ACCOUNT, 3, 1, 1.0), LeaseReply(16, recalled=False), 1.0, 1.0)
    assert not leases.recalled(ACCOUNT, 0, 1.0)
    leases.restore(2.0)
    assert not leases.degraded
    assert leases.allowance(ACCOUNT, 2.0) == 0, "an answer that comes too late grants nothing"


def test_a_gateway_that_is_restored_has_just_joined() -> None:
    leases = LeasedQuota(SECONDS)
    leases.restore(1000.0)
    allowances = [leases.allowance(ACCOUNT, 1000.0 + windows * SECONDS) for windows in (0, 2.9, 3)]
    assert allowances == [0, 0, LIMIT // 2]


@pytest.mark.parametrize(("used", "is_due"), [(9, False), (10, True)])
def test_arrivals_without_a_lease_are_reported_in_batches_beyond_the_part_that_needs_no_request(
    used: int, is_due: bool
) -> None:
    leases = LeasedQuota(SECONDS, gateways=2)
    leases.restore(-3 * SECONDS)
    leases.counted(ACCOUNT, used, 0.0)
    assert leases.take_due() == [ACCOUNT] * is_due


@pytest.mark.parametrize(("used", "is_due"), [(14, False), (15, True), (16, True)])
def test_arrivals_beyond_a_lease_are_reported_in_batches(used: int, is_due: bool) -> None:
    leases = leased(8, used=5)
    leases.counted(ACCOUNT, used, 0.0)
    assert leases.take_due() == [ACCOUNT] * is_due


def test_arrivals_within_a_lease_are_not_reported() -> None:
    leases = leased(16)
    leases.counted(ACCOUNT, 16, 0.0)
    assert leases.take_due() == []
    leases.counted(ACCOUNT, 17, 0.0)
    assert leases.take_due() == [ACCOUNT]


def test_the_answer_to_a_report_ends_the_wait_and_keeps_the_count_of_refusals() -> None:
    leases, second = leased(10, used=10), SECONDS * RECALL_AGAIN
    assert not leases.may_grow(ACCOUNT, 10, 0.0)
    leases.answered(leases.ask(ACCOUNT, 10, 0, 0.0), LeaseReply(10, recalled=False), 0.0, 0.0)
    assert leases.may_grow(ACCOUNT, 10, 0.0)
    leases.answered(leases.ask(ACCOUNT, 10, 1, 0.0), LeaseReply(10, recalled=False), 0.0, 0.0)
    assert [leases.may_grow(ACCOUNT, 10, now) for now in (second, 2 * second)] == [False, True]


def test_the_rest_of_a_recalled_lease_is_valid_as_long_as_the_lease() -> None:
    leases = leased(16)
    assert leases.recalled(ACCOUNT, 4, 1.0)
    assert [leases.allowance(ACCOUNT, now) for now in (SECONDS - 1, SECONDS)] == [10, 0]
    assert leases.may_grow(ACCOUNT, 10, 1.0)
    leases.answered(leases.ask(ACCOUNT, 10, 1, 1.0), LeaseReply(10, recalled=False), 1.0, 1.0)
    refused = [leases.may_grow(ACCOUNT, 10, now) for now in (1.0, 1.0 + SECONDS * RECALL_AGAIN)]
    assert refused == [False, True], "the first refusal after it"


def test_a_recall_takes_what_could_be_used_without_a_request() -> None:
    leases = LeasedQuota(SECONDS, gateways=2)
    leases.restore(-3 * SECONDS)
    assert leases.allowance(ACCOUNT, 0.0) == 5
    assert leases.recalled(ACCOUNT, 2, 0.0)
    assert [leases.allowance(ACCOUNT, now) for now in (0.0, SECONDS - 1, SECONDS)] == [3, 3, 0]
    leases.set_gateways(2, FORGETTING * SECONDS)
    assert leases.allowance(ACCOUNT, FORGETTING * SECONDS) == 5


def test_a_recall_of_a_lease_that_has_ended_gives_back_nothing_and_is_reported() -> None:
    leases = leased(16)
    assert leases.recalled(ACCOUNT, 4, SECONDS)
    assert leases.allowance(ACCOUNT, SECONDS) == 0
    assert leases.take_due() == [ACCOUNT]
    leases.counted(ACCOUNT, 4, SECONDS + 1)
    assert leases.take_due() == [], "once"


def test_a_recalled_lease_is_forgotten_after_those_that_were_answered_before() -> None:
    leases, other = leased(16), QuotaAccount("user:v", LIMIT)
    leases.answered(leases.ask(other, 0, 1, 1.0), LeaseReply(5, recalled=False), 1.0, 1.0)
    leases.recalled(ACCOUNT, 4, 2.0)
    leases.check_invariants()
    leases.set_gateways(1, FORGETTING * SECONDS + 1)
    assert [leases.misjudged(account, 0) for account in (ACCOUNT, other)] == [True, False]
    leases.answered(leases.ask(other, 0, 1, 5 * SECONDS), LeaseReply(5, recalled=False), 5 * SECONDS, 5 * SECONDS)
    assert not leases.misjudged(ACCOUNT, 0), "forgotten with an answer, too"


def test_the_time_in_which_gateways_that_left_count_begins_when_they_were_last_seen() -> None:
    leases, account = LeasedQuota(SECONDS), QuotaAccount("app:a", 240)
    leases.restore(-3 * SECONDS)
    for gateways, windows, part in ((4, 0.0, 30), (4, 1.5, 30), (3, 2.5, 30), (3, 3.5, 40)):
        leases.set_gateways(gateways, windows * SECONDS)
        assert leases.allowance(account, windows * SECONDS) == part


def test_a_gateway_that_is_cut_off_divides_limits_by_the_number_that_it_has_last_heard() -> None:
    leases = LeasedQuota(SECONDS)
    leases.set_gateways(4, 0.0)
    assert leases.allowance(ACCOUNT, 0.0) == LIMIT // 4
    leases.set_gateways(2, 1.0)
    assert leases.allowance(ACCOUNT, 1.0) == LIMIT // 2


def test_an_arrival_that_the_ledger_knows_is_not_reported_again() -> None:
    leases, single = LeasedQuota(SECONDS), QuotaAccount("user:v", 1)
    leases.restore(0.0)
    leases.answered(leases.ask(single, 1, 1, 0.0), LeaseReply(0, recalled=False), 0.0, 0.0)
    leases.counted(single, 1, 1.0)
    assert leases.take_due() == []
