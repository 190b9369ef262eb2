"""A limit on the bytes of prompts that wait to be tokenized."""

from collections import Counter

from fairlead.errors import ClientLimit

RETRY_SECONDS = 1.0


class WaitingPromptsLimiter:
    """The bytes of prompts that are read and not tokenized yet, limited over all clients.

    A client may add a prompt while its prompts take less than what is free (dynamic thresholds, Choudhury and Hahne
    1998): k clients that take all they can leave 1 / (k + 1) of the bytes free, so that no client is locked out by
    others. The last prompt of each client may exceed the limit by its own size.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._waiting: Counter[str] = Counter()  # bytes, by client
        self._bytes = 0

    def add(self, client: str, size: int) -> None:
        """Count a prompt of `size` bytes, above 0; raise ClientLimit if the client may not add one now."""
        if self._waiting[client] >= self._total - self._bytes:
            waiting = (
                f"{self._bytes} bytes of prompts wait to be tokenized, {self._waiting[client]} of them of this client"
            )
            raise ClientLimit(f"{waiting}; at most {self._total}", RETRY_SECONDS)
        self._waiting[client] += size
        self._bytes += size

    def remove(self, client: str, size: int) -> None:
        """Stop counting a prompt: it is tokenized, or its call has ended."""
        self._bytes -= size
        self._waiting[client] -= size
        if not self._waiting[client]:
            del self._waiting[client]

    def check_invariants(self) -> None:
        """Raise AssertionError unless the counts agree and no client is kept without a prompt."""
        assert self._bytes == self._waiting.total(), f"{self._bytes} bytes wait, clients have {self._waiting.total()}"
        assert all(size > 0 for size in self._waiting.values()), f"clients without prompts: {self._waiting}"
