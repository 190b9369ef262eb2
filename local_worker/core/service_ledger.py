"""What each client received and has under way, whatever the policy."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from local_worker.core.charging import Charging
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap
from serving.cost import Cost, charge


@dataclass(slots=True)
class ClientAccount:
    """One client's row, in micro-units: `service` is what was computed and generated; `weighted`, which fairness is
    about, is over the requests' weights, with what the client kept from others: forfeits, and room beyond its share."""

    client: str
    service: int = 0
    weighted: int = 0
    waiting: int = 0
    running: int = 0


class ServiceLedger:
    """Counts as the papers measure service: tokens computed that no cache held, and tokens generated.

    Of more than `most_idle` clients without requests, the longest idle is forgotten: it counts from zero again.
    """

    def __init__(self, cost: Cost, most_idle: int = MOST_IDLE) -> None:
        self.recomputed_tokens = 0  # work that preemptions and lost workers cost, in tokens
        self.weighted = 0  # service over weight given to all clients, micro-units
        self.prompt_tokens = 0  # of requests that were admitted
        self.cached_tokens = 0  # of these, those that the prefix cache held
        self._charging = Charging(cost)
        self._accounts: BoundedClientMap[str, ClientAccount] = BoundedClientMap(most_idle)
        self._changed: dict[str, ClientAccount] = {}

    @property
    def accounts(self) -> Collection[ClientAccount]:
        """Of every client that is remembered."""
        return self._accounts.values()

    def waiting(self, client: str) -> int:
        """The client's requests in the queue."""
        account = self._accounts.get(client)
        return account.waiting if account else 0

    def arrived(self, request: Request) -> None:
        """`request` joined the queue."""
        account = self._account(request)
        self._accounts.activate(request.client)
        account.waiting += 1

    def withdrawn(self, request: Request) -> None:
        """`request` left the queue without being served. What it had prepaid counts as if its client had been served:
        nobody is owed what a client threw away."""
        account = self._account(request)
        account.waiting -= 1
        if request.prepaid:
            account.weighted += charge(request.prepaid, request.weight)
        self._left(account)

    def admitted(self, request: Request) -> None:
        """`request` entered the running batch."""
        account = self._account(request)
        account.waiting -= 1
        account.running += 1
        self.prompt_tokens += request.prompt_tokens
        self.cached_tokens += request.cached
        micro = self._charging.extend(request, request.prompt_tokens - request.cached)
        self._serve(account, request, micro, micro)

    def preempted(self, request: Request) -> None:
        """`request` left the running batch for the queue."""
        account = self._account(request)
        account.waiting += 1
        account.running -= 1

    def readmitted(self, request: Request, recomputed: int) -> None:
        """`request` entered a batch again. What is computed anew is not the client's fault, and no service to it."""
        account = self._account(request)
        account.waiting -= 1
        account.running += 1
        self.recomputed_tokens += recomputed

    def generated(self, request: Request, tokens: int) -> None:
        """`request` was given output tokens."""
        micro = self._charging.decode(request, tokens)
        due = self._charging.due(request, tokens) if request.reserved else micro
        self._serve(self._account(request), request, micro, due)

    def reserved(self, request: Request, ahead: range) -> None:
        """`request` has room for these output tokens beyond its client's share: kept from others, they count as given,
        and not again when they are generated."""
        request.reserved = ahead.stop
        account = self._account(request)
        account.weighted += charge(self._charging.output(request, ahead.start, ahead.stop), request.weight)

    def _serve(self, account: ClientAccount, request: Request, micro: int, due: int) -> None:
        """`due`: what of it has not been counted for fairness."""
        account.service += micro
        request.service += micro
        weighted = charge(micro, request.weight)
        self.weighted += weighted
        account.weighted += weighted if due == micro else charge(due, request.weight)

    def backlogged(self, client: str) -> int | None:
        """The client's service over weight while it has requests in the queue; None otherwise."""
        account = self._accounts.get(client)
        return account.weighted if account and account.waiting else None

    def finished(self, request: Request) -> None:
        """`request` left the running batch."""
        account = self._account(request)
        account.running -= 1
        self._left(account)

    def _left(self, account: ClientAccount) -> None:
        if not account.waiting and not account.running:
            self._accounts.rest(account.client)

    def take_changed(self) -> Iterable[ClientAccount]:
        """The accounts that changed since the last call, in order of their first change."""
        changed, self._changed = self._changed, {}
        return changed.values()

    def _account(self, request: Request) -> ClientAccount:
        account = self._accounts.get(request.client)
        if account is None:
            account = self._accounts[request.client] = ClientAccount(request.client)
        self._changed[request.client] = account
        return account
