"""The logits processor for vLLM's model runner V2, which keeps requests in slots, and their tokens on the device.

Each step has its rows in another order, and says which slot each row is of. A row whose prompt is not yet computed is
among them, and its token is dropped.
"""

from typing import Any

import torch
from vllm import SamplingParams as VllmSamplingParams
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcessor, LogitsProcRequestState

from local_worker.core.batch import Slice
from local_worker.engine.vllm.sampler import SamplingInput, SeededSampler, sampling_input


class SlotProcessor(LogitsProcessor):
    """See SeededSampler; vLLM makes one in each of its processes.

    A penalised request's tokens are read from the device in each step, which waits for it.
    """

    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        self._states = req_states
        self._drawings: dict[int, SamplingInput] = {}  # by slot
        self._sampler = SeededSampler(vllm_config)

    def add_request(self, req_idx: int, sampling_params: VllmSamplingParams) -> bool:
        """Note the request that has entered a slot, in place of any other; return whether this processor samples it."""
        self._drawings.pop(req_idx, None)
        drawing = sampling_input(sampling_params)
        if drawing is not None:
            self._drawings[req_idx] = drawing
        return drawing is not None

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Return logits [requests, vocabulary] in which each row of this processor allows only the chosen token."""
        slices: dict[int, Slice] = {}
        # Without speculative decoding a request has one row, and the bound of its length is exact.
        for row, (slot, stop) in enumerate(
            zip(ctx.idx_mapping_np.tolist(), ctx.seq_lens_upper_bound_np.tolist(), strict=False)
        ):
            drawing = self._drawings.get(slot)
            if drawing is not None and stop >= self._states.prefill_len.np[slot]:
                slices[row] = drawing.slice(stop, self._context(drawing, slot, stop))
        return self._sampler.keep_chosen(logits, slices)

    def _context(self, drawing: SamplingInput, slot: int, stop: int) -> bytes:
        """Return the packed tokens of a slot, if penalties need them."""
        if not drawing.sampling.has_penalties:
            return b""
        packed: bytes = self._states.all_token_ids.gpu[slot, :stop].int().cpu().numpy().tobytes()
        return packed
