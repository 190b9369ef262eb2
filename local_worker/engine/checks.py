"""Checks of a model before it serves. A model that this engine would compute incorrectly is rejected."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from local_worker.core.batch import Slice
from local_worker.engine.attention import UnsupportedModel, refuse_unknown
from local_worker.engine.batch_inputs import lone_slice
from local_worker.engine.kv import LayerShape
from local_worker.engine.masks import Masks

# RoPE variants whose angles depend on the longest position in the batch, and so on the other requests in it.
BATCH_DEPENDENT_ROPE = ("dynamic", "longrope")
# Supported kinds of layers; others attend to other tokens or keep a state.
LAYERS = ("full_attention", "sliding_attention")
CHECK_TOKENS = 24
TOLERANCE = {torch.float32: 1e-3}
LOW_PRECISION_TOLERANCE = 5e-2
ROUNDING_TOLERANCE = 3  # times the difference between two attentions of the model's own


def check_config(model: Any) -> None:
    """Raise UnsupportedModel for a configuration that this engine cannot serve.

    That is a context without a limit, attention other than full and sliding, and whatever depends on the rest of the
    batch.
    """
    config = model.config.get_text_config()
    if not hasattr(config, "max_position_embeddings"):
        raise UnsupportedModel("its configuration has no max_position_embeddings, so the context length is unknown")
    unknown = set(getattr(config, "layer_types", None) or ()).difference(LAYERS)
    if unknown:
        raise UnsupportedModel(f"layers of the kind {', '.join(sorted(unknown))} are not supported")
    if getattr(config, "attn_temperature_tuning", False):
        raise UnsupportedModel("attn_temperature_tuning counts positions from the start of the batch")
    parameters = getattr(config, "rope_parameters", None) or {}
    for kind in (parameters.get("rope_type", "default"), *_kinds_by_layer(parameters)):
        if kind in BATCH_DEPENDENT_ROPE:
            raise UnsupportedModel(f"rotary embedding {kind!r} depends on the rest of the batch")


def _kinds_by_layer(parameters: dict[str, Any]) -> list[str]:
    return [value.get("rope_type", "default") for value in parameters.values() if isinstance(value, dict)]


def probe(model: Any, name: str) -> list[LayerShape]:
    """Return the shape of each layer's keys and values, found by a dry run under the attention name `name`.

    Raises UnsupportedModel unless each layer calls the attention once, with known arguments only, and with a mask that
    is causal within the layer's window at every length.
    """
    if not getattr(model, "_supports_attention_backend", False):
        raise UnsupportedModel(f"{type(model).__name__} does not take a custom attention")
    config = model.config.get_text_config()
    calls: list[tuple[int, LayerShape]] = []
    masks = Masks(config.max_position_embeddings, model.device)

    def record(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        *,
        scaling: float | None = None,
        sliding_window: int | None = None,
        s_aux: torch.Tensor | None = None,
        **arguments: Any,
    ) -> tuple[torch.Tensor, None]:
        refuse_unknown(arguments)
        if s_aux is not None and s_aux.shape != query.shape[1:2]:
            raise UnsupportedModel(f"attention sinks of the shape {tuple(s_aux.shape)}: one for each head is supported")
        masks.check(attention_mask, sliding_window)
        if scaling is None:
            raise UnsupportedModel("the model passes no scaling to its attention")
        calls.append((int(module.layer_idx), LayerShape(key.shape[1], key.shape[3], value.shape[3], query.shape[1])))
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None

    AttentionInterface.register(name, record)
    AttentionMaskInterface.register(name, masks)
    model.set_attn_implementation(name)
    with torch.inference_mode():
        model(input_ids=_ids(model), use_cache=False)
    layers = config.num_hidden_layers
    if sorted(layer for layer, _ in calls) != list(range(layers)):
        raise UnsupportedModel(
            f"{len(calls)} attention calls for {layers} layers: layers that keep a state are not supported"
        )
    return [shape for _, shape in sorted(calls, key=lambda call: call[0])]


def self_check(model: Any) -> "ExpectedLogits":
    """Return the logits of the model's own attention, computed before that is replaced."""
    logits = _own_logits(model, "eager")
    rounding = _largest_difference(_own_logits(model, "sdpa"), logits) if model._supports_sdpa else 0.0
    return ExpectedLogits(_ids(model)[0].tolist(), logits, rounding)


class ExpectedLogits:
    """The logits of the model's own attention after `tokens`, and what rounding alone changes in them.

    Rounding grows with the number of layers, and more where weights are random: with the shape of Llama-3.1-8B in
    bfloat16 to 7 % of the largest logit on a GPU.
    """

    def __init__(self, tokens: list[int], logits: torch.Tensor, rounding: float) -> None:
        self.tokens = tokens
        self.logits = logits
        self.rounding = rounding

    @torch.inference_mode()
    def compare(self, compute: Callable[[Sequence[Slice]], torch.Tensor], block_tokens: int) -> None:
        """Raise UnsupportedModel unless prefill and decode over pages give equal logits within the tolerance."""
        last = len(self.tokens) - 1
        pages = tuple(range(-(-len(self.tokens) // block_tokens)))
        compute([lone_slice(self.tokens[:last], 0, pages, samples=False)])
        [found] = compute([lone_slice(self.tokens, last, pages, samples=True)])
        difference = _largest_difference(found, self.logits)
        relative = TOLERANCE.get(found.dtype, LOW_PRECISION_TOLERANCE) * max(1.0, float(self.logits.abs().max()))
        allowed = max(relative, ROUNDING_TOLERANCE * self.rounding)
        if not difference <= allowed:
            raise UnsupportedModel(
                f"logits differ by {difference:.3g} from the model's own attention, {allowed:.3g} is allowed"
            )


@torch.inference_mode()
def _own_logits(model: Any, implementation: str) -> torch.Tensor:
    model.set_attn_implementation(implementation)
    logits: torch.Tensor = model(input_ids=_ids(model), use_cache=False).logits[0, -1]
    return logits


def _largest_difference(some: torch.Tensor, others: torch.Tensor) -> float:
    return float((some.float() - others.float()).abs().max())


def _ids(model: Any) -> torch.Tensor:
    vocabulary = model.get_input_embeddings().num_embeddings
    ids: torch.Tensor = torch.arange(CHECK_TOKENS, device=model.device)[None] % vocabulary
    return ids
