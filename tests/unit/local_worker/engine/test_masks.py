"""A mask that is not causal within the layer's window is detected at any position of the context."""

import pytest
import torch
from transformers import Llama4TextConfig
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    sliding_window_causal_mask_function,
)

from local_worker.engine import checks
from local_worker.engine.attention import UnsupportedModel
from local_worker.engine.masks import Masks, Rule
from local_worker.engine.runner import TransformersEngine
from tests.unit.local_worker.engine.test_exactness import LLAMA4, OPTIONS, make_model

CONTEXT, WINDOW = 4096, 512
TEXT = 24  # tokens of the dry run


def chunked(size: int) -> Rule:
    return chunked_causal_mask_function(size, torch.zeros(1, dtype=torch.int64))


def prefix(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (query < 100) & (key < 100)


def looked_up(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return torch.zeros(TEXT, dtype=torch.bool)[key] & (key <= query)


def check(rule: Rule, window: int | None) -> None:
    masks = Masks(CONTEXT, torch.device("cpu"))
    masks.check(masks(q_length=TEXT, kv_length=TEXT, mask_function=rule), window)


@pytest.mark.parametrize(
    ("rule", "window"),
    [
        (causal_mask_function, None),
        (causal_mask_function, CONTEXT),
        (sliding_window_causal_mask_function(WINDOW), WINDOW),
        (sliding_window_causal_mask_function(CONTEXT), None),
    ],
)
def test_causal_masks_within_the_window_pass(rule: Rule, window: int | None) -> None:
    check(rule, window)


@pytest.mark.parametrize(
    ("rule", "window"),
    [
        (causal_mask_function, WINDOW),
        (sliding_window_causal_mask_function(WINDOW), None),
        (sliding_window_causal_mask_function(WINDOW), WINDOW + 1),
        (chunked(WINDOW), None),
        (chunked(WINDOW), WINDOW),
        (bidirectional_mask_function, None),
        (or_masks(causal_mask_function, prefix), None),
        (looked_up, None),
    ],
)
def test_anything_else_is_refused(rule: Rule, window: int | None) -> None:
    with pytest.raises(UnsupportedModel, match="not causal within the window"):
        check(rule, window)


@pytest.mark.parametrize("mask", [None, torch.ones(1, 1, TEXT, TEXT, dtype=torch.bool)])
def test_a_mask_that_transformers_was_not_asked_for_is_refused(mask: torch.Tensor | None) -> None:
    with pytest.raises(UnsupportedModel, match="its attention mask itself"):
        Masks(CONTEXT, torch.device("cpu")).check(mask, None)


def test_an_unknown_kind_of_layer_is_refused_by_its_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LAYERS", (*checks.LAYERS, "chunked_attention"))
    model = make_model(Llama4TextConfig(**LLAMA4, attn_temperature_tuning=False))
    with pytest.raises(UnsupportedModel, match="not causal within the window"):
        TransformersEngine(model, OPTIONS)
