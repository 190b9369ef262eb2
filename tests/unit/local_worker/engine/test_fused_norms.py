"""Norms that torch computes in one kernel give what the model's own give; other norms stay."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from local_worker.engine.fused_norms import TOLERANCE, fuse_norms
from tests.unit.local_worker.engine.test_exactness import CONFIGS, make_model

IDS = torch.arange(24)[None]


def with_weights(model: Any) -> Any:
    """The model, whose norms have other weights than those of the beginning, all of which are one."""
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if "norm" in name:
            nn.init.uniform_(weight, 0.5, 1.5)
    return model


@torch.inference_mode()
def logits(model: Any) -> torch.Tensor:
    result: torch.Tensor = model(input_ids=IDS, use_cache=False).logits
    return result


@pytest.mark.parametrize(("name", "per_layer"), [("llama", 2), ("qwen2", 2), ("qwen3", 4), ("mistral-window", 2)])
def test_a_model_gives_the_same_logits(name: str, per_layer: int) -> None:
    model = with_weights(make_model(CONFIGS[name]))
    expected = logits(model)
    assert fuse_norms(model) == per_layer * model.config.num_hidden_layers + 1
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gemma3", "cohere", "phi", "gpt2"])
def test_norms_that_compute_something_else_stay(name: str) -> None:
    model = with_weights(make_model(CONFIGS[name]))
    assert fuse_norms(model) == 0


def test_in_bfloat16_the_weight_is_the_models_and_rows_differ_by_rounding() -> None:
    norm = LlamaRMSNorm(256, 1e-5).bfloat16()
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    model, rows = nn.Sequential(norm), torch.randn(64, 256).bfloat16()
    assert fuse_norms(model) == 1
    assert isinstance(model[0], nn.RMSNorm)
    assert model[0].weight is norm.weight
    torch.testing.assert_close(model(rows), norm(rows), rtol=TOLERANCE, atol=TOLERANCE)


def test_a_norm_that_subtracts_the_mean_stays() -> None:
    assert fuse_norms(nn.Sequential(CohereLayerNorm(256, 1e-5))) == 0
