"""Check that queue policies charge clients for what they received, exactly once over all attempts of a call."""

import math
from collections.abc import Iterable

from local_worker.core.accounts.account import Account, Path
from local_worker.core.accounts.charging import Charging
from local_worker.core.policies.dlpm import Dlpm
from local_worker.core.policies.protocol import QueuePolicy
from local_worker.core.request import Request
from serving.cost import MICRO
from simulation.call import SimulatedCall
from simulation.spec import WorkerSpec
from simulation.worker import SimulatedAttempt, SimulatedWorker

DEFICITS = ("dlpm", "drr")  # policies whose balances only service and rounds change
COUNTERS = ("lcf", "vtc", "wsc")  # policies whose counters are at least the service: lifts add to them


class ChargeAuditor:
    """The auditor of all workers and of every request that has entered a batch. Violations raise AssertionError."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._charging = Charging(spec.make_cost())
        self._prepaid: dict[tuple[str, int, Path], None] = {}  # (worker, life, account) charged ahead by barriers
        self._attempts: dict[SimulatedCall, dict[Request, None]] = {}
        self._ran: dict[tuple[str, int], dict[Path, Account]] = {}  # by worker and life, at the last check

    def entered(self, attempt: SimulatedAttempt, request: Request) -> None:
        """Record that a worker starts or resumes `attempt`."""
        self._attempts.setdefault(attempt.call, {})[request] = None

    def check_charged_accounts(self, worker: SimulatedWorker) -> None:
        """Check the accounts of `worker` that a step may have charged: those with requests that run now, or ran at the
        last call."""
        life = worker.name, worker.life
        for request in [request for request in worker.batcher.queue.waiting if request.prepaid]:
            self._prepaid.update(((*life, account.path), None) for account in request.account.lineage)
        now = {account.path: account for account in worker.batcher.queue.accounts if account.running}
        before, self._ran[life] = self._ran.get(life, {}), now
        self._check(worker, {**before, **now}.values())

    def check_accounts(self, worker: SimulatedWorker) -> None:
        """Check all accounts of `worker`."""
        self._check(worker, worker.batcher.queue.accounts)

    def _check(self, worker: SimulatedWorker, accounts: Iterable[Account]) -> None:
        """Check that each balance is in the range that its policy states, and that the service in the ledger was
        charged."""
        policy = worker.batcher.queue.policy
        least, most = policy.balance_range_micro or (-math.inf, math.inf)
        for account in accounts:
            balance, name = _balance(policy, account), f"{worker.name}, {account.path}"
            assert least <= balance <= most, f"{name}: balance {balance} not in {least} .. {most}"
            if (worker.name, worker.life, account.path) not in self._prepaid:
                self._check_charged(name, account, balance + _deposits(policy, account.path))

    def _check_charged(self, name: str, account: Account, balance: int) -> None:
        """Check `balance`, to which the deposits for output that is not generated yet are added."""
        spec = self._spec
        if spec.policy in DEFICITS:
            rest = (balance + account.weighted) % (spec.quantum_tokens * MICRO)
            assert not rest, f"{name}: balance {balance}, not charged by service and rounds alone"
        elif spec.policy in COUNTERS and (spec.policy != "wsc" or spec.cost == "normalized"):
            assert balance >= account.weighted, f"{name}: counter {balance}, charged less than the service"

    def check_calls(self) -> None:
        """Check all calls after the run.

        Each attempt was charged its own output; of the attempts of a call at most one was charged the prompt.
        """
        for call, attempts in self._attempts.items():
            paid = False
            for request in attempts:
                service = request.service - self._charging.output(request, 0, request.output_tokens)
                prompt = self._charging.extend(request, request.prompt_tokens - request.cached)
                received = request.seed_position > 0  # tokens of an earlier attempt, which was therefore charged
                due = (0,) if received else (0, prompt) if paid else (prompt,)
                assert service in due, f"call {call.number}: charged {service} for its prompt, due is one of {due}"
                paid = True


def _deposits(policy: QueuePolicy, path: Path) -> int:
    return policy.deposits_at(path) if isinstance(policy, Dlpm) else 0


def _balance(policy: QueuePolicy, account: Account) -> int:
    return account.balance if isinstance(policy, Dlpm) else policy.balance(account.name)
