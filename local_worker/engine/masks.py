"""What a model lets each token see, at any length: learned from the masks that it asks transformers for."""

from collections.abc import Callable
from typing import Any

import torch

from local_worker.engine.attention import UnsupportedModel

# (batch, head, query, key) -> whether the query sees the key; transformers' index-based masks.
Rule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
QUERIES = 7  # positions looked at, from the first to the last of a context
LONGEST = 1 << 20  # longer contexts are looked at up to here


class Masks:
    """Registered with transformers' AttentionMaskInterface for a dry run: a stand-in for each mask a model asks for."""

    def __init__(self, context: int, device: torch.device) -> None:
        self._keys = torch.arange(min(context, LONGEST), device=device)
        self._queries = torch.linspace(0, len(self._keys) - 1, QUERIES, device=device).long()[:, None]
        self._asked: list[tuple[torch.Tensor, Rule]] = []

    def __call__(self, *, q_length: int, kv_length: int, mask_function: Rule, **_: Any) -> torch.Tensor:
        """The stand-in: the model hands it to its attention."""
        stand_in = torch.empty(1, 1, q_length, kv_length, dtype=torch.bool)
        self._asked.append((stand_in, mask_function))
        return stand_in

    def check(self, mask: torch.Tensor | None, window: int | None) -> None:
        """Raise UnsupportedModel unless `mask` lets a token see itself and those before it, `window` in all at most."""
        rules = [rule for stand_in, rule in self._asked if stand_in is mask]
        if not rules:
            raise UnsupportedModel("the model makes its attention mask by itself, which is not supported")
        expected = self._keys <= self._queries
        if window is not None:
            expected &= self._keys > self._queries - window
        zero = self._keys[0]
        try:
            same = torch.equal(expected, rules[0](zero, zero, self._queries, self._keys).broadcast_to(expected.shape))
        except IndexError:  # it looks the positions up in what was computed for this text
            same = False
        if not same:
            raise UnsupportedModel("the attention mask is not causal within the window that its attention says")
