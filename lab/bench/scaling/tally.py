"""A run log that only adds up: its size does not grow with the number of calls."""

import sys
from collections import Counter

from local_worker.core.accounts.account import Account
from local_worker.core.accounts.service_ledger import LiveGap
from simulation.call import SimulatedCall
from simulation.prompts import BLOCK_TOKENS
from simulation.run_log import RunLog

MILLISECONDS = 1000
SHOWN = 1000  # calls between two progress updates


class Tally(RunLog):
    """A run log of `expected` calls; its size grows only with the pool and the number of distinct waits in
    milliseconds."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self._expected = expected
        self.ended_calls = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.reported_blocks = 0  # blocks that workers cached; in the long run as many are evicted
        self.by_worker: Counter[str] = Counter()
        self._waits: Counter[int] = Counter()

    def ended(self, call: SimulatedCall) -> None:
        """Add the call to the sums and drop it; see RunLog."""
        self.ended_calls += 1
        self.prompt_tokens += call.prompt_tokens
        self.cached_tokens += call.cached_tokens
        self.reported_blocks += (call.prompt_tokens - call.cached_tokens + call.output_tokens) // BLOCK_TOKENS
        self.by_worker[call.worker] += 1
        if call.completed:
            self._waits[round(call.first_token_latency * MILLISECONDS)] += 1
        if sys.stderr.isatty() and not self.ended_calls % SHOWN:
            print(f"\r{self.ended_calls:,} of {self._expected:,} calls", end="", file=sys.stderr, flush=True)

    def served(self, worker: str, life: int, account: Account, now: float) -> None:
        """Ignore the change, which no sum needs; see RunLog."""

    def wait(self, percent: float) -> float:
        """Return that percentile of the times to the first token, in seconds; raises ValueError without any."""
        left = self._waits.total() * percent / 100
        for wait, calls in sorted(self._waits.items()):
            left -= calls
            if left <= 0:
                return wait / MILLISECONDS
        raise ValueError("no call was answered")


class PoolGap(Tally):
    """A tally with the theorem's gap over the pool: between users with requests waiting at all of `workers`."""

    def __init__(self, expected: int, workers: int) -> None:
        super().__init__(expected)
        self._workers = workers
        self._gap = LiveGap[str]()
        self._known: dict[
            tuple[str, str], tuple[int, bool]
        ] = {}  # (worker, client) to (service over weight, has waiting requests)
        self._service: Counter[str] = Counter()
        self._waits_at: Counter[str] = Counter()

    @property
    def pool_gap(self) -> int:
        """The largest gap in micro-units of cost; see LiveGap."""
        return self._gap.worst

    def served(self, worker: str, life: int, account: Account, now: float) -> None:
        """See RunLog."""
        key, client = (worker, account.name), account.name
        service, waits = self._known.get(key, (0, False))
        self._known[key] = account.weighted, account.waiting > 0
        self._service[client] += account.weighted - service
        self._waits_at[client] += (account.waiting > 0) - waits
        self._gap.watch(client)
        self._gap.observe(self._backlogged)

    def _backlogged(self, client: str) -> int | None:
        return self._service[client] if self._waits_at[client] == self._workers else None
