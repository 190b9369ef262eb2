"""Any Hugging Face decoder-only model as an engine: transformers' modelling code over our paged keys and values."""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from local_worker.core.batch import Batch, Slice, StepResult
from local_worker.engine import memory
from local_worker.engine.attention import Attention, PagedAttention
from local_worker.engine.checks import check_rope, probe, self_check
from local_worker.engine.kv import PagedKV, bytes_per_token
from local_worker.engine.packed import pack
from local_worker.engine.packing import Inputs, packed_order
from local_worker.engine.sampling import choose
from local_worker.engine.sdpa import GROUP_TOKENS, Sdpa

if TYPE_CHECKING:
    from local_worker.engine.graphs import DecodeGraphs

log = logging.getLogger(__name__)
# From so many rows on, packed linear layers compute each row the same whatever the others are.
BATCH_INVARIANT_ROWS = 2
# Attention implementations are registered by name, for the whole process.
_names = (f"fairlead_paged_{number}" for number in itertools.count())


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How a model is served."""

    block_tokens: int
    kv_tokens: int | None = None  # None: what `memory_fraction` of the free memory holds
    memory_fraction: float = 0.5
    batch_invariant: bool = False
    eos_token_ids: tuple[int, ...] = ()


class TransformersEngine:
    """Packed ragged batches. Not thread-safe: one thread calls `step`."""

    def __init__(self, model: Any, options: EngineOptions) -> None:
        """Takes `model` over. Raises UnsupportedModel when it cannot be served faithfully, OutOfMemory without room."""
        self._model = model.eval()
        self._options = options
        self.vocab_size: int = model.get_input_embeddings().num_embeddings
        self.max_model_tokens: int = model.config.get_text_config().max_position_embeddings
        self._device, dtype = model.device, model.dtype
        check_rope(model)
        expectation = self_check(model)
        shapes = probe(model, next(_names))
        if self._device.type == "cpu":
            pack(model, BATCH_INVARIANT_ROWS if options.batch_invariant else 1)
        token_bytes = bytes_per_token(shapes, dtype)
        self.kv_tokens = _kv_tokens(options, token_bytes, self._device)
        self._kv = PagedKV(shapes, self.kv_tokens // options.block_tokens, options.block_tokens, dtype, self._device)
        backend = self._backend()
        self._attention = PagedAttention(self._kv, backend)
        self._graphs: DecodeGraphs | None = None
        name = next(_names)
        AttentionInterface.register(name, self._attention)
        model.set_attn_implementation(name)
        expectation.compare(self._logits, options.block_tokens)
        self._graphs = self._decode_graphs(backend)
        log.info(
            "model loaded",
            extra={
                "attention": type(backend).__name__,
                "device": str(self._device),
                "dtype": str(dtype),
                "kv_tokens": self.kv_tokens,
                "kv_bytes": self.kv_tokens * token_bytes,
            },
        )

    @classmethod
    def load(
        cls, path: Path | str, options: EngineOptions, *, device: torch.device, dtype: torch.dtype
    ) -> "TransformersEngine":
        """Load weights from a folder or a hub id; raises OutOfMemory before anything is read when they cannot fit."""
        config = AutoConfig.from_pretrained(path)
        with torch.device("meta"):
            skeleton: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        memory.check_weights(skeleton.num_parameters(), dtype, memory.available(device))
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        return cls(model.to(device), options)

    def _backend(self) -> Attention:
        # FlashInfer's kernels are for half precision.
        half = self._kv.dtype is not torch.float32
        if self._device.type == "cuda" and half and find_spec("flashinfer") is not None:
            from local_worker.engine.flashinfer import FlashInfer

            return FlashInfer(self._kv)
        return Sdpa(self._kv, 1 if self._options.batch_invariant else GROUP_TOKENS)

    def _decode_graphs(self, backend: Attention) -> "DecodeGraphs | None":
        if isinstance(backend, Sdpa):
            return None
        from local_worker.engine.flashinfer import FlashInfer
        from local_worker.engine.graphs import DecodeGraphs

        assert isinstance(backend, FlashInfer)
        most_pages = -(-min(self.max_model_tokens, self.kv_tokens) // self._kv.block_tokens)
        return DecodeGraphs(self._forward, self._attention, self._kv, backend.kinds, most_pages)

    @torch.inference_mode()
    def step(self, batch: Batch) -> StepResult:
        """See Engine."""
        requests = [piece.request for piece in batch.slices if piece.samples]
        return choose(self._logits(batch.slices), requests, self._options.eos_token_ids)

    def _logits(self, slices: Sequence[Slice]) -> torch.Tensor:
        """[slices that sample, vocabulary], in the order of `slices`."""
        order = packed_order(slices)
        packed = [slices[index] for index in order]
        if self._graphs is not None and self._graphs.fits(packed):
            logits = self._graphs.logits(packed)
        else:
            inputs = Inputs(packed, self._kv)
            self._attention.plan(packed, inputs.slots)
            logits = self._forward(inputs)
        sampled = [index for index in order if slices[index].samples]
        return logits[_inverse(sampled)]

    def _forward(self, inputs: Inputs) -> torch.Tensor:
        out = self._model(
            input_ids=inputs.ids[None], position_ids=inputs.positions[None], use_cache=False, logits_to_keep=inputs.rows
        )
        logits: torch.Tensor = out.logits[0]
        return logits


def _inverse(order: list[int]) -> list[int]:
    """Where each of `order`, in ascending order, stands in it."""
    return sorted(range(len(order)), key=order.__getitem__)


def _kv_tokens(options: EngineOptions, token_bytes: int, device: torch.device) -> int:
    free = memory.available(device)
    if options.kv_tokens is None:
        return memory.kv_tokens(free, options.memory_fraction, token_bytes, options.block_tokens)
    memory.check_kv(options.kv_tokens, token_bytes, free)
    return options.kv_tokens
