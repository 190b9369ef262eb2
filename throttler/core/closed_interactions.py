"""What is remembered of closed interactions, so that their older tokens are worthless: a bounded amount per client."""

from dataclasses import dataclass, field

from throttler.core.interaction_tokens import InteractionKey, TokenClaim

MOST = 256  # remembered per client


@dataclass(slots=True, eq=False)
class _Client:
    closed: dict[InteractionKey, TokenClaim] = field(
        default_factory=dict
    )  # key -> its last token's; oldest closure first
    floor: float = float("-inf")  # tokens of interactions opened until then prove nothing any more
    until: float = 0.0  # when all tokens of what is here are too old


class ClosedInteractions:
    """Per client the newest closures; of older ones only that whatever opened before the last of them is over.

    A client that closes more than MOST interactions within max_age may so lose the protection of an old interaction
    that goes on at another gateway: it errs against protection, never for it.
    """

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}  # the one whose last closure is longest ago first

    def add(self, key: InteractionKey, last: TokenClaim, until: float) -> None:
        """`key` closed, and its last token claims `last`; `until`: when that is too old anyway. Never decreasing."""
        client = self._clients[key.client] = self._clients.pop(key.client, _Client())
        client.closed.pop(key, None)
        client.closed[key] = last
        client.until = until
        if len(client.closed) > MOST:
            oldest = next(iter(client.closed))
            client.floor = max(client.floor, client.closed.pop(oldest).opened)

    def outlived_by(self, key: InteractionKey, claim: TokenClaim) -> bool:
        """Whether a token's claim is of an interaction that went on after what is known of its end."""
        client = self._clients.get(key.client)
        if client is None:
            return True
        last = client.closed.get(key)
        return claim.opened > client.floor and (last is None or claim.stage > last.stage)

    def forget(self, now: float) -> None:
        """Drop the clients whose last closure is out of date."""
        while self._clients:
            name, client = next(iter(self._clients.items()))
            if client.until > now:
                return
            del self._clients[name]

    def check_invariants(self) -> None:
        """Raise AssertionError when too much of a client is remembered, or in the wrong order."""
        last = float("-inf")
        for name, client in self._clients.items():
            assert 0 < len(client.closed) <= MOST, f"{name}: {len(client.closed)} closures"
            assert client.until >= last, f"{name}: kept behind a client whose last closure was later"
            last = client.until
