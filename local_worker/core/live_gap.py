"""The theorems' gap, measured while the worker runs: among a few clients that are backlogged all the time."""

from collections.abc import Callable
from itertools import combinations

# Clients watched at a time; their pairs are looked at in every step.
SAMPLED = 8


class LiveGap:
    """`worst` is the largest difference of service over weight, micro-units, that two watched clients received over an
    interval in which both had requests waiting. Above the policy's bound, a proof or its code is wrong."""

    def __init__(self) -> None:
        self.worst = 0
        self._watched: dict[str, None] = {}
        # (f, g) -> the least and the greatest lead of f over g since both are backlogged.
        self._leads: dict[tuple[str, str], tuple[int, int]] = {}

    def watch(self, client: str) -> None:
        """`client` has a request waiting; it is watched if there is room."""
        if len(self._watched) < SAMPLED:
            self._watched.setdefault(client)

    def observe(self, service: Callable[[str], int | None]) -> None:
        """Once per step. `service(client)` over its weight so far; None when it has nothing waiting."""
        now = {client: value for client in self._watched if (value := service(client)) is not None}
        if len(now) < len(self._watched):
            self._watched = dict.fromkeys(now)
            self._leads = {pair: leads for pair, leads in self._leads.items() if pair[0] in now and pair[1] in now}
        for pair in combinations(now, 2):
            lead = now[pair[0]] - now[pair[1]]
            least, greatest = self._leads.get(pair, (lead, lead))
            self._leads[pair] = least, greatest = min(least, lead), max(greatest, lead)
            self.worst = max(self.worst, greatest - least)
