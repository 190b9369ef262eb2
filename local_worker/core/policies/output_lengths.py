"""The lengths of clients' latest outputs, from which the length of the next one is expected (VTC section 5.1)."""

from serving.bounded_client_map import BoundedClientMap

LAST_OUTPUTS = 5  # VTC section 5.1


class OutputLengths:
    """The number of tokens of each client's last five outputs, for the `most` clients whose outputs ended last."""

    def __init__(self, most: int) -> None:
        self._lengths: BoundedClientMap[str, tuple[int, ...]] = BoundedClientMap(most)

    def expected(self, client: str) -> int | None:
        """Return the mean length of the client's last outputs in tokens, rounded down; None if none is known."""
        lengths = self._lengths.get(client)
        return sum(lengths) // len(lengths) if lengths else None

    def ended(self, client: str, tokens: int) -> None:
        """Record that an output of `client` ended after `tokens` tokens."""
        self._lengths[client] = (*(self._lengths.get(client) or ()), tokens)[-LAST_OUTPUTS:]
        self._lengths.rest(client)
