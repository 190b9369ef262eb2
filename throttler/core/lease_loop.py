"""One gateway's loop with the ledger: which message goes next, and which calls wait for its answer.

One message is under way at a time. A driver carries what `next_message` returns and passes on the answer, or calls
`degrade` when none comes. `throttler.core.lease_exchange` decides what is requested.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from throttler.core.lease_exchange import LeaseExchange
from throttler.core.leased_quota import LeaseReply, LeaseRequest
from throttler.core.windows import QuotaAccount, QuotaDemand

Waiter = TypeVar("Waiter")
BEAT_SECONDS = 1.0  # between an answer to a heartbeat and the next one
SETTLE_SECONDS = 3.0  # time in which all gateways reach the ledger again and report their counts
ANSWER_SECONDS = 0.25  # a call waits no longer than this for an answer
RECALL_SECONDS = 0.02  # time in which other gateways give back capacity after a recall
REPORTS = 1000  # requests per message when all accounts are reported


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The message that this gateway lives; its answer is the number of gateways."""


Message = Heartbeat | Sequence[LeaseRequest]


class LeaseLoop(Generic[Waiter]):
    """The messages of one gateway in their order, and the waiters of its calls, by account."""

    def __init__(self, exchange: LeaseExchange, beat_seconds: float) -> None:
        self._exchange = exchange
        self._beat_seconds = beat_seconds
        self._beat_at = -math.inf  # infinite while a heartbeat is under way
        self._asked_at = 0.0
        self._reports: Sequence[LeaseRequest] = ()  # to be sent before leases are used again
        self._waiting: dict[str, list[Waiter]] = {}
        self._held: dict[str, float] = {}  # until when other gateways may give back, by account

    def wait(self, demand: QuotaDemand, waiter: Waiter) -> bool:
        """Request `demand` for a waiter; return False while degraded, when there is nothing to wait for."""
        if self._exchange.leases.degraded:
            return False
        self._waiting.setdefault(demand.account.key, []).append(waiter)
        self._exchange.want(demand)
        return True

    def next_message(self, now: float) -> Message | None:
        """Return the message that is due now; None if there is none."""
        if self._reports:
            message, self._reports = self._reports[:REPORTS], self._reports[REPORTS:]
            return message
        if now >= self._beat_at:
            self._beat_at = math.inf
            return Heartbeat()
        for key in [key for key, until in self._held.items() if until <= now]:
            del self._held[key]
            self._exchange.try_again(key)
        self._asked_at = now
        return self._exchange.begin(now) or None

    def next_deadline(self) -> float:
        """Return the time at which `next_message` must be asked, if no call begins to wait before; maybe at once."""
        if self._reports or self._exchange.has_wanted:
            return -math.inf
        return min(self._beat_at, self.next_retry())

    def next_retry(self) -> float:
        """Return the time at which other gateways have given back what a waiter needs; infinite if none is to."""
        return min(self._held.values(), default=math.inf)

    def heartbeat_answered(self, gateways: int, now: float) -> None:
        """Apply the answer to a heartbeat."""
        # Counted from the answer: where a round trip takes as long as the time between beats, requests have their turn.
        self._beat_at = now + self._beat_seconds
        self._reports = self._exchange.heartbeat_answered(gateways, now)

    def replied(self, requests: Sequence[LeaseRequest], replies: Sequence[LeaseReply], now: float) -> list[Waiter]:
        end = self._exchange.end(requests, replies, self._asked_at, now)
        self._held |= dict.fromkeys(end.held, now + RECALL_SECONDS)
        return self._released(end.settled)

    def settle(self, now: float) -> bool:
        """Use leases again if it is time, after each answer; return whether the gateway was degraded until now."""
        return not self._reports and self._exchange.settle(now)

    def recall(self, account: QuotaAccount, now: float) -> bool:
        """Give back unused capacity that another gateway needs; return whether a message is due."""
        return self._exchange.recall(account, now)

    def degrade(self, now: float) -> list[Waiter]:
        """Count without the ledger from now on, because no answer came; return all waiters."""
        self._exchange.degrade()
        self._reports, self._held, self._beat_at = (), {}, now + self._beat_seconds
        return self._released(list(self._waiting))

    def check_invariants(self) -> None:
        """Raise AssertionError when an exchange is impossible, or calls wait for nothing."""
        self._exchange.check_invariants()
        assert not (self._waiting and self._exchange.leases.degraded), (
            f"calls wait for {list(self._waiting)} without the ledger"
        )
        assert self._held.keys() <= self._waiting.keys(), f"{self._held} held, {list(self._waiting)} waiting"

    def _released(self, keys: Iterable[str]) -> list[Waiter]:
        return [waiter for key in keys for waiter in self._waiting.pop(key, ())]
