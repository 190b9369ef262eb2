"""A limit on the number of open calls."""

from collections import Counter

from fairlead.errors import ClientLimit, QueueFull
from serving.names import tenant_of

RETRY_SECONDS = 1.0
RESERVED = 1 / 8  # part of all places that only protected calls may take
OF_FREE = 4  # a tenant may have this many times as many calls open as there are free places


class OpenCallLimiter:
    """The number of open calls, limited per client, per tenant and over all clients.

    All users of a tenant together may have `OF_FREE` times as many calls open as there are free places, and a client no
    more than there are free places, nor than its tenant may still open (dynamic thresholds, Choudhury and Hahne 1998).
    k tenants that take all they can leave 1 / (4 k + 1) of the places free, however many users they name, and k users
    of a tenant leave 1 / (k + 1) of its places: no client is locked out by others. Protected calls may also take the
    reserve and have no limit per client, because the throttle caps their number.
    """

    def __init__(self, *, per_client: int, total: int) -> None:
        self._per_client = per_client
        self._total = total
        self._reserve = round(RESERVED * total)
        self._open: Counter[str] = Counter()  # by client
        self._of_tenant: Counter[str] = Counter()
        self._count = 0

    @property
    def count(self) -> int:
        """Return the number of open calls."""
        return self._count

    def open(self, client: str, protected: bool) -> None:
        """Count a call in, `protected` by an interaction in progress or not; raises ClientLimit or QueueFull."""
        if not protected and self._open[client] >= self._per_client:
            limit = f"max_streams_per_client={self._per_client}"
            raise ClientLimit(f"client {client!r} has {self._open[client]} calls open; {limit}", RETRY_SECONDS)
        tenant, free = tenant_of(client), self._total - self._count - (0 if protected else self._reserve)
        if self._open[client] >= min(free, OF_FREE * free - self._of_tenant[tenant]):
            message = (
                f"the gateway has {self._count} calls open, {self._of_tenant[tenant]} of them of tenant {tenant!r}, "
                f"{self._open[client]} of client {client!r}"
            )
            raise QueueFull(f"{message}; max_streams={self._total}", RETRY_SECONDS)
        self._open[client] += 1
        self._of_tenant[tenant] += 1
        self._count += 1

    def close(self, client: str) -> None:
        """Release one open call of `client`."""
        self._count -= 1
        for counter, name in ((self._open, client), (self._of_tenant, tenant_of(client))):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no client is kept without a call."""
        assert self._count == self._open.total(), f"{self._count} calls open, clients have {self._open.total()}"
        assert all(count > 0 for count in self._open.values()), f"clients without calls: {self._open}"
        tenants: dict[str, int] = {}
        for client, count in self._open.items():
            tenants[tenant_of(client)] = tenants.get(tenant_of(client), 0) + count
        assert {**self._of_tenant} == tenants, f"tenants have {tenants} calls open, counted {self._of_tenant}"
