"""The logits of the engine are compared with those of the model's own attention, of which rounding is no error."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from local_worker.engine.attention import UnsupportedModel
from local_worker.engine.checks import LOW_PRECISION_TOLERANCE, self_check
from local_worker.engine.runner import EngineOptions, TransformersEngine

OPTIONS = EngineOptions(kv_tokens=512, block_tokens=16, max_running=2)


def make_model(seed: int) -> Any:
    """In bfloat16, and so deep and with so large weights that rounding changes logits by a sixth of the largest."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=16,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
    )
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def test_a_model_is_served_in_which_rounding_changes_much() -> None:
    expectation = self_check(make_model(0))
    assert expectation.rounding > LOW_PRECISION_TOLERANCE * float(expectation.logits.abs().max())
    TransformersEngine(make_model(0), OPTIONS)


def test_other_logits_are_rejected_all_the_same() -> None:
    expectation, engine = self_check(make_model(0)), TransformersEngine(make_model(1), OPTIONS)
    with pytest.raises(UnsupportedModel, match=r"logits differ by [\d.]+ from the model's own attention, [\d.]+ is"):
        expectation.compare(engine._logits, OPTIONS.block_tokens)
