"""Trees of sessions: an agent's sub-agents have their own sessions, each of which names its parent session.

All sessions of a tree serve one purpose of the user, so they are one interaction, named after the root. Only the
sessions of sub-agents are remembered, a bounded number per client and in all. A sub-agent whose parent session was
forgotten counts in an interaction that has the name of this parent. To be forgotten gains nothing: such an interaction
opens like every other, and its first call counts towards the limits of the client.
"""

from typing import NamedTuple

PER_CLIENT = 64  # sub-agents' sessions that are remembered of one client
TOTAL = 100_000  # sub-agents' sessions that are remembered of all clients: a key that may name users can invent clients
SECONDS = 3600.0  # a client's sessions are forgotten after this time without a call of a sub-agent


class Session(NamedTuple):
    """A session and its parent, as a request names them."""

    id: str
    parent: str = ""  # the session that started it; empty: the session is a root


class _Client:
    __slots__ = ("roots", "used")
    used: float  # time of the last call of a sub-agent

    def __init__(self) -> None:
        self.roots: dict[str, str] = {}  # by sub-agent's session; the least recently used comes first


class SessionTree:
    """The sub-agents' sessions of every client. Times are seconds of a monotonic clock.

    Of a client above `per_client` sessions the least recently used session is forgotten; above `total` sessions of all
    clients, the least recently used client is.
    """

    def __init__(self, *, per_client: int = PER_CLIENT, total: int = TOTAL, seconds: float = SECONDS) -> None:
        self._per_client = per_client
        self._total = total
        self._seconds = seconds
        self._clients: dict[str, _Client] = {}  # the least recently used client comes first
        self._count = 0  # sessions of all clients

    def __len__(self) -> int:
        """Return the number of clients with remembered sessions."""
        return len(self._clients)

    def root(self, client: str, session: Session, now: float) -> str:
        """Return the id of the root above `session`, and remember it for sessions that name `session` as parent."""
        self._forget_unused(now)
        if not session.parent:
            return session.id
        found = self._take(client)
        root = found.roots.get(session.parent, session.parent)
        found.roots.pop(session.id, None)
        if root != session.id:  # two sessions may name each other
            found.roots[session.id] = root
        if len(found.roots) > self._per_client:
            del found.roots[next(iter(found.roots))]
        self._keep(client, found, now)
        return root

    def check_invariants(self) -> None:
        """Raise AssertionError with detail if a limit or the order of the clients is violated, or a count is wrong."""
        last = float("-inf")
        for client, found in self._clients.items():
            assert 0 < len(found.roots) <= self._per_client, f"{client}: {len(found.roots)} sessions"
            assert all(session != root for session, root in found.roots.items()), f"{client}: a root above itself"
            assert found.used >= last, f"{client}: kept behind a client whose sub-agents called later"
            last = found.used
        count = sum(len(found.roots) for found in self._clients.values())
        assert count == self._count <= self._total, f"{count} sessions, counted {self._count}, at most {self._total}"

    def _take(self, client: str) -> _Client:
        found = self._clients.pop(client, None) or _Client()
        self._count -= len(found.roots)
        return found

    def _keep(self, client: str, found: _Client, now: float) -> None:
        """Put a client that `_take` has returned behind the others, which are forgotten where that is too many."""
        if not found.roots:
            return
        found.used = now
        self._clients[client] = found
        self._count += len(found.roots)
        while self._count > self._total:
            self._take(next(iter(self._clients)))

    def _forget_unused(self, now: float) -> None:
        while self._clients:
            client, found = next(iter(self._clients.items()))
            if now - found.used < self._seconds:
                return
            self._take(client)
