"""The prompts that an engine with a loop of its own computes, of which long ones leave a part of each step to others.

Such an engine gives the tokens of a step to its requests in their order. If it gives each prompt at most the part T, a
quarter of a step, then three long prompts leave a quarter to short ones, wherever they are in its order.
"""

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

Prompt = TypeVar("Prompt", bound=Hashable)
PARTS = 4  # of a step, of which a prompt gets at most one


class LongMisses(Generic[Prompt]):
    """The prompts at one engine from which no token has come, with the number of their tokens that a step can take.

    A prompt of which more than T tokens are not cached is a *long miss*: a client has at most one at the engine, and
    all together have at most `most`.
    """

    def __init__(self, token_budget: int, most: int = PARTS - 1) -> None:
        self.part = max(1, token_budget // PARTS)  # T
        self.most = most
        self._counted: dict[Prompt, int] = {}  # tokens that the engine may compute in its next step
        self._long: dict[str, Prompt] = {}  # client -> its long miss

    def __len__(self) -> int:
        return len(self._long)

    @property
    def uncomputed(self) -> int:
        """The number of prompt tokens that the engine was given and may compute in its next step."""
        return sum(self._counted.values())

    @property
    def long(self) -> list[Prompt]:
        return list(self._long.values())

    def has(self, client: str) -> bool:
        return client in self._long

    def is_long(self, missing: int) -> bool:
        """Return whether a prompt of which `missing` tokens are not cached is a long miss."""
        return missing > self.part

    def is_closed(self, client: str, most: int) -> bool:
        """Return whether a long miss of `client` has to wait: it has another one at the engine, or there are `most`."""
        return client in self._long or len(self._long) >= most

    def enter(self, prompt: Prompt, client: str, missing: int, counted: int) -> None:
        """Record a prompt that goes to the engine, of which a step can take `counted` of `missing` tokens."""
        self._counted[prompt] = counted
        if self.is_long(missing):
            self._long[client] = prompt

    def count(self, prompt: Prompt, counted: int) -> None:
        """Record that a step can take `counted` tokens of a prompt at the engine."""
        self._counted[prompt] = counted

    def leave(self, prompt: Prompt, client: str) -> None:
        """Forget a prompt, which is computed or has left; one that is not known changes nothing."""
        self._counted.pop(prompt, None)
        if self._long.get(client) == prompt:
            del self._long[client]

    def check_invariants(self, prompts: Collection[Prompt]) -> None:
        """Raise AssertionError unless what is known is of `prompts`, those at the engine, and few of them are long."""
        assert all(prompt in prompts for prompt in self._counted), "a prompt is missing that is not at the engine"
        assert all(prompt in self._counted for prompt in self._long.values()), "a long miss has no tokens to compute"
        assert len(self._long) <= self.most, f"{len(self._long)} long misses at the engine"
