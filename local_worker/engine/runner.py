"""An engine for any decoder-only Hugging Face model: transformers' modelling code over paged keys and values."""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from local_worker.core.batch import Batch, Slice
from local_worker.engine import memory
from local_worker.engine.attention import Attention, PagedAttention, UnsupportedModel
from local_worker.engine.batch_inputs import BatchInputs
from local_worker.engine.checks import check_config, probe, self_check
from local_worker.engine.fused_norms import fuse_norms
from local_worker.engine.graph_sizes import GraphSize, graph_sizes
from local_worker.engine.kv import PagedKV, bytes_per_token
from local_worker.engine.load_errors import reading
from local_worker.engine.matchers import Matchers, TokenMasks
from local_worker.engine.packed_linear import pack
from local_worker.engine.sampled_step import SampledStep, ScoredPrompts
from local_worker.engine.sampling import choose
from local_worker.engine.sdpa import GROUP_TOKENS, Sdpa
from local_worker.engine.varlen import Varlen
from local_worker.sandbox import Sandbox
from serving.process import log_step

if TYPE_CHECKING:
    from local_worker.engine.graphs import StepGraphs

log = logging.getLogger(__name__)
# Number of rows from which on packed linear layers compute each row independently of the others.
BATCH_INVARIANT_ROWS = 2
# Head sizes for which FlashInfer has all kinds of kernels.
FLASHINFER_HEADS = (64, 128, 256)
# Attention implementations are registered by name for the whole process, so each model needs new names.
_names = (f"fairlead_paged_{number}" for number in itertools.count())


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options with which the engine runs a model."""

    block_tokens: int
    kv_tokens: int | None = None  # None: as many as fit in `memory_fraction` of the free memory, up to `most_kv_tokens`
    most_kv_tokens: int | None = None
    memory_fraction: float = 0.5
    batch_invariant: bool = False
    max_running: int = 64  # largest number of requests for which CUDA graphs are captured
    eos_token_ids: tuple[int, ...] = ()
    sandbox: Sandbox | None = None  # None: no request has a constraint


class TransformersEngine:
    """An engine that computes ragged batches packed in one row.

    On CUDA it runs ahead: nothing in `launch` waits for the device, except that the mask of a constrained output waits
    for the previous step's tokens while the device computes the logits. On the CPU it does not, since planning and
    computing would share the same cores, and overlap would gain about one percent (lab/bench/README). See Engine.
    """

    def __init__(self, model: Any, options: EngineOptions) -> None:
        """Take ownership of `model`.

        Raises UnsupportedModel if the model cannot be computed correctly, and OutOfMemory if the KV cache does not fit.
        """
        self._model = model.eval()
        self._options = options
        self.vocab_size: int = model.get_input_embeddings().num_embeddings
        log_step("checking the model")
        self._device, dtype = model.device, model.dtype
        self.ahead = 1 if self._device.type == "cuda" else 0
        self._sampled = torch.empty(0, dtype=torch.int64, device=self._device)  # last batch's
        self._step: SampledStep | None = None  # the last one
        self._matchers = Matchers(options.sandbox)
        check_config(model)
        self.max_model_tokens: int = model.config.get_text_config().max_position_embeddings
        expectation = self_check(model)
        shapes = probe(model, next(_names))
        if self._device.type == "cuda":
            fuse_norms(model)
        else:
            pack(model, BATCH_INVARIANT_ROWS if options.batch_invariant else 1)
        token_bytes = bytes_per_token(shapes, dtype)
        self.kv_tokens = _kv_tokens(options, token_bytes, self._device)
        self._kv = PagedKV(shapes, self.kv_tokens // options.block_tokens, options.block_tokens, dtype, self._device)
        backend = self._backend()
        self._attention = PagedAttention(self._kv, backend)
        self._graphs: StepGraphs | None = None
        name = next(_names)
        AttentionInterface.register(name, self._attention)
        model.set_attn_implementation(name)
        expectation.compare(self._logits, options.block_tokens)
        self._graphs = self._step_graphs(backend)
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
        """Load the weights from a folder or a hub id.

        Raises OutOfMemory before reading weights that cannot fit, and UnsupportedModel if transformers cannot load the
        model or its files are incomplete.
        """
        with reading(), torch.device("meta"):
            config = AutoConfig.from_pretrained(path)
            skeleton: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        log_step("loading weights")
        memory.check_weights(skeleton.num_parameters(), dtype, memory.available(device))
        with reading():
            loaded: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, output_loading_info=True)
        model, account = loaded
        if missing := sorted(account["missing_keys"]):  # transformers has initialised them at random
            raise UnsupportedModel(f"its files lack {len(missing)} weights, for example {missing[0]}")
        return cls(model.to(device), options)

    def _backend(self) -> Attention:
        if self._device.type == "cuda" and _has_kernels(self._kv):
            try:
                from local_worker.engine.flashinfer import FlashInfer
            except ImportError as error:
                log.warning("FlashInfer cannot be imported, so torch computes attention: %s", error)
            else:
                processors = torch.cuda.get_device_properties(self._device).multi_processor_count
                return FlashInfer(self._kv, processors, self._graph_sizes())
        if self._device.type == "cuda" and Varlen.computes(self._kv):
            return Varlen(self._kv)
        return Sdpa(self._kv, 1 if self._options.batch_invariant else GROUP_TOKENS)

    def _graph_sizes(self) -> tuple[GraphSize, ...]:
        return graph_sizes(self._options.max_running, self.max_model_tokens)

    @torch.inference_mode()
    def _step_graphs(self, backend: Attention) -> "StepGraphs | None":
        if isinstance(backend, Sdpa | Varlen):
            return None
        from local_worker.engine.flashinfer import FlashInfer
        from local_worker.engine.graphs import StepGraphs

        assert isinstance(backend, FlashInfer)
        most_pages = -(-min(self.max_model_tokens, self.kv_tokens) // self._kv.block_tokens)
        try:
            return StepGraphs(self._forward, self._attention, self._kv, backend, self._graph_sizes(), most_pages)
        except RuntimeError:
            # Models whose computation depends on values cannot be captured.
            log.warning("CUDA graphs cannot be captured: kernels are launched one by one", exc_info=True)
            return None

    @torch.inference_mode()
    def launch(self, batch: Batch) -> SampledStep:
        """Compute the batch and sample its tokens; see Engine."""
        pieces = [piece for piece in batch.slices if piece.samples]
        self._matchers.follow(batch)
        logits = self._logits(batch.slices)
        masks = self._masks(pieces)  # made while the device computes the logits
        sampling, scoring = logits[: len(pieces)], logits[len(pieces) :]
        self._sampled = choose(sampling, pieces, self._sampled, self._options.eos_token_ids, masks.allowed)
        scores = ScoredPrompts(scoring, batch.slices)
        self._step = SampledStep(self._sampled, sampling, pieces, scores, masks)
        return self._step

    def _masks(self, pieces: Sequence[Slice]) -> TokenMasks:
        """Return the masks of the constrained ones among `pieces`; wait for the previous step if they depend on it."""
        depends = self._step is not None and self._matchers.needs_samples(pieces)
        return self._matchers.masks(pieces, self._step.known_tokens() if depends and self._step else ())

    def check(self) -> None:
        """See Engine."""

    def close(self) -> None:
        """See Engine; the device's memory is released with the process."""
        self._matchers.close()

    def _logits(self, slices: Sequence[Slice]) -> torch.Tensor:
        """Return the logits [rows of BatchInputs, vocabulary], valid until the next call."""
        if self._graphs is not None and (graph := self._graphs.fitting(slices)) is not None:
            return graph.replay(slices, self._sampled)
        inputs = BatchInputs(slices, self._kv)
        inputs.complete(self._sampled)
        self._attention.plan(inputs.slices, inputs.slots)
        return self._forward(inputs)

    def _forward(self, inputs: BatchInputs) -> torch.Tensor:
        out = self._model(
            input_ids=inputs.ids[None], position_ids=inputs.positions[None], use_cache=False, logits_to_keep=inputs.rows
        )
        logits: torch.Tensor = out.logits[0]
        return logits


def _has_kernels(kv: PagedKV) -> bool:
    """Return whether FlashInfer has kernels for `kv`: half precision, and equal sizes of keys and values."""
    return kv.dtype is not torch.float32 and all(
        shape.key_size == shape.value_size and shape.key_size in FLASHINFER_HEADS for shape in kv.shapes
    )


def _kv_tokens(options: EngineOptions, token_bytes: int, device: torch.device) -> int:
    free = memory.available(device)
    if options.kv_tokens is None:
        fitting = memory.kv_tokens(free, options.memory_fraction, token_bytes, options.block_tokens)
        most = options.most_kv_tokens or fitting
        return min(fitting, most // options.block_tokens * options.block_tokens)
    memory.check_kv(options.kv_tokens, token_bytes, free)
    return options.kv_tokens
