"""What transformers' modelling code calls as its attention: keys and values go to pages, queries to a backend.

Queries of all requests come packed in one row; a backend knows from `plan` which tokens belong to whom.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from local_worker.core.batch import Slice
from local_worker.engine.kv import PagedKV

# What models pass that changes nothing here: no dropout at inference, and positions are in the queries already.
HARMLESS = frozenset(
    (
        "cache_position",
        "dropout",
        "is_causal",
        "output_attentions",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "use_cache",
    )
)


class UnsupportedModel(Exception):
    """The model asks its attention for something this engine would compute wrongly."""


class Attention(Protocol):
    """Attention over paged keys and values."""

    def plan(self, slices: Sequence[Slice]) -> None:
        """The next forward pass computes `slices`, packed in this order: decoding ones first, longest context first."""

    def attend(self, layer: int, step: "LayerStep") -> torch.Tensor:
        """[tokens, heads, value size]; keys and values of the step are in the pages already."""


class LayerStep:
    """One layer's part of a step: `queries` [tokens, heads, size]; `keys` and `values` of the same tokens."""

    __slots__ = ("keys", "queries", "scaling", "values", "window")

    def __init__(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float, window: int | None
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.values = values
        self.scaling = scaling
        self.window = window  # tokens that a query sees, itself included; None: all before it


class PagedAttention:
    """Registered with transformers' AttentionInterface."""

    def __init__(self, kv: PagedKV, backend: Attention) -> None:
        self._kv = kv
        self._backend = backend
        self._slots: torch.Tensor

    def plan(self, slices: Sequence[Slice], slots: torch.Tensor) -> None:
        """The next forward pass computes `slices`; its keys and values go to `slots` [tokens]."""
        self._slots = slots
        self._backend.plan(slices)

    @contextmanager
    def using(self, backend: Attention) -> Iterator[None]:
        """Another backend for a while."""
        own, self._backend = self._backend, backend
        try:
            yield
        finally:
            self._backend = own

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        scaling: float,
        sliding_window: int | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """[1, heads, tokens, size] in, [1, tokens, heads, size] out."""
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        self._kv.write(layer, self._slots, keys, values)
        step = LayerStep(query[0].transpose(0, 1), keys, values, scaling, sliding_window)
        return self._backend.attend(layer, step)[None], None


def refuse_unknown(arguments: dict[str, Any]) -> None:
    """Raise UnsupportedModel when a model passes what would have to be obeyed; asked once, when a model is loaded."""
    unknown = sorted(name for name, value in arguments.items() if value is not None and name not in HARMLESS)
    if unknown:
        raise UnsupportedModel(f"the model's attention takes {', '.join(unknown)}, which is not supported")
