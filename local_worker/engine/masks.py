"""Checks that a model's attention masks are causal at any length, from the mask functions that it passes to
transformers.
"""

from collections.abc import Callable
from typing import Any

import torch

from local_worker.engine.attention import UnsupportedModel

# (batch, head, query, key) -> whether the query sees the key; transformers' index-based masks.
Rule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
QUERIES = 7  # number of positions checked, from the first to the last of a context
LONGEST = 1 << 20  # number of tokens up to which a longer context is checked


class Masks:
    """The function that is registered with transformers' AttentionMaskInterface for a dry run.

    It returns a stand-in for each mask and remembers the mask's rule.
    """

    def __init__(self, context: int, device: torch.device) -> None:
        self._keys = torch.arange(min(context, LONGEST), device=device)
        self._queries = torch.linspace(0, len(self._keys) - 1, QUERIES, device=device).long()[:, None]
        self._asked: list[tuple[torch.Tensor, Rule]] = []

    def __call__(self, *, q_length: int, kv_length: int, mask_function: Rule, **_: Any) -> torch.Tensor:
        """Return a stand-in, which the model passes on to its attention."""
        stand_in = torch.empty(1, 1, q_length, kv_length, dtype=torch.bool)
        self._asked.append((stand_in, mask_function))
        return stand_in

    def check(self, mask: torch.Tensor | None, window: int | None) -> None:
        """Raise UnsupportedModel unless `mask` shows each token itself and those before it, at most `window` in all."""
        rules = [rule for stand_in, rule in self._asked if stand_in is mask]
        if not rules:
            raise UnsupportedModel("the model computes its attention mask itself, which is not supported")
        expected = self._keys <= self._queries
        if window is not None:
            expected &= self._keys > self._queries - window
        zero = self._keys[0]
        try:
            same = torch.equal(expected, rules[0](zero, zero, self._queries, self._keys).broadcast_to(expected.shape))
        except IndexError:  # the rule looks positions up in a table for the dry run's text
            same = False
        if not same:
            raise UnsupportedModel("the attention mask is not causal within the window of its attention")
