"""The service that each account has received under any policy, the gaps between them, and the rate of all.

The policy's balances are checked against it.
"""

import math
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Generic, TypeVar

from local_worker.core.accounts.account import Account, Siblings
from local_worker.core.accounts.tree import AccountTree, ClassedAccounts
from local_worker.core.request import Request
from serving.cost import Cost, charge


class Charging:
    """The cost of a request's progress, in micro-units not divided by its weight.

    Both the policies' accounts and the service ledger charge it.
    """

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        # The highest cost of one more token of a prompt. A constant part of the cost is charged with the last token.
        self.most_per_token = max(cost.extend(2, 0) - cost.extend(1, 0), cost.extend(2, 2) - cost.extend(1, 1))

    def extend(self, request: Request, tokens: int) -> int:
        """Return the cost of computing the last `tokens` of the prompt.

        The prompt tokens before them were cached. System messages come first in the prompt.
        """
        held = request.prompt_tokens - tokens
        return self._cost.extend(tokens, min(tokens, max(0, request.system_tokens - held)))

    def part(self, request: Request, start: int, stop: int) -> int:
        """Return the cost of the prompt's positions `[start, stop)`; the costs of adjacent parts add up."""
        length = request.prompt_tokens
        return self.extend(request, length - start) - self.extend(request, length - stop)

    def again(self, tokens: int) -> int:
        """Return the cost of `tokens` that are computed once more, of the prompt or of the output."""
        return self._cost.extend(tokens, 0)

    def decode(self, request: Request, tokens: int) -> int:
        """Return the cost of the last `tokens` that were generated."""
        before = len(request.tokens) - request.prompt_tokens - tokens
        return self._cost.decode(tokens, request.prompt_tokens, before)

    def due(self, request: Request, tokens: int) -> int:
        """Return the cost of the last `tokens` that were generated, without those that were charged ahead."""
        before = len(request.tokens) - request.prompt_tokens - tokens
        paid = request.reserved - before
        if paid >= tokens:
            return 0
        if paid > 0:
            return self.output(request, request.reserved, before + tokens)
        return self._cost.decode(tokens, request.prompt_tokens, before)

    def next_output(self, request: Request) -> int:
        """Return the cost of the next output token."""
        return self.output(request, request.output_tokens, request.output_tokens + 1)

    def output(self, request: Request, start: int, stop: int) -> int:
        """Return the cost of the output tokens `[start, stop)`, whether or not they are generated yet."""
        return self._cost.decode(stop - start, request.prompt_tokens, start)


C = TypeVar("C")

# Largest number of clients watched at a time; every step compares each pair of them.
SAMPLED = 8
MEMORY_SECONDS = 60.0  # time constant of the moving average, in seconds in which requests waited
LEAST_SECONDS = 1.0  # shortest time for which the rate is meaningful


class ServiceLedger:
    """The service of all accounts, and at each level the gap between a few siblings that stay hungry.

    `Account.service` is the cost of the tokens that were computed and generated, as in the papers: prompt tokens that
    were not cached, and output tokens. Fairness is stated for `Account.weighted`: service over the requests' weights,
    plus the cost of what was withheld from others (room beyond a share, places in steps that outputs missed, what is
    computed again). The account of a forgotten client starts again from zero. Gaps are those of interactive requests.
    """

    def __init__(self, cost: Cost, accounts: AccountTree | ClassedAccounts) -> None:
        self.recomputed_tokens = 0  # number of tokens computed again after preemptions and losses of workers
        self.weighted = 0  # service over weight given to all clients, micro-units
        self.prompt_tokens = 0  # number of prompt tokens of all admitted requests
        self.cached_tokens = 0  # number of these tokens that were cached
        self.preemptions = 0  # number of times that a running request gave up its place and pages
        self.paused_decodes = 0  # number of output tokens that were put off, because an account was far ahead
        self.deferred_preemptions = 0  # number of steps in which the guard forbade that somebody gives way
        self._charging = Charging(cost)
        self.gaps = {level: SiblingGap() for level in accounts.levels.levels}  # the highest level first
        self.worst_gap = 0  # the largest gap observed between two siblings of any level, micro-units; see LiveGap
        self._changed: dict[Account, None] = {}  # accounts of clients

    def arrived(self, request: Request) -> None:
        """Record that `request` has joined the queue."""
        self._watch(request)
        self._changed[request.accounts[-1]] = None

    def _watch(self, request: Request) -> None:
        if not request.background:
            for account, gap in zip(reversed(request.account.lineage), self.gaps.values(), strict=True):
                gap.watch(account)

    def withdrawn(self, request: Request) -> None:
        """Record that `request` has left the queue without being served."""
        self._changed[request.accounts[-1]] = None

    def admitted(self, request: Request, found: int) -> None:
        """Record that `request`, whose prompt is not charged yet, has entered the running batch; `found` tokens of it
        were cached."""
        if not request.preemptions:
            self.prompt_tokens += request.prompt_tokens
        self.cached_tokens += found
        self._changed[request.accounts[-1]] = None

    def readmitted(self, request: Request) -> None:
        """Record that `request`, whose prompt is charged, has entered the running batch."""
        self._changed[request.accounts[-1]] = None

    def extended(self, request: Request, micro: int) -> None:
        """Count `micro` for a part of a prompt, computed in the name of `request`, as service."""
        self._count(request, micro, micro)

    def recomputed(self, request: Request, tokens: int, micro: int) -> None:
        """Record that `tokens` of `request` are computed again, and count `micro` as withheld from others.

        These tokens are no service to the client, which did not cause the recomputation.
        """
        self.recomputed_tokens += tokens
        self._count(request, 0, micro)

    def preempted(self, request: Request) -> None:
        """Record that `request` has left the running batch for the queue."""
        self.preemptions += 1
        self._watch(request)
        self._changed[request.accounts[-1]] = None

    def generated(self, request: Request, tokens: int) -> None:
        """Count the last `tokens` output tokens of `request` as service."""
        micro = self._charging.decode(request, tokens)
        self._count(request, micro, self._charging.due(request, tokens) if request.reserved else micro)

    def reserved(self, request: Request, ahead: range) -> None:
        """Count the output tokens `ahead`, for which `request` has room beyond its client's share, as service now.

        This room is withheld from other clients. The tokens do not count again when they are generated.
        """
        request.reserved = ahead.stop
        self._count(request, 0, self._charging.output(request, ahead.start, ahead.stop))

    def deferred(self, request: Request) -> None:
        """Count the place of `request` in a step in which it missed its token: others could have had it."""
        self._count(request, 0, self._charging.next_output(request))

    def finished(self, request: Request) -> None:
        """Record that `request` has left the running batch."""
        self._changed[request.accounts[-1]] = None

    def observe(self) -> None:
        """Measure the gaps; to be called once per step."""
        for gap in self.gaps.values():
            gap.observe(hungry_service)
            self.worst_gap = max(self.worst_gap, gap.worst)

    def _count(self, request: Request, micro: int, due: int) -> None:
        """Count `micro` as service and, over the weights, `due`: what others could have had and was not counted yet."""
        highest = charge(due, request.weight)
        below = highest if request.user_weight == request.weight else charge(due, request.user_weight)
        request.service += micro
        self.weighted += highest if micro == due else charge(micro, request.weight)
        for account in request.accounts:
            account.service += micro
            account.weighted += highest if account.is_highest else below
        self._changed[request.accounts[-1]] = None

    def take_changed(self) -> Iterable[Account]:
        """Return the accounts of clients that changed since the last call, in order of their first change."""
        changed, self._changed = self._changed, {}
        return changed


class LiveGap(Generic[C]):
    """The largest service gap that was observed.

    `worst` is the largest difference, in micro-units of service over weight, between the services that two watched
    clients received in an interval in which both were hungry. A value above the policy's bound shows that the
    proof or the code is wrong.
    """

    def __init__(self) -> None:
        self.worst = 0
        self._watched: dict[C, None] = {}
        # (f, g) -> the smallest and the largest value of service(f) - service(g) since both are hungry.
        self._leads: dict[tuple[C, C], tuple[int, int]] = {}

    def watch(self, client: C) -> None:
        """Record that `client` is hungry; watch the client if fewer than `SAMPLED` are watched."""
        if len(self._watched) < SAMPLED:
            self._watched.setdefault(client)

    def observe(self, service: Callable[[C], int | None]) -> None:
        """Measure the gap; to be called once per step.

        `service(client)` returns the client's service over weight so far, in micro-units; None when it is not
        hungry.
        """
        if not self._watched:
            return
        now: dict[C, int] = {}
        for client in self._watched:
            if (value := service(client)) is not None:
                now[client] = value
        if len(now) < len(self._watched):
            self._watched = dict.fromkeys(now)
            self._leads = {pair: leads for pair, leads in self._leads.items() if pair[0] in now and pair[1] in now}
        for pair in combinations(now, 2):
            lead = now[pair[0]] - now[pair[1]]
            least, greatest = self._leads.setdefault(pair, (lead, lead))
            if not least <= lead <= greatest:
                self._leads[pair] = least, greatest = min(least, lead), max(greatest, lead)
                self.worst = max(self.worst, greatest - least)


class SiblingGap(LiveGap[Account]):
    """The gap between accounts of one level that are siblings; others take their place when none of them waits."""

    def __init__(self) -> None:
        super().__init__()
        self._siblings: Siblings | None = None  # to which the watched accounts belong

    def watch(self, client: Account) -> None:
        """See LiveGap; an account that is no sibling of the watched ones is not watched."""
        if not self._watched:
            self._siblings = client.siblings
        if self._siblings is client.siblings:
            super().watch(client)


def hungry_service(account: Account) -> int | None:
    """Return the service over weight of an account that is hungry, in micro-units; None for others."""
    return account.weighted if account.hungry else None


class ServiceRate:
    """A moving average of the service over weight that all clients receive per second while requests wait.

    A worker for which no request waits serves as much as is asked of it, which does not show how fast it could be. The
    bound is about clients that wait.
    """

    def __init__(self) -> None:
        # Micro-units of service, and the seconds in which they were given; both decay with time.
        self._service = 0.0
        self._seconds = 0.0
        self._served = 0
        self._updated_at = 0.0
        self._is_full = False

    @property
    def micro_per_second(self) -> float:
        """The rate in micro-units per second; 0.0 until requests have waited for `LEAST_SECONDS`."""
        return self._service / self._seconds if self._seconds >= LEAST_SECONDS else 0.0

    def observe(self, served: int, is_full: bool, now: float) -> None:
        """Update the average; to be called once per step.

        `served` is the service over weight since the start, in micro-units; `is_full` says whether requests wait from
        `now` (seconds) on.
        """
        if self._is_full:
            seconds = now - self._updated_at
            kept = math.exp(-seconds / MEMORY_SECONDS)
            self._service = self._service * kept + served - self._served
            self._seconds = self._seconds * kept + seconds
        self._served, self._updated_at, self._is_full = served, now, is_full

    def check_invariants(self) -> None:
        """Raise AssertionError when the averaged service or time is negative."""
        assert self._service >= 0, f"service {self._service}"
        assert self._seconds >= 0, f"full for {self._seconds} s"
