"""Batches as vLLM's scheduler would describe them.

The executor's processes keep state of each running request: its tokens, its pages and its parameters. So a request's
tokens are sent once, when it enters the running batch, and later only what is new.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput

from local_worker.core.batch import Batch, Slice
from local_worker.engine.vllm.sampler import sampling_params

RESERVED = 1  # vLLM never uses its first page


@dataclass(slots=True)
class SentRequest:
    """The data of a request that vLLM's processes have: its known tokens when it entered, and the present pages."""

    tokens: int
    pages: tuple[int, ...]


class SentRequests:
    """The requests that vLLM's processes keep."""

    def __init__(self) -> None:
        self.adapters: dict[str, LoRARequest] = {}  # by the name of the model in slices
        self._sent: dict[int, SentRequest] = {}

    def scheduler_output(self, batch: Batch) -> SchedulerOutput:
        """Return `batch` as vLLM's scheduler would describe it, and remember what has been sent."""
        # New to vLLM, whatever it still knows under the same numbers.
        entered = {entry.request: entry.tokens for entry in batch.entered}
        gone = {request_id(request) for request in (*batch.left, *entered) if self._sent.pop(request, None) is not None}
        new: list[NewRequestData] = []
        known = CachedRequestData.make_empty()
        for piece in batch.slices:
            if piece.request in entered:
                new.append(self._new(piece, entered[piece.request]))
            else:
                self._add_known(known, piece)
        counts = {request_id(piece.request): piece.stop - piece.start for piece in batch.slices}
        return SchedulerOutput(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=known,
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=batch.tokens,
            scheduled_spec_decode_tokens={},
            scheduled_encoder_inputs={},
            num_common_prefix_blocks=[0],
            finished_req_ids=gone,
            free_encoder_mm_hashes=[],
        )

    def _new(self, piece: Slice, tokens: Sequence[int]) -> NewRequestData:
        self._sent[piece.request] = SentRequest(len(tokens), piece.pages)
        known = list(tokens)
        return NewRequestData(
            req_id=request_id(piece.request),
            prompt_token_ids=known,
            prefill_token_ids=known,  # for model runner V2
            mm_features=[],
            sampling_params=sampling_params(piece),
            pooling_params=None,
            block_ids=(_blocks(piece.pages),),
            num_computed_tokens=piece.start,
            lora_request=self.adapters.get(piece.model),
        )

    def _add_known(self, known: CachedRequestData, piece: Slice) -> None:
        """Add the changes of a request that the processes know. A page that was replaced by the page of another request
        with equal content makes them all be sent again, as for a request that resumes."""
        sent = self._sent[piece.request]
        request, before = request_id(piece.request), len(sent.pages)
        has_grown = piece.pages[:before] == sent.pages
        added = piece.pages[before:] if has_grown else piece.pages
        if not has_grown:
            known.resumed_req_ids.add(request)
        known.req_ids.append(request)
        known.new_token_ids.append(list(piece.tokens))  # for the first stages of a pipeline
        known.new_block_ids.append((_blocks(added),) if added else None)
        known.num_computed_tokens.append(piece.start)
        known.num_output_tokens.append(max(0, piece.stop - sent.tokens))
        sent.pages = piece.pages


def request_id(request: int) -> str:
    """Return vLLM's name of a request."""
    return str(request)


def _blocks(pages: Sequence[int]) -> list[int]:
    return [page + RESERVED for page in pages]
