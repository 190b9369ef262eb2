"""The users that a key names in calls that are open."""

from collections import Counter

from fairlead.errors import ClientLimit

RETRY_SECONDS = 1.0


class NamedUsers:
    """The users with open calls, of which a key may name at most `most` at a time.

    A user whose calls have ended makes room for another one at once. A user who is merely mentioned, in a call that is
    refused or in a look-up, does not count.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: Counter[str] = Counter()  # calls, by user

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, user: str) -> None:
        """Count an open call of `user`; raise ClientLimit if as many other users have calls open as may be named."""
        if user not in self._open and len(self._open) >= self.most:
            limit = f"max_users={self.most}"
            raise ClientLimit(
                f"the key names {len(self._open)} other users who have calls open; {limit}", RETRY_SECONDS
            )
        self._open[user] += 1

    def leave(self, user: str) -> None:
        """End an open call of `user`."""
        self._open[user] -= 1
        if not self._open[user]:
            del self._open[user]

    def check_invariants(self) -> None:
        """Raise AssertionError if a user is kept without a call."""
        assert all(calls > 0 for calls in self._open.values()), f"calls: {self._open}"
