"""Find the root of a tree of sessions: an agent's sub-agents have sessions of their own, and name their parent's.

All of them serve one purpose of the user, so they count as one interaction, which has the name of the root. What is
remembered are the sub-agents' sessions alone, a bounded number per client: without it, a sub-agent of a forgotten one
counts in an interaction that has its parent's name.
"""

from typing import NamedTuple

MOST = 64  # sub-agents' sessions remembered per client
SECONDS = 3600.0  # without a sub-agent's call, after which a client's are forgotten


class Session(NamedTuple):
    """A session as a request names it."""

    id: str
    parent: str = ""  # the session that started it; empty: it is a root


class _Client:
    __slots__ = ("roots", "used")

    def __init__(self) -> None:
        self.roots: dict[str, str] = {}  # of a sub-agent's session; the one whose call is longest ago first
        self.used = 0.0  # when a sub-agent last called


class SessionTree:
    """The sub-agents' sessions of every client. Times are seconds of one clock that never goes back."""

    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        self._most = most
        self._seconds = seconds
        self._clients: dict[str, _Client] = {}  # the one whose sub-agents last called longest ago first

    def __len__(self) -> int:
        """Return of how many clients something is remembered."""
        return len(self._clients)

    def root(self, client: str, session: Session, now: float) -> str:
        """Return the id of the root above `session`, and remember it for those that will name it as their parent."""
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
        """Raise AssertionError with detail when too much is remembered, or in the wrong order."""
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
