"""A model that every engine can compute in no time."""

import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from local_worker.engine.model_files import built_in


def save_small_model(folder: Path) -> Path:
    """Write random weights, and the built-in model's tokenizer, to `folder`; return it.

    Heads have 32 numbers, the fewest that vLLM's attention on a CPU can compute.
    """
    shutil.copytree(built_in(), folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
