"""The least work of a step: the bytes that it must read, and the operations of its products."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab.bench.gpu.ceilings import Ceilings
from local_worker.core.batch import Slice


@dataclass(frozen=True, slots=True)
class StepWork:
    """The bytes of weights, keys and values that a step reads once, and its multiplications and additions.

    Activations, which are small beside them, do not count, nor do operations other than products.
    """

    bytes_read: int
    operations: int

    @classmethod
    def of(cls, model: Any, slices: Sequence[Slice]) -> "StepWork":
        """Return the work of a step of `model`, whose embedding and output layer have weights of their own; logits are
        computed for the last token of each slice."""
        config = model.config
        table = config.vocab_size * config.hidden_size
        layers = model.num_parameters() - 2 * table
        size = config.num_hidden_layers * config.head_dim
        tokens = sum(piece.stop - piece.start for piece in slices)
        # Each query reads the keys before it and its own.
        attended = sum((piece.stop - piece.start) * (piece.start + 1 + piece.stop) // 2 for piece in slices)
        cached = 2 * config.num_key_value_heads * size * sum(piece.stop for piece in slices)
        return cls(
            bytes_read=(layers + table + cached) * model.dtype.itemsize,
            operations=2 * layers * tokens + 2 * table * len(slices) + 4 * config.num_attention_heads * size * attended,
        )

    def seconds(self, ceilings: Ceilings) -> float:
        """Return the shortest time in which a device with these ceilings can do the work."""
        return max(self.bytes_read / ceilings.bytes_per_second, self.operations / ceilings.operations_per_second)
