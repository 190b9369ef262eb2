"""Hedged calls: a second peer is called if the first one is slow (Dean and Barroso, The Tail at Scale, 2013)."""

HEDGE_SECONDS = 0.5  # a worker that takes longer may have stopped; it would also look like the least loaded one
MOST = 2  # peers that work on one question at a time


class Hedge:
    """Decides which of several equal peers are asked one question, and takes the first answer alone.

    The next peer is asked when one fails, or when the only peer that is at work has had the question for `patience`
    seconds. Peers are numbered from 0 in the order in which they are asked; a driver asks them and tells what comes.
    """

    def __init__(self, peers: int, patience: float) -> None:
        self._peers = peers
        self._patience = patience
        self._asked = 0
        self._failed = 0
        self._is_answered = False
        self._due: float | None = None  # time at which the next peer is asked; None: not before one fails

    def ask(self, now: float) -> int | None:
        """Return the next peer to ask, at first and after a failure; None if none is left, or there is an answer."""
        self._due = None
        if self._is_answered or self._asked == self._peers:
            return None
        peer = self._asked
        self._asked += 1
        if self._asked - self._failed < MOST and self._asked < self._peers:
            self._due = now + self._patience
        return peer

    def failed(self, now: float) -> int | None:
        """Record that a peer cannot answer; return the peer to ask instead, if one is left."""
        self._failed += 1
        return self.ask(now)

    def tick(self, now: float) -> int | None:
        """Return the peer to ask because the one at work has taken too long; None before `next_deadline`."""
        return self.ask(now) if self._due is not None and now >= self._due else None

    def answered(self) -> bool:
        """Record an answer; return whether it counts: it is the first one."""
        is_first = not self._is_answered
        self._is_answered, self._due = True, None
        return is_first

    def next_deadline(self) -> float | None:
        """Return the time at which `tick` is due; None: never."""
        return self._due

    @property
    def exhausted(self) -> bool:
        """Return whether every peer has failed."""
        return self._failed == self._peers

    def check_invariants(self) -> None:
        """Raise AssertionError if too many peers are at work, or a peer is to be asked after the answer."""
        assert self._failed <= self._asked <= self._peers, f"{self._failed} of {self._asked} of {self._peers} failed"
        assert self._asked - self._failed <= MOST, f"{self._asked - self._failed} peers at work"
        assert self._due is None or not self._is_answered, "another peer is due after the answer"
