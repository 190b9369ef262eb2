"""Detection of lost workers: a worker that is no longer a member and sends nothing either is lost."""

from collections.abc import Collection, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

Key = TypeVar("Key")


class WorkerActivity(Protocol):
    """The activity of one worker process, as its link observes it."""

    @property
    def attempts(self) -> Collection[Any]:
        """The attempts that the worker has and has not ended."""

    @property
    def received(self) -> int:
        """The number of messages that the worker has sent so far."""


class Suspicion(NamedTuple):
    """A worker that must send a message until `due` (seconds), after the first `received` ones."""

    due: float
    received: int


class Suspects(Generic[Key]):
    """The workers that are no members and still have attempts. Each may go on for as long as it sends messages.

    A scheduler that loses its connection to a worker reports that it has left. The worker has then failed, or only lost
    its scheduler; in the second case it finishes its requests.
    """

    def __init__(self, silent_seconds: float) -> None:
        self._silent_seconds = silent_seconds
        self._suspicions: dict[Key, Suspicion] = {}

    def lost(self, links: Mapping[Key, WorkerActivity], members: Collection[Key], now: float) -> list[Key]:
        """Return the workers whose links must be closed now: no members, and idle or silent for `silent_seconds`.

        To be called with the present links whenever the members change, and at `next_deadline`.
        """
        earlier, self._suspicions, lost = self._suspicions, {}, []
        for key, link in links.items():
            if key in members:
                continue
            suspicion = earlier.get(key)
            if suspicion is not None and now < suspicion.due:
                self._suspicions[key] = suspicion
            elif link.attempts and (suspicion is None or link.received > suspicion.received):
                self._suspicions[key] = Suspicion(now + self._silent_seconds, link.received)
            else:
                lost.append(key)
        return lost

    def next_deadline(self) -> float | None:
        """Return the time at which `lost` is due although the members have not changed; None: never."""
        return min((suspicion.due for suspicion in self._suspicions.values()), default=None)

    def check_invariants(self) -> None:
        """Raise AssertionError if a suspicion cannot be."""
        for key, suspicion in self._suspicions.items():
            assert suspicion.received >= 0, f"{key}: {suspicion}"
