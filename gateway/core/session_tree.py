"""Trees of sessions: an agent's sub-agents have their own sessions, each of which names its parent session.

All sessions of a tree serve one purpose of the user, so they are one interaction, named after the root. Only the
sessions of sub-agents are remembered, a bounded number per client. A sub-agent whose parent session was forgotten
counts in an interaction that has the name of this parent.
"""

from typing import NamedTuple

MOST = 64  # sub-agents' sessions that are remembered per client
SECONDS = 3600.0  # a client's sessions are forgotten after this time without a call of a sub-agent


class Session(NamedTuple):
    """A session and its parent, as a request names them."""

    id: str
    parent: str = ""  # the session that started it; empty: the session is a root


class _Client:
    __slots__ = ("roots", "used")

    def __init__(self) -> None:
        self.roots: dict[str, str] = {}  # by sub-agent's session; the least recently used comes first
        self.used = 0.0  # time of the last call of a sub-agent


class SessionTree:
    """The sub-agents' sessions of every client. Times are seconds of a monotonic clock."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._clients: dict[str, _Client] = {}  # the least recently used client comes first

    def __len__(self) -> int:
        """Return the number of clients with remembered sessions."""
        return len(self._clients)

    def root(self, client: str, session: Session, now: float) -> str:
        """Return the id of the root above `session`, and remember it for sessions that name `session` as parent."""
        self._forget(now)
        if not session.parent:
            return session.id
        found = self._clients.pop(client, _Client())
        found.used = now
        self._clients[client] = found
        root = found.roots.get(session.parent, session.parent)
        found.roots.pop(session.id, None)
        if root != session.id:  # two sessions may name each other
            found.roots[session.id] = root
        if len(found.roots) > self._most:
            del found.roots[next(iter(found.roots))]
        return root

    def check_invariants(self) -> None:
        """Raise AssertionError with detail if too many sessions are remembered, or clients are in the wrong order."""
        last = float("-inf")
        for client, found in self._clients.items():
            assert len(found.roots) <= self._most, f"{client}: {len(found.roots)} sessions, at most {self._most}"
            assert all(session != root for session, root in found.roots.items()), f"{client}: a root above itself"
            assert found.used >= last, f"{client}: kept behind a client whose sub-agents called later"
            last = found.used

    def _forget(self, now: float) -> None:
        while self._clients:
            client, found = next(iter(self._clients.items()))
            if now - found.used < self._seconds:
                return
            del self._clients[client]
