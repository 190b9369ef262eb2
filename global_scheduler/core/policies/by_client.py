"""Bounded memory per client."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

S = TypeVar("S")
Key = tuple[str, str]  # client, model
MOST = 100_000


class ByClient(Generic[S]):
    """A state per client and model, made when first asked for. Of more than `most`, the one unused longest goes."""

    def __init__(self, make: Callable[[], S], most: int = MOST) -> None:
        self._make = make
        self._most = most
        self._states: OrderedDict[Key, S] = OrderedDict()

    def of(self, client: str, model: str) -> S:
        """The client's state, used now."""
        key = (client, model)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = self._make()
            if len(self._states) > self._most:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(key)
        return state

    def find(self, client: str, model: str) -> S | None:
        """The client's state, if it is remembered."""
        return self._states.get((client, model))

    def __iter__(self) -> Iterator[tuple[Key, S]]:
        return iter(self._states.items())

    def __len__(self) -> int:
        return len(self._states)
