"""LoRA adapters with random weights."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from local_worker.engine.lora_adapter import CONFIG

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ALPHA = 16


def low_rank(model: torch.nn.Module, rank: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """The matrices A [rank, inputs] and B [outputs, rank] that an adapter adds to a layer's weights, by their name."""
    dice = torch.Generator().manual_seed(rank)
    return {
        name: (
            torch.randn(rank, weight.shape[1], generator=dice),
            torch.randn(weight.shape[0], rank, generator=dice) * 0.1,
        )
        for name, weight in model.named_parameters()
        if name.removesuffix(".weight").endswith(LAYERS)
    }


def save_adapter(model: torch.nn.Module, folder: Path, rank: int, **changes: Any) -> Path:
    """Write an adapter in PEFT's format to `folder`, with `changes` of its configuration; return the folder."""
    folder.mkdir()
    tensors: dict[str, torch.Tensor] = {}
    for name, (a, b) in low_rank(model, rank).items():
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        tensors |= {f"{stem}.lora_A.weight": a, f"{stem}.lora_B.weight": b}
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": ALPHA, "target_modules": list(LAYERS), "bias": "none"}
    (folder / CONFIG).write_text(json.dumps(config | changes))
    return folder
