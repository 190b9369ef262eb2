"""The service gap of the fairness theorems, measured on a running worker over a few clients that stay hungry."""

from collections.abc import Callable
from itertools import combinations
from typing import Generic, TypeVar

from local_worker.core.accounts.account import Account, Siblings

C = TypeVar("C")

# Largest number of clients watched at a time; every step compares each pair of them.
SAMPLED = 8


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

    @property
    def is_idle(self) -> bool:
        """Return whether no client is watched."""
        return not self._watched

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
        now = {client: value for client in self._watched if (value := service(client)) is not None}
        if len(now) < len(self._watched):
            self._watched = dict.fromkeys(now)
            self._leads = {pair: leads for pair, leads in self._leads.items() if pair[0] in now and pair[1] in now}
        for pair in combinations(now, 2):
            lead = now[pair[0]] - now[pair[1]]
            least, greatest = self._leads.get(pair, (lead, lead))
            self._leads[pair] = least, greatest = min(least, lead), max(greatest, lead)
            self.worst = max(self.worst, greatest - least)


class SiblingGap(LiveGap[Account]):
    """The gap between accounts of one level that are siblings; others take their place when none of them waits."""

    def __init__(self) -> None:
        super().__init__()
        self._siblings: Siblings | None = None  # to which the watched accounts belong

    def watch(self, client: Account) -> None:
        """See LiveGap; an account that is no sibling of the watched ones is not watched."""
        if self.is_idle:
            self._siblings = client.siblings
        if self._siblings is client.siblings:
            super().watch(client)


def hungry_service(account: Account) -> int | None:
    """Return the service over weight of an account that is hungry, in micro-units; None for others."""
    return account.weighted if account.hungry else None
