"""Check that queue policies charge clients for what they received, exactly once over all attempts of a call."""

import math
from collections.abc import Iterable

from local_worker.core.accounts.account import Account, Path
from local_worker.core.accounts.service_ledger import Charging
from local_worker.core.policies.protocol import ClassedPolicy, QueuePolicy
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.request import Request
from serving.cost import MICRO
from simulation.call import SimulatedCall
from simulation.spec import WorkerSpec
from simulation.worker import SimulatedAttempt, SimulatedWorker

DEFICITS = ("dlpm", "drr")  # policies whose balances only service and rounds change
COUNTERS = ("lcf", "vtc", "wsc")  # policies whose counters are at least the service: lifts add to them


class ChargeAuditor:
    """The auditor of all workers and of every request, also of those that only wait: they may pay for a slice of
    another one. Violations raise AssertionError."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._charging = Charging(spec.make_cost())
        self._attempts: dict[SimulatedCall, dict[Request, bool]] = {}  # and whether it came as charged already
        self._ran: dict[tuple[str, int], dict[Path, Account]] = {}  # by worker and life, at the last check

    def submitted(self, attempt: SimulatedAttempt, request: Request) -> None:
        """Record that a worker gets `attempt`."""
        self._attempts.setdefault(attempt.call, {})[request] = attempt.charged

    def check_charged_accounts(self, worker: SimulatedWorker) -> None:
        """Check the accounts of `worker` that a step may have charged: those with requests that run now, or ran at the
        last call."""
        life = worker.name, worker.life
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
        if isinstance(policy, ClassedPolicy):
            policy = policy.interactive
        least, most = policy.balance_range_micro or (-math.inf, math.inf)
        for account in accounts:
            balance, name = _balance(policy, account), f"{worker.name}, {account.path}"
            bounded = least if _is_in_range(policy, account) else -math.inf
            assert bounded <= balance <= most, f"{name}: balance {balance} not in {least} .. {most}"
            self._check_charged(name, account, balance)

    def _check_charged(self, name: str, account: Account, balance: int) -> None:
        spec = self._spec
        if spec.policy in DEFICITS:
            rest = (balance + account.weighted) % (spec.quantum_tokens * MICRO)
            assert not rest, f"{name}: balance {balance}, not charged by service and rounds alone"
        elif spec.policy in COUNTERS and (spec.policy != "wsc" or spec.cost == "normalized"):
            assert balance >= account.weighted, f"{name}: counter {balance}, charged less than the service"

    def check_calls(self) -> None:
        """Check all calls after the run.

        Until a token has come, an attempt is charged the part of its prompt that it computes, and later ones nothing.
        What all requests were charged is the cost of what was computed, whoever paid for a slice.
        """
        charged = cost = 0
        for call, attempts in self._attempts.items():
            for request, came_charged in attempts.items():
                prompt = 0 if came_charged else request.charged - request.cached
                due = 0 if request.seed_position else request.prompt_tokens - request.cached
                if request.output_tokens or came_charged:
                    assert prompt == due, f"call {call.number}: charged {prompt} for its prompt, {due} is due"
                charged += request.service
                cost += self._charging.output(request, 0, request.output_tokens)
                if prompt:
                    cost += self._charging.part(request, request.cached, request.charged)
        if not any(request.preemptions for attempts in self._attempts.values() for request in attempts):
            assert charged == cost, f"requests were charged {charged} for what costs {cost}"


def _is_in_range(policy: QueuePolicy, account: Account) -> bool:
    """Return whether the lower end of the range holds for `account`: in slices it does while a sibling is hungry."""
    return account.siblings.hungry > 0 or not isinstance(policy, SlicedDlpm)


def _balance(policy: QueuePolicy, account: Account) -> int:
    return policy.balance(account.name) if policy.balance_range_micro is None else account.balance
