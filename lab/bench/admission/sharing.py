"""Gateways that share a limit, in virtual time: commands per call, admitted calls above the limit, wrong refusals.

The rules are the product's own (`throttler.core`); only the network is missing, so a gateway's request is answered at
once. The reference is the decision of a single gateway that receives every arrival.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from throttler.core.leased_quota import JOINING, LeasedQuota
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.windows import LocalQuota, QuotaAccount, SlidingWindow

WINDOW = 60.0
SYNC = 0.2
BEAT = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """The counts of one run, without the time in which gateways have just joined."""

    calls: int
    commands: int
    refused: int
    wrongly: int
    most: int  # maximum admitted calls in any window


class Gateway:
    """One of several gateways; its `peers` are recalled when it lacks quota."""

    def __init__(self, name: str, ledger: QuotaLedger) -> None:
        self.peers: list[Gateway] = []
        self.commands = 0
        self.leases = LeasedQuota(WINDOW)
        self.window = SlidingWindow(WINDOW, self.leases)
        self._name = name
        self._ledger = ledger

    def beat(self, now: float) -> None:
        """Send the heartbeat, one command a second."""
        self.leases.set_gateways(self._ledger.beat(self._name, now), now)
        self.commands += 1

    def sync(self, now: float) -> None:
        """Report the changes for which no call waits."""
        for account in self.leases.take_due():
            self._ask(account, 0, now)

    def admits(self, account: QuotaAccount, now: float) -> bool:
        """Decide about one call while the pool is overloaded."""
        while not self.window.fits(account, now) and self.window.may_grow(account, now):
            if self._ask(account, 1, now):
                for peer in self.peers:
                    if peer.leases.recalled(account, peer.window.used(account.key, now), now):
                        peer.sync(now)
                self._ask(account, 1, now)
        return not self.window.arrived(account, now)

    def _ask(self, account: QuotaAccount, more: int, now: float) -> bool:
        self.commands += 1
        ask = self.leases.ask(account, self.window.used(account.key, now), more, now)
        answer = self._ledger.ask(self._name, ask, self.leases.gateways, now)
        self.leases.answered(ask, answer, now, now)
        return answer.recalled


def share(limit: int, demand: float, ingress: Sequence[float], windows: int, seed: int) -> Result:
    """Simulate Poisson arrivals of `demand` times the limit, each at a gateway drawn with the weights `ingress`.

    Heartbeats are not counted: their rate is one a second and gateway, independent of the accounts and calls.
    """
    rng, ledger = random.Random(seed), QuotaLedger(WINDOW)
    gateways = [Gateway(f"g{number}", ledger) for number in range(len(ingress))]
    for gateway in gateways:
        gateway.peers = [peer for peer in gateways if peer is not gateway]
    one, account = SlidingWindow(WINDOW, LocalQuota()), QuotaAccount("user:u", limit)
    now = next_beat = next_sync = 1000.0
    for gateway in gateways:
        gateway.beat(now)
        gateway.leases.restore(now)
    counted_from = now + JOINING * WINDOW
    end = counted_from + windows * WINDOW
    calls = refused = wrongly = commands = 0
    admitted = list[float]()
    while (now := now + rng.expovariate(demand * limit / WINDOW)) < end:
        while next_beat <= now or next_sync <= now:
            if next_beat <= next_sync:
                for gateway in gateways:
                    gateway.beat(next_beat)
                    gateway.commands -= 1
                next_beat += BEAT
            else:
                for gateway in gateways:
                    gateway.sync(next_sync)
                next_sync += SYNC
        if now < counted_from:
            commands = sum(gateway.commands for gateway in gateways)
        gateway = rng.choices(gateways, ingress)[0]
        right, got = not one.arrived(account, now), gateway.admits(account, now)
        admitted += [now] * got
        if now >= counted_from:
            calls, refused, wrongly = calls + 1, refused + (not got), wrongly + (right and not got)
    total = sum(gateway.commands for gateway in gateways)
    return Result(calls, total - commands, refused, wrongly, _most_in_a_window(admitted))


def _most_in_a_window(times: list[float]) -> int:
    most = start = 0
    for end, time in enumerate(times):
        while times[start] <= time - WINDOW:
            start += 1
        most = max(most, end - start + 1)
    return most
