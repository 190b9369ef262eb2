"""The logits processor for vLLM's model runner V1, which names the rows of its batch and says how they move."""

from typing import Any, NamedTuple

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from fairlead.token_ids import TOKEN_BYTES, pack_ids
from local_worker.core.batch import Slice
from local_worker.engine.vllm.sampler import SamplingInput, SeededSampler, sampling_input


class Row(NamedTuple):
    """A row of vLLM's batch that the processor samples; vLLM appends to `output`."""

    drawing: SamplingInput
    prompt: bytes  # packed
    output: list[int]

    @property
    def slice(self) -> Slice:
        """The slice that samples the next token."""
        stop = len(self.prompt) // TOKEN_BYTES + len(self.output)
        is_penalised = self.drawing.sampling.has_penalties
        return self.drawing.slice(stop, self.prompt + pack_ids(self.output) if is_penalised else b"")


class RowProcessor(LogitsProcessor):
    """See SeededSampler; vLLM makes one in each of its processes."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, Row] = {}
        self._sampler = SeededSampler(vllm_config)

    def is_argmax_invariant(self) -> bool:
        """Return that the most likely token may change."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the changes of vLLM's batch: removals, then additions, then moves."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            self._rows.pop(index, None)
            drawing = sampling_input(params)
            if drawing is not None:
                self._rows[index] = Row(drawing, pack_ids(prompt), output)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if replaced is not None and direction is MoveDirectionality.SWAP:
                self._rows[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits [requests, vocabulary] in which each row of this processor allows only the chosen token."""
        return self._sampler.keep_chosen(logits, {index: row.slice for index, row in self._rows.items()})
