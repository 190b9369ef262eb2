"""The attention function that transformers' modelling code calls: it writes keys and values to pages and calls a
backend.

The queries of all requests are packed in one row; the backend knows from `plan` which tokens belong to which request.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from local_worker.core.batch import Slice
from local_worker.engine.kv import PagedKV

# Arguments that have no effect here: there is no dropout at inference, and the queries already contain positions.
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
    """Raised for a model that this engine would compute incorrectly, or cannot load."""


class Attention(Protocol):
    """A backend that computes attention over paged keys and values."""

    def plan(self, slices: Sequence[Slice]) -> None:
        """Prepare the next forward pass over `slices`, packed in this order: decoding ones first, longest context
        first."""

    def attend(self, layer: int, step: "LayerStep") -> torch.Tensor:
        """Return the attention output [tokens, heads, value size]; the pages already hold the step's keys, values."""


class LayerStep:
    """The inputs of one layer in one step: `queries` [tokens, heads, size], `keys` and `values` of the same tokens.

    A layer with `sinks` [heads] adds exp(sink) to the sum by which each head's softmax divides (StreamingLLM, arXiv
    2309.17453, section 3.3; as GPT-OSS learns it).
    """

    __slots__ = ("keys", "queries", "scaling", "sinks", "values", "window")

    def __init__(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scaling: float,
        window: int | None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self.queries = queries
        self.keys = keys
        self.values = values
        self.scaling = scaling
        self.sinks = sinks
        self.window = window  # number of tokens that a query sees, its own included; None: its own and all before it


class PagedAttention:
    """The function that is registered with transformers' AttentionInterface."""

    def __init__(self, kv: PagedKV, backend: Attention) -> None:
        self._kv = kv
        self._backend = backend
        self._slots: torch.Tensor

    def plan(self, slices: Sequence[Slice], slots: torch.Tensor) -> None:
        """Prepare the next forward pass over `slices`, whose keys and values go to `slots` [tokens]."""
        self._slots = slots
        self._backend.plan(slices)

    @contextmanager
    def using(self, backend: Attention) -> Iterator[None]:
        """Use another backend inside the context."""
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
        s_aux: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        """Compute the attention of one layer: [1, heads, tokens, size] in, [1, tokens, heads, size] out."""
        layer = int(module.layer_idx)  # type: ignore[arg-type]
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        self._kv.write(layer, self._slots, keys, values)
        step = LayerStep(query[0].transpose(0, 1), keys, values, scaling, sliding_window, s_aux)
        return self._backend.attend(layer, step)[None], None


def refuse_unknown(arguments: dict[str, Any]) -> None:
    """Raise UnsupportedModel if a model passes arguments that this engine ignores; called when a model is loaded."""
    unknown = sorted(name for name, value in arguments.items() if value is not None and name not in HARMLESS)
    if unknown:
        raise UnsupportedModel(f"the model's attention takes {', '.join(unknown)}, which is not supported")
