"""Every call that waits for a lease is told, once, and accounts are asked about one exchange at a time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throttler.core.lease_exchange import LeaseExchange
from throttler.core.leased_quota import LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.windows import QuotaAccount, QuotaDemand, SlidingWindow

SECONDS = 64.0
SETTLE = 3.0
ACCOUNTS = [QuotaAccount("user:a", 4), QuotaAccount("user:b", 20)]


class Gateway:
    """An exchange with what a driver keeps: the accounts about which a call waits, and the exchange under way."""

    def __init__(self, gateways: int = 2) -> None:
        self.leases = LeasedQuota(SECONDS, gateways)
        self.window = SlidingWindow(SECONDS, self.leases)
        self.exchange = LeaseExchange(self.leases, self.window, SETTLE)
        self.waiting: set[str] = set()
        self.held: set[str] = set()
        self.held_before: set[str] = set()
        self.requests: list[LeaseRequest] = []
        self.asked_at = 0.0

    def join(self, now: float) -> None:
        assert self.exchange.heartbeat_answered(2, now) == []
        assert self.exchange.settle(now)

    def end(self, recalled: bool, now: float) -> None:
        replies = [LeaseReply(min(request.used + 1, request.account.limit), recalled) for request in self.requests]
        end = self.exchange.end(self.requests, replies, self.asked_at, now)
        told = {request.account.key for request in self.requests if request.more}
        held = told - self.held_before if recalled else set()
        assert (set(end.held), set(end.settled)) == (held, told - held)
        self.held |= held
        self.waiting -= told - held
        self.held_before -= told - held
        for request, reply in zip(self.requests, replies, strict=True):
            assert self.leases.allowance(request.account, now) == reply.capacity
        self.requests = []

    def again(self, account: QuotaAccount) -> None:
        if account.key in self.held:
            self.held.remove(account.key)
            self.held_before.add(account.key)
        self.exchange.try_again(account.key)


STEP = st.sampled_from(["want", "arrive", "begin", "end", "recalled", "again", "recall", "degrade"])
STEPS = st.lists(st.tuples(STEP, st.booleans()), max_size=40)


@settings(max_examples=200)
@given(STEPS)
def test_no_call_waits_for_an_account_about_which_nobody_asks(steps: list[tuple[str, bool]]) -> None:
    gateway, now = Gateway(), 0.0
    gateway.join(now)
    for step, second in steps:
        now, account = now + 1.0, ACCOUNTS[second]
        if step == "want" and not gateway.leases.degraded:
            gateway.waiting.add(account.key)
            gateway.exchange.want(QuotaDemand(account))
        elif step == "arrive":
            gateway.window.arrived(account, now)
        elif step == "begin" and not gateway.requests:
            gateway.requests, gateway.asked_at = gateway.exchange.begin(now), now
            assert {
                request.account.key for request in gateway.requests if request.more
            } == gateway.waiting - gateway.held
        elif step in ("end", "recalled"):
            gateway.end(step == "recalled", now)
        elif step == "again":
            gateway.again(account)
        elif step == "recall":
            is_free = account.key not in gateway.waiting | {request.account.key for request in gateway.requests}
            assert not gateway.exchange.recall(account, now) or is_free
        elif step == "degrade":
            gateway.exchange.degrade()
            assert gateway.exchange.begin(now) == []
            gateway.waiting, gateway.held, gateway.held_before, gateway.requests = set(), set(), set(), []
        gateway.exchange.check_invariants()
    for _ in range(3):
        gateway.end(True, now)  # as where the other gateways give nothing back
        for account in ACCOUNTS:
            gateway.again(account)
        gateway.requests = gateway.exchange.begin(now)
    assert gateway.waiting == set()


def test_each_call_waits_once_for_what_other_gateways_give_back() -> None:
    gateway, account = Gateway(), ACCOUNTS[0]
    gateway.join(0.0)
    for _ in range(2):
        gateway.exchange.want(QuotaDemand(account))
        for end in [([], [account.key]), ([account.key], [])]:
            requests = gateway.exchange.begin(0.0)
            assert gateway.exchange.end(requests, [LeaseReply(1, True)], 0.0, 0.0) == end
            gateway.exchange.check_invariants()
            gateway.exchange.try_again(account.key)


@pytest.mark.parametrize("recalled", [False, True])
def test_replies_that_come_after_the_ledger_was_lost_concern_no_call(recalled: bool) -> None:
    gateway = Gateway()
    gateway.join(0.0)
    gateway.exchange.want(QuotaDemand(ACCOUNTS[0]))
    requests = gateway.exchange.begin(0.0)
    gateway.exchange.degrade()
    assert gateway.exchange.end(requests, [LeaseReply(1, recalled)], 0.0, 1.0) == ([], [])
    gateway.exchange.check_invariants()


def test_arrivals_without_the_ledger_are_reported_before_leases_are_used_again() -> None:
    gateway = Gateway()
    gateway.join(0.0)
    gateway.exchange.degrade()
    for _ in range(8):
        gateway.window.arrived(ACCOUNTS[1], 1.0)
    assert [(r.account, r.used, r.more) for r in gateway.exchange.heartbeat_answered(3, 2.0)] == [(ACCOUNTS[1], 8, 0)]
    assert gateway.leases.gateways == 3
    assert not gateway.exchange.settle(2.0)
    assert gateway.exchange.heartbeat_answered(3, 3.0) == []
    assert not gateway.exchange.settle(2.0 + SETTLE - 0.1)
    assert gateway.exchange.settle(2.0 + SETTLE)
    assert not gateway.leases.degraded
    assert not gateway.exchange.settle(2.0 + SETTLE)


def test_a_gateway_that_has_counted_nothing_waits_only_where_it_had_leases() -> None:
    gateway = Gateway()
    gateway.join(0.0)
    gateway.exchange.degrade()
    assert gateway.exchange.heartbeat_answered(2, 1.0) == []
    assert not gateway.exchange.settle(1.0)
    gateway.exchange.degrade()
    assert not gateway.exchange.settle(100.0)


def test_a_new_gateway_that_has_counted_calls_waits() -> None:
    gateway = Gateway()
    gateway.window.arrived(ACCOUNTS[0], 0.0)
    gateway.exchange.heartbeat_answered(2, 1.0)
    assert not gateway.exchange.settle(1.0)
    assert gateway.exchange.settle(1.0 + SETTLE)


def test_a_gateway_gives_back_what_it_does_not_use_unless_it_asks_itself() -> None:
    gateway, account = Gateway(), ACCOUNTS[1]
    gateway.join(0.0)
    gateway.exchange.want(QuotaDemand(account))
    gateway.requests = gateway.exchange.begin(0.0)
    assert not gateway.exchange.recall(account, 0.0)
    gateway.end(False, 0.0)
    assert gateway.exchange.recall(account, 1.0)
    assert [(request.held, request.more) for request in gateway.exchange.begin(1.0)] == [(0, 0)]
