"""Limits on what clients hold at a gateway: open calls, and bytes of prompts that wait or of outputs that are unread.

Both give way to no flood by a dynamic threshold (Choudhury and Hahne 1998): a client may hold no more than is free, nor
than its tenant may still take, and a tenant OF_FREE times what is free. k tenants that take all they can leave
1 / (4 k + 1) of the whole free, however many users they name, and k users of a tenant leave 1 / (k + 1) of its part: no
client is locked out by others. Background calls count as those of a tenant of their own, for which half of the whole is
never free.
"""

from collections import Counter

from fairlead.errors import ClientLimit, QueueFull
from serving.names import tenant_of

RETRY_SECONDS = 1.0
RESERVED = 1 / 8  # part of all open calls that only protected calls may take
KEPT_FROM_BACKGROUND = 1 / 2  # part of a whole that background calls may not take
BACKGROUND = "(background)"
OF_FREE = 4  # a tenant may hold this many times as much as is free


def counted_as(client: str, *, background: bool) -> str:
    """Return the name under which calls of `client` count."""
    return f"{BACKGROUND}/{client}" if background else client


class DynamicThreshold:
    """The amounts that clients hold of a whole; see the module."""

    def __init__(self, whole: int) -> None:
        self.whole = whole
        self.held = 0
        self._of_client: Counter[str] = Counter()
        self._of_tenant: Counter[str] = Counter()

    def of_client(self, client: str) -> int:
        """Return what a client holds."""
        return self._of_client[client]

    def of_tenant(self, client: str) -> int:
        """Return what the client's tenant holds, with all of its users."""
        return self._of_tenant[tenant_of(client)]

    def take(self, client: str, amount: int, reserve: int = 0) -> bool:
        """Count an amount above 0; return False if the client may take none, while `reserve` counts as taken.

        The last amount of each client may exceed the threshold.
        """
        tenant = tenant_of(client)
        if tenant == BACKGROUND:
            reserve = round(KEPT_FROM_BACKGROUND * self.whole)
        free = self.whole - self.held - reserve
        if self._of_client[client] >= min(free, OF_FREE * free - self._of_tenant[tenant]):
            return False
        self._of_client[client] += amount
        self._of_tenant[tenant] += amount
        self.held += amount
        return True

    def give_back(self, client: str, amount: int) -> None:
        """Count an amount no longer that the client took."""
        self.held -= amount
        for counter, name in ((self._of_client, client), (self._of_tenant, tenant_of(client))):
            counter[name] -= amount
            if not counter[name]:
                del counter[name]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no client is kept that holds nothing."""
        assert self.held == self._of_client.total(), f"{self.held} held, by clients {self._of_client.total()}"
        assert all(amount > 0 for amount in self._of_client.values()), f"clients with nothing: {self._of_client}"
        tenants: Counter[str] = Counter()
        for client, amount in self._of_client.items():
            tenants[tenant_of(client)] += amount
        assert self._of_tenant == tenants, f"tenants hold {tenants}, counted {self._of_tenant}"


class OpenCallLimiter:
    """The number of open calls, limited per client, and by a dynamic threshold over all clients.

    Protected calls may also take the reserve and have no limit per client, because the throttle caps their number.
    """

    def __init__(self, *, per_client: int, total: int) -> None:
        self._per_client = per_client
        self._open = DynamicThreshold(total)
        self._reserve = round(RESERVED * total)

    @property
    def count(self) -> int:
        return self._open.held

    def open(self, client: str, protected: bool) -> None:
        """Count a call in, `protected` by an interaction in progress or not; raises ClientLimit or QueueFull."""
        held = self._open.of_client(client)
        if not protected and held >= self._per_client:
            limit = f"max_streams_per_client={self._per_client}"
            raise ClientLimit(f"client {client!r} has {held} calls open; {limit}", RETRY_SECONDS)
        if not self._open.take(client, 1, 0 if protected else self._reserve):
            message = (
                f"the gateway has {self._open.held} calls open, {self._open.of_tenant(client)} of them of tenant "
                f"{tenant_of(client)!r}, {held} of client {client!r}"
            )
            raise QueueFull(f"{message}; max_streams={self._open.whole}", RETRY_SECONDS)

    def close(self, client: str) -> None:
        self._open.give_back(client, 1)

    def check_invariants(self) -> None:
        self._open.check_invariants()


class HeldBytesLimiter:
    """The bytes that are held for all clients; `what` completes "bytes of" in the message of an error."""

    def __init__(self, total: int, what: str) -> None:
        self._held = DynamicThreshold(total)
        self._what = what

    def add(self, client: str, size: int) -> None:
        """Count `size` bytes more, above 0; raise ClientLimit if the client may not hold more now."""
        held = self._held
        if not held.take(client, size):
            message = (
                f"{held.held} bytes of {self._what}, {held.of_tenant(client)} of them of tenant "
                f"{tenant_of(client)!r}, {held.of_client(client)} of this client"
            )
            raise ClientLimit(f"{message}; at most {held.whole}", RETRY_SECONDS)

    def remove(self, client: str, size: int) -> None:
        self._held.give_back(client, size)

    def check_invariants(self) -> None:
        self._held.check_invariants()
