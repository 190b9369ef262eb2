"""The records of a run."""

from collections.abc import Callable
from dataclasses import dataclass, field

from local_worker.core.accounts.account import Account
from simulation.call import SimulatedCall

MICRO = 1_000_000


@dataclass(slots=True)
class RunLog:
    """Every call of a run, and each client's service over time as counted by the workers' ledgers.

    `service[client][second]` is the service, in cost units, that the client had received by the end of that second;
    only seconds in which it changed are present. `steps` counts engine steps; `seconds` is the time at which the last
    call ended.
    """

    calls: list[SimulatedCall] = field(default_factory=list)
    service: dict[str, dict[int, float]] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    worst_gap: int = 0  # micro-units of cost: the largest gap of a backlogged pair that any worker sampled
    bound: int | None = None
    _last: dict[tuple[str, int, str], int] = field(default_factory=dict)
    _totals: dict[str, int] = field(default_factory=dict)

    def ended(self, call: SimulatedCall) -> None:
        self.calls.append(call)

    def served(self, worker: str, life: int, account: Account, now: float) -> None:
        """Record a change of a worker's account; accounts start at 0 in each life of a worker."""
        client, key = account.name, (worker, life, account.name)
        total = self._totals.get(client, 0) + account.service - self._last.get(key, 0)
        self._last[key] = account.service
        self._totals[client] = total
        self.service.setdefault(client, {})[int(now)] = total / MICRO


class CountingRunLog(RunLog):
    """A run log that calls `on_ended` at the end of each call, to report the progress of a run."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        super().__init__()
        self._on_ended = on_ended

    def ended(self, call: SimulatedCall) -> None:
        super().ended(call)
        self._on_ended()
