"""A gateway's loop with the ledger: heartbeats, reports and requests in their order; each waiter is released once."""

import math
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from throttler.core.lease_exchange import LeaseExchange
from throttler.core.lease_loop import RECALL_SECONDS, REPORTS, Heartbeat, LeaseLoop, Message
from throttler.core.leased_quota import LeasedQuota, LeaseReply
from throttler.core.windows import QuotaAccount, QuotaDemand, SlidingWindow

SECONDS, BEAT, SETTLE = 64.0, 1.0, 3.0
ACCOUNTS = [QuotaAccount("user:a", 4), QuotaAccount("user:b", 20)]


class Gateway:
    """A loop with a ledger that answers as a test says."""

    def __init__(self) -> None:
        self.leases = LeasedQuota(SECONDS, 2)
        self.window = SlidingWindow(SECONDS, self.leases)
        self.loop: LeaseLoop[int] = LeaseLoop(LeaseExchange(self.leases, self.window, SETTLE), BEAT)
        self.under_way: Message | None = None
        self.released: list[int] = []

    def send(self, now: float) -> None:
        if self.under_way is None:
            self.under_way = self.loop.next_message(now)

    def answer(self, now: float, recalled: bool = False) -> None:
        message, self.under_way = self.under_way, None
        if isinstance(message, Heartbeat):
            self.loop.heartbeat_answered(2, now)
        elif message is not None:
            replies = [LeaseReply(request.used + 1, recalled) for request in message]
            self.released += self.loop.replied(message, replies, now)
        self.loop.settle(now)

    def fail(self, now: float) -> None:
        self.under_way = None
        self.released += self.loop.degrade(now)

    def join(self, now: float = 0.0) -> None:
        self.send(now)
        self.answer(now)
        assert not self.leases.degraded


def requests(message: Message | None) -> Sequence[object]:
    assert message is not None
    assert not isinstance(message, Heartbeat)
    return message


STEP = st.sampled_from(["wait", "wait", "arrive", "send", "answer", "recalled", "fail", "recall"])


@settings(max_examples=200)
@given(st.lists(st.tuples(STEP, st.booleans(), st.sampled_from([0.0, RECALL_SECONDS, 0.5, BEAT])), max_size=40))
def test_each_waiter_is_released_once(steps: list[tuple[str, bool, float]]) -> None:
    gateway, now, waiting = Gateway(), 0.0, list[int]()
    gateway.join()
    for number, (step, second, later) in enumerate(steps):
        now, account = now + later, ACCOUNTS[second]
        match step:
            case "wait":
                if gateway.loop.wait(QuotaDemand(account), number):
                    waiting.append(number)
                else:
                    assert gateway.leases.degraded
            case "arrive":
                gateway.window.arrived(account, now)
            case "send":
                gateway.send(now)
            case "answer" | "recalled":
                gateway.answer(now, recalled=step == "recalled")
            case "fail":
                gateway.fail(now)
                assert sorted(gateway.released) == waiting
            case _:
                gateway.loop.recall(account, now)
        gateway.loop.check_invariants()
        assert len(set(gateway.released)) == len(gateway.released)
        assert set(gateway.released) <= set(waiting)
    for _ in range(8):  # what is under way, a heartbeat, and two exchanges for each that waits
        gateway.answer(now, recalled=True)
        deadline = gateway.loop.next_deadline()
        assert deadline < math.inf
        now = max(now, deadline)
        gateway.send(now)
    assert sorted(gateway.released) == waiting


def test_a_heartbeat_is_due_a_time_after_the_last_answer_and_not_while_one_is_under_way() -> None:
    gateway = Gateway()
    gateway.send(0.0)
    assert isinstance(gateway.under_way, Heartbeat)
    assert gateway.loop.next_message(100.0) is None
    gateway.answer(100.0)
    assert gateway.loop.next_deadline() == 100.0 + BEAT
    assert gateway.loop.next_message(100.0 + BEAT - 0.01) is None
    assert isinstance(gateway.loop.next_message(100.0 + BEAT), Heartbeat)


def test_after_a_failure_the_next_message_is_a_heartbeat() -> None:
    gateway = Gateway()
    gateway.join()
    assert gateway.loop.wait(QuotaDemand(ACCOUNTS[0]), 1)
    assert gateway.loop.next_deadline() == -math.inf, "a call waits"
    gateway.send(0.5)
    gateway.fail(0.5)
    assert gateway.released == [1]
    assert not gateway.loop.wait(QuotaDemand(ACCOUNTS[0]), 2)
    assert gateway.loop.next_message(0.5) is None
    assert gateway.loop.next_deadline() == 0.5 + BEAT
    assert isinstance(gateway.loop.next_message(0.5 + BEAT), Heartbeat)


def test_all_counts_are_reported_in_parts_before_leases_are_used_again() -> None:
    gateway = Gateway()
    gateway.join()
    gateway.fail(0.0)
    for number in range(REPORTS + 1):
        gateway.window.arrived(QuotaAccount(f"user:{number}", 1), 0.0)
    gateway.send(BEAT)
    gateway.answer(BEAT)
    sizes = []
    while gateway.loop.next_deadline() == -math.inf:
        assert gateway.leases.degraded
        gateway.send(BEAT + SETTLE)
        sizes.append(len(requests(gateway.under_way)))
        gateway.answer(BEAT + SETTLE)
    assert sizes == [REPORTS, 1]
    assert not gateway.leases.degraded


def test_a_waiter_whose_account_is_recalled_waits_for_a_second_exchange() -> None:
    gateway = Gateway()
    gateway.join()
    assert gateway.loop.wait(QuotaDemand(ACCOUNTS[0]), 1)
    gateway.send(0.1)
    gateway.answer(0.2, recalled=True)
    assert gateway.released == []
    assert gateway.loop.next_retry() == 0.2 + RECALL_SECONDS
    assert gateway.loop.next_message(0.2) is None
    gateway.send(0.2 + RECALL_SECONDS)
    gateway.answer(0.3, recalled=True)
    assert gateway.released == [1]
    assert gateway.loop.next_retry() == math.inf


def test_a_lease_is_valid_from_the_time_at_which_it_was_asked_for() -> None:
    gateway = Gateway()
    gateway.join()
    assert gateway.loop.wait(QuotaDemand(ACCOUNTS[1]), 1)
    gateway.send(0.5)
    gateway.answer(0.75)
    assert gateway.leases.allowance(ACCOUNTS[1], 0.5 + SECONDS - 0.125) == 1
    assert gateway.leases.allowance(ACCOUNTS[1], 0.5 + SECONDS) == 0
