"""Trees of sessions: an agent's sub-agents have their own sessions, each of which names its parent session.

All sessions of a tree serve one purpose of the user, so they are one interaction, named after the root. Only the
sessions of sub-agents are remembered, a bounded number per client and in all. A sub-agent whose parent session was
forgotten counts in an interaction that has the name of this parent. To be forgotten gains nothing: such an interaction
opens like every other, and its first call counts towards the limits of the client.
"""

from typing import NamedTuple

from gateway.core.recent_names import RecentNames

PER_CLIENT = 64  # sub-agents' sessions that are remembered of one client
TOTAL = 100_000  # sub-agents' sessions that are remembered of all clients: a key that may name users can invent clients
SECONDS = 3600.0  # a client's sessions are forgotten after this time without a call of a sub-agent


class Session(NamedTuple):
    """A session and its parent, as a request names them."""

    id: str
    parent: str = ""  # the session that started it; empty: the session is a root


class SessionTree:
    """The sub-agents' sessions of every client. Times are seconds of a monotonic clock.

    Of a client above `per_client` sessions the least recently used session is forgotten; above `total` sessions of all
    clients, the least recently used client is.
    """

    def __init__(self, *, per_client: int = PER_CLIENT, total: int = TOTAL, seconds: float = SECONDS) -> None:
        self._roots = RecentNames(per_client=per_client, total=total, seconds=seconds)

    def __len__(self) -> int:
        """Return the number of clients with remembered sessions."""
        return len(self._roots)

    def root(self, client: str, session: Session, now: float) -> str:
        """Return the id of the root above `session`, and remember it for sessions that name `session` as parent."""
        if not session.parent:
            return session.id
        root = self._roots.find(client, session.parent, now) or session.parent
        # Two sessions may name each other: none is above itself.
        self._roots.remember(client, session.id, None if root == session.id else root, now)
        return root

    def check_invariants(self) -> None:
        """Raise AssertionError with detail if what is remembered is too much or contradicts itself."""
        self._roots.check_invariants()
