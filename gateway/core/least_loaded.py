"""The gateway's own choice of a worker: where no scheduler leads, or where the leader knows of no worker."""

from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from fairlead.errors import Unavailable


class Candidate(Protocol):
    """A worker process that may be chosen."""

    @property
    def instance(self) -> str:
        """The id of the process; a worker that restarts has another one."""


C = TypeVar("C", bound=Candidate)


def least_loaded(candidates: Collection[C], excluded: Collection[str], load: Callable[[C], int]) -> C | None:
    """Return the first of the candidates with the least load; None if the instances of all are excluded."""
    return min((each for each in candidates if each.instance not in excluded), key=load, default=None)


def no_worker(model: str, serving: Collection[Candidate], excluded: Collection[str]) -> Unavailable:
    """Return the error for a request that no worker can take; `serving` are the members that serve its model.

    Each worker process in `excluded` had an attempt of the request, and was lost or refused to continue it.
    """
    if serving and all(member.instance in excluded for member in serving):
        workers = "the only worker" if len(serving) == 1 else f"each of the {len(serving)} workers"
        return Unavailable(f"{workers} of model {model!r} had the request, and was lost or refused to continue it")
    return Unavailable(f"no live worker serves model {model!r}")
