"""A limit on the bytes that are held for callers: of prompts that wait to be tokenized, or of unread outputs."""

from collections import Counter

from fairlead.errors import ClientLimit
from serving.names import tenant_of

RETRY_SECONDS = 1.0
OF_FREE = 4  # a tenant may hold this many times as many bytes as are free


class HeldBytesLimiter:
    """The bytes that are held for all clients; `what` completes "bytes of" in the message of an error.

    A tenant may hold `OF_FREE` times as many bytes as are free, and a client no more than are free, nor than its tenant
    may still hold (dynamic thresholds, Choudhury and Hahne 1998). k tenants that take all they can leave 1 / (4 k + 1)
    of the bytes free, however many users they name, and k users of a tenant leave 1 / (k + 1) of its bytes: no client
    is locked out by others. What each client adds last may exceed the limit by its own size.
    """

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._held: Counter[str] = Counter()  # bytes, by client
        self._of_tenant: Counter[str] = Counter()  # bytes
        self._bytes = 0

    def add(self, client: str, size: int) -> None:
        """Count `size` bytes more, above 0; raise ClientLimit if the client may not hold more now."""
        tenant, free = tenant_of(client), self._total - self._bytes
        if self._held[client] >= min(free, OF_FREE * free - self._of_tenant[tenant]):
            held = (
                f"{self._bytes} bytes of {self._what}, {self._of_tenant[tenant]} of them of tenant {tenant!r}, "
                f"{self._held[client]} of this client"
            )
            raise ClientLimit(f"{held}; at most {self._total}", RETRY_SECONDS)
        self._held[client] += size
        self._of_tenant[tenant] += size
        self._bytes += size

    def remove(self, client: str, size: int) -> None:
        """Count `size` bytes less, which the client has held."""
        self._bytes -= size
        for counter, name in ((self._held, client), (self._of_tenant, tenant_of(client))):
            counter[name] -= size
            if not counter[name]:
                del counter[name]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no client is kept that holds nothing."""
        assert self._bytes == self._held.total(), f"{self._bytes} bytes are held, clients hold {self._held.total()}"
        assert all(size > 0 for size in self._held.values()), f"clients that hold nothing: {self._held}"
        tenants: Counter[str] = Counter()
        for client, size in self._held.items():
            tenants[tenant_of(client)] += size
        assert self._of_tenant == tenants, f"bytes that are held by tenant: {tenants}, counted {self._of_tenant}"
