"""The service that each client has received, and its numbers of waiting and running requests, under any policy."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from local_worker.core.charging import Charging
from local_worker.core.fairness_levels import FLAT, FairnessLevels
from local_worker.core.request import Request
from local_worker.core.share_ledger import ShareLedger
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap
from serving.cost import Cost, charge


@dataclass(slots=True)
class ClientAccount:
    """The account of one client: two totals in micro-units, and numbers of requests.

    `service` is the cost of the tokens that were computed and generated. Fairness is stated for `weighted`: service
    over the requests' weights, plus the cost of what the client withheld from others (forfeited charges, room beyond
    its share, places in steps that its outputs missed).
    """

    client: str
    service: int = 0
    weighted: int = 0
    waiting: int = 0
    running: int = 0


class ServiceLedger:
    """The accounts of all clients that have requests, and of some that have none.

    Service is measured as in the papers: prompt tokens that were computed because they were not cached, and tokens that
    were generated. Of the clients without requests only the `most_idle` that became idle last are kept; the account of
    a forgotten client starts again from zero.
    """

    def __init__(self, cost: Cost, most_idle: int = MOST_IDLE, levels: FairnessLevels = FLAT) -> None:
        self.shares = ShareLedger(levels, most_idle)
        self.recomputed_tokens = 0  # number of tokens computed again after preemptions and losses of workers
        self.weighted = 0  # service over weight given to all clients, micro-units
        self.prompt_tokens = 0  # number of prompt tokens of all admitted requests
        self.cached_tokens = 0  # number of these tokens that were cached
        self._charging = Charging(cost)
        self._accounts: BoundedClientMap[str, ClientAccount] = BoundedClientMap(most_idle)
        self._changed: dict[str, ClientAccount] = {}

    @property
    def accounts(self) -> Collection[ClientAccount]:
        """The account of every client that is kept."""
        return self._accounts.values()

    def waiting(self, client: str) -> int:
        """Return the number of the client's requests in the queue."""
        account = self._accounts.get(client)
        return account.waiting if account else 0

    def arrived(self, request: Request) -> None:
        """Record that `request` has joined the queue."""
        account = self._account(request)
        self._accounts.activate(request.client)
        account.waiting += 1
        self.shares.arrived(request)

    def withdrawn(self, request: Request) -> None:
        """Record that `request` left the queue without being served.

        Its prepaid cost counts as service to its client: a client gets no compensation for a charge that it forfeits.
        """
        account = self._account(request)
        account.waiting -= 1
        if request.prepaid:
            account.weighted += charge(request.prepaid, request.weight)
            self.shares.charged(request, request.prepaid)
        self.shares.entered(request)
        self.shares.ended(request)
        self._close_if_idle(account)

    def admitted(self, request: Request) -> None:
        """Record that `request` has entered the running batch for the first time, and count its prompt as service."""
        account = self._account(request)
        account.waiting -= 1
        account.running += 1
        self.shares.entered(request)
        self.prompt_tokens += request.prompt_tokens
        self.cached_tokens += request.cached
        micro = self._charging.extend(request, request.prompt_tokens - request.cached)
        self._serve(account, request, micro, micro)

    def preempted(self, request: Request) -> None:
        """Record that `request` has left the running batch for the queue."""
        account = self._account(request)
        account.waiting += 1
        account.running -= 1
        self.shares.preempted(request)

    def readmitted(self, request: Request, recomputed: int) -> None:
        """Record that `request` has entered a running batch again and computes `recomputed` tokens again.

        These tokens are no service to the client, which did not cause the recomputation.
        """
        account = self._account(request)
        account.waiting -= 1
        account.running += 1
        self.shares.entered(request)
        self.recomputed_tokens += recomputed

    def generated(self, request: Request, tokens: int) -> None:
        """Count the last `tokens` output tokens of `request` as service."""
        micro = self._charging.decode(request, tokens)
        due = self._charging.due(request, tokens) if request.reserved else micro
        self._serve(self._account(request), request, micro, due)

    def reserved(self, request: Request, ahead: range) -> None:
        """Count the output tokens `ahead`, for which `request` has room beyond its client's share, as service now.

        This room is withheld from other clients. The tokens do not count again when they are generated.
        """
        request.reserved = ahead.stop
        account = self._account(request)
        micro = self._charging.output(request, ahead.start, ahead.stop)
        account.weighted += charge(micro, request.weight)
        self.shares.charged(request, micro)

    def deferred(self, request: Request) -> None:
        """Count the place of `request` in a step in which it missed its token: others could have had it."""
        micro = self._charging.next_output(request)
        self._account(request).weighted += charge(micro, request.weight)
        self.shares.charged(request, micro)

    def _serve(self, account: ClientAccount, request: Request, micro: int, due: int) -> None:
        """Count `micro` as service, and `due`, the part not yet counted for fairness, over the weight as `weighted`."""
        account.service += micro
        request.service += micro
        weighted = charge(micro, request.weight)
        self.weighted += weighted
        account.weighted += weighted if due == micro else charge(due, request.weight)
        self.shares.charged(request, due)

    def finished(self, request: Request) -> None:
        """Record that `request` has left the running batch."""
        account = self._account(request)
        account.running -= 1
        self.shares.ended(request)
        self._close_if_idle(account)

    def _close_if_idle(self, account: ClientAccount) -> None:
        if not account.waiting and not account.running:
            self._accounts.rest(account.client)

    def take_changed(self) -> Iterable[ClientAccount]:
        """Return the accounts that changed since the last call, in order of their first change."""
        changed, self._changed = self._changed, {}
        return changed.values()

    def _account(self, request: Request) -> ClientAccount:
        account = self._accounts.get(request.client)
        if account is None:
            account = self._accounts[request.client] = ClientAccount(request.client)
        self._changed[request.client] = account
        return account
