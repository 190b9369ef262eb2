"""Whether clients were charged for what they received, once: by queue policies and for every attempt of a call."""

from local_worker.core.charging import Charging
from local_worker.core.request import Request
from local_worker.core.service_ledger import ClientAccount
from serving.cost import MICRO
from simulation.call import SimulatedCall
from simulation.spec import WorkerSpec
from simulation.worker import SimulatedAttempt, SimulatedWorker

DEFICITS = ("dlpm", "drr")  # service and rounds are all that moves these accounts
COUNTERS = ("lcf", "vtc", "wsc")  # these are at least the service: lifts come on top


class ChargeAuditor:
    """Follows every worker, and every request that has entered a batch."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._charging = Charging(spec.make_cost())
        self._prepaid: dict[tuple[str, int, str], None] = {}  # worker, life, client: what barriers paid is kept
        self._attempts: dict[SimulatedCall, dict[Request, None]] = {}

    def entered(self, session: SimulatedAttempt, request: Request) -> None:
        """A worker begins with, or goes on with, `session`."""
        self._attempts.setdefault(session.call, {})[request] = None

    def check_accounts(self, worker: SimulatedWorker) -> None:
        """After a step: balances are in their range, and what the ledger counted as service was charged."""
        policy = worker.batcher.policy
        for request in worker.batcher.queue:
            if request.prepaid:
                self._prepaid[worker.name, worker.life, request.client] = None
        for account in worker.batcher.ledger.accounts:
            balance = policy.balance(account.client)
            if policy.balance_range_micro is not None:
                least, most = policy.balance_range_micro
                assert least <= balance <= most, f"{worker.name}, {account}: balance {balance} not in {least} .. {most}"
            if (worker.name, worker.life, account.client) not in self._prepaid:
                self._check_charged(worker.name, account, balance)

    def _check_charged(self, worker: str, account: ClientAccount, balance: int) -> None:
        spec = self._spec
        if spec.policy in DEFICITS:
            rest = (balance + account.weighted) % (spec.quantum_tokens * MICRO)
            assert not rest, f"{worker}, {account}: balance {balance}, not charged by service and rounds alone"
        elif spec.policy in COUNTERS and (spec.policy != "wsc" or spec.cost == "normalized"):
            assert balance >= account.weighted, f"{worker}, {account}: counter {balance}, charged less than the service"

    def check_calls(self) -> None:
        """After the run: each attempt was charged its own output, and of a call's attempts one the prompt."""
        for call, attempts in self._attempts.items():
            paid = False
            for request in attempts:
                service = request.service - self._charging.output(request, 0, request.output_tokens)
                prompt = self._charging.extend(request, request.prompt_tokens - request.cached)
                received = request.seed_position > 0  # of an earlier attempt, which therefore had been charged
                due = (0,) if received else (0, prompt) if paid else (prompt,)
                assert service in due, f"call {call.number}: charged {service} for its prompt, due is one of {due}"
                paid = True
