"""A bounded memory of closed interactions per client, which makes their older tokens invalid."""

from dataclasses import dataclass, field

from throttler.core.interaction_tokens import InteractionKey, TokenClaim

MOST = 256  # closed interactions that are remembered per client


@dataclass(slots=True, eq=False)
class _Client:
    closed: dict[InteractionKey, TokenClaim] = field(default_factory=dict)  # claim of the last token; oldest first
    floor: float = float("-inf")  # tokens of interactions opened at or before this time are invalid
    until: float = 0.0  # time at which the tokens of all these interactions have expired


class ClosedInteractions:
    """The newest MOST closures of each client; of older closures only the latest opening time is kept, the floor.

    Every interaction that opened at or before the floor counts as closed. A client that closes more than MOST
    interactions within max_age can therefore lose the protection of an old interaction that continues at another
    gateway. The error is always against protection.
    """

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}  # the client whose last closure is longest ago comes first

    def add(self, key: InteractionKey, last: TokenClaim, until: float) -> None:
        """Record that `key` closed; `last` is the claim of its last token.

        `until` is the time at which this token expires; it never decreases from call to call.
        """
        client = self._clients[key.client] = self._clients.pop(key.client, _Client())
        client.closed.pop(key, None)
        client.closed[key] = last
        client.until = until
        if len(client.closed) > MOST:
            oldest = next(iter(client.closed))
            client.floor = max(client.floor, client.closed.pop(oldest).opened)

    def outlived_by(self, key: InteractionKey, claim: TokenClaim) -> bool:
        """Return whether `claim` is of an interaction that is not known as closed, or continued after its closure."""
        client = self._clients.get(key.client)
        if client is None:
            return True
        last = client.closed.get(key)
        return claim.opened > client.floor and (last is None or claim.stage > last.stage)

    def forget(self, now: float) -> None:
        """Remove the clients whose tokens have all expired."""
        while self._clients:
            name, client = next(iter(self._clients.items()))
            if client.until > now:
                return
            del self._clients[name]

    def check_invariants(self) -> None:
        """Raise AssertionError if a client has too many closures, or clients are in the wrong order."""
        last = float("-inf")
        for name, client in self._clients.items():
            assert 0 < len(client.closed) <= MOST, f"{name}: {len(client.closed)} closures"
            assert client.until >= last, f"{name}: kept behind a client whose last closure was later"
            last = client.until
