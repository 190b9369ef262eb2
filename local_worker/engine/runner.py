"""Any Hugging Face decoder-only model as an engine: transformers' modelling code over our paged keys and values."""

import itertools
import logging
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM

from fairlead.sampling import Sampling
from local_worker.core.batch import Batch, Slice, StepResult
from local_worker.core.request import Request
from local_worker.engine.attention import Layout, PagedAttention, UnsupportedModel
from local_worker.engine.kv import PagedKV
from local_worker.engine.sampling import sample

log = logging.getLogger(__name__)
# Attention implementations are registered by name, for the whole process.
_names = (f"fairlead_paged_{number}" for number in itertools.count())
# RoPE variants whose angles depend on the longest position in the batch: they would differ by who else is in it.
BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")
CHECK_TOKENS = 8
CHECK_TOLERANCE = 1e-3


class TransformersEngine:
    """Packed ragged batches on the CPU, float32. Not thread-safe: one thread calls `step`."""

    def __init__(self, model: Any, *, kv_tokens: int, block_tokens: int) -> None:
        """Raises UnsupportedModel when the model's attention cannot be served faithfully."""
        self._model = model.eval()
        self.vocab_size: int = model.get_input_embeddings().num_embeddings
        self.max_model_tokens: int = model.config.get_text_config().max_position_embeddings
        _check_rope(model)
        ids = torch.arange(CHECK_TOKENS)[None] % self.vocab_size
        with torch.inference_mode():
            model.set_attn_implementation("eager")
            expected = model(input_ids=ids, use_cache=False).logits[0, -1]
        shapes = _probe(model, ids)
        kv = PagedKV(shapes, kv_tokens // block_tokens, block_tokens, torch.float32)
        self._kv, self._attention = kv, PagedAttention(kv)
        _use(model, self._attention)
        self._check(ids, expected)

    @classmethod
    def load(cls, path: Path | str, *, kv_tokens: int, block_tokens: int, threads: int) -> "TransformersEngine":
        """Load weights from a folder or a hub id."""
        torch.set_num_threads(threads)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        engine = cls(model, kv_tokens=kv_tokens, block_tokens=block_tokens)
        log.info("model loaded", extra={"path": str(path), "kv_tokens": kv_tokens, "threads": threads})
        return engine

    @torch.inference_mode()
    def step(self, batch: Batch) -> StepResult:
        """See Engine."""
        logits = self._logits(batch)
        return StepResult(sample(logits, [piece.request for piece in batch.slices if piece.samples]))

    def _logits(self, batch: Batch) -> torch.Tensor:
        """[slices that sample, vocabulary]."""
        self._attention.layout = Layout(batch, self._kv)
        ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        for piece in batch.slices:
            ids += piece.request.tokens[piece.start : piece.stop]
            positions += range(piece.start, piece.stop)
            if piece.samples:
                rows.append(len(ids) - 1)
        out = self._model(
            input_ids=torch.tensor([ids]),
            position_ids=torch.tensor([positions]),
            use_cache=False,
            logits_to_keep=torch.tensor(rows, dtype=torch.int64),
        )
        logits: torch.Tensor = out.logits[0]
        return logits

    @torch.inference_mode()
    def _check(self, ids: torch.Tensor, expected: torch.Tensor) -> None:
        """The same tokens through pages must give what the model's own attention gives."""
        pages = tuple(range(-(-CHECK_TOKENS // self._kv.block_tokens)))
        request = _probe_request(ids[0].tolist())
        logits = self._logits(Batch((Slice(request, 0, CHECK_TOKENS, pages, samples=True),)))
        difference = float((logits[0] - expected).abs().max())
        if not difference <= CHECK_TOLERANCE * max(1.0, float(expected.abs().max())):
            raise UnsupportedModel(f"logits differ by {difference} from the model's own attention")


def _check_rope(model: Any) -> None:
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    kind = parameters.get("rope_type", "default")
    if kind in BATCH_DEPENDENT_ROPE:
        raise UnsupportedModel(f"rotary embedding {kind!r} depends on the rest of the batch")


def _use(model: Any, attention: Any) -> None:
    name = next(_names)
    AttentionInterface.register(name, attention)
    model.set_attn_implementation(name)


def _probe(model: Any, ids: torch.Tensor) -> list[tuple[int, int, int]]:
    """(kv heads, key size, value size) of each layer; raises unless each layer calls the attention once."""
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModel(f"{type(model).__name__} does not take a custom attention")
    shapes: dict[int, tuple[int, int, int]] = {}

    def record(module: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> tuple[torch.Tensor, None]:
        shapes[int(module.layer_idx)] = (key.shape[1], key.shape[3], value.shape[3])
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None

    _use(model, record)
    with torch.inference_mode():
        model(input_ids=ids, use_cache=False)
    layers = model.config.get_text_config().num_hidden_layers
    if sorted(shapes) != list(range(layers)):
        raise UnsupportedModel(f"{len(shapes)} of {layers} layers call the attention function")
    return [shapes[layer] for layer in range(layers)]


def _probe_request(tokens: list[int]) -> Request:
    return Request(
        id="probe",
        client="",
        tokens=tokens,
        prompt_tokens=len(tokens),
        digests=[],
        chain_seed=0,
        sampling=Sampling(max_tokens=1),
        arrival=0,
    )
