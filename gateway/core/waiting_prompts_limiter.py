"""A limit on the bytes of prompts that wait to be tokenized."""

from collections import Counter

from fairlead.errors import ClientLimit
from serving.names import tenant_of

RETRY_SECONDS = 1.0
OF_FREE = 4  # the prompts of a tenant may take this many times as many bytes as are free


class WaitingPromptsLimiter:
    """The bytes of prompts that are read and not tokenized yet, limited over all clients.

    The prompts of a tenant may take `OF_FREE` times as many bytes as are free, and those of a client no more than are
    free, nor than its tenant may still take (dynamic thresholds, Choudhury and Hahne 1998). k tenants that take all
    they can leave 1 / (4 k + 1) of the bytes free, however many users they name, and k users of a tenant leave
    1 / (k + 1) of its bytes: no client is locked out by others. The last prompt of each client may exceed the limit by
    its own size.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._waiting: Counter[str] = Counter()  # bytes, by client
        self._of_tenant: Counter[str] = Counter()  # bytes
        self._bytes = 0

    def add(self, client: str, size: int) -> None:
        """Count a prompt of `size` bytes, above 0; raise ClientLimit if the client may not add one now."""
        tenant, free = tenant_of(client), self._total - self._bytes
        if self._waiting[client] >= min(free, OF_FREE * free - self._of_tenant[tenant]):
            waiting = (
                f"{self._bytes} bytes of prompts wait to be tokenized, {self._of_tenant[tenant]} of them of tenant "
                f"{tenant!r}, {self._waiting[client]} of this client"
            )
            raise ClientLimit(f"{waiting}; at most {self._total}", RETRY_SECONDS)
        self._waiting[client] += size
        self._of_tenant[tenant] += size
        self._bytes += size

    def remove(self, client: str, size: int) -> None:
        """Stop counting a prompt: it is tokenized, or its call has ended."""
        self._bytes -= size
        for counter, name in ((self._waiting, client), (self._of_tenant, tenant_of(client))):
            counter[name] -= size
            if not counter[name]:
                del counter[name]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no client is kept without a prompt."""
        assert self._bytes == self._waiting.total(), f"{self._bytes} bytes wait, clients have {self._waiting.total()}"
        assert all(size > 0 for size in self._waiting.values()), f"clients without prompts: {self._waiting}"
        tenants: Counter[str] = Counter()
        for client, size in self._waiting.items():
            tenants[tenant_of(client)] += size
        assert self._of_tenant == tenants, f"bytes that wait by tenant: {tenants}, counted {self._of_tenant}"
