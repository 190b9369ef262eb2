"""Models with random weights: they run as fast as trained ones, and need no download."""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

RANDOM = "random:"
SHAPES = {
    # The published sizes of Llama-3.1-8B (Hugging Face, meta-llama/Llama-3.1-8B, config.json).
    "llama-3.1-8b": LlamaConfig(
        vocab_size=128_256,
        hidden_size=4096,
        intermediate_size=14_336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131_072,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
    ),
    "tiny": LlamaConfig(
        vocab_size=1024,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
    ),
}


def random_model(name: str, device: str, dtype: torch.dtype) -> Any:
    """Make the model on its device, so that billions of weights need not pass through the host."""
    config = SHAPES[name]
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]
