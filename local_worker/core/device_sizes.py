"""How much a worker takes on where its options do not say: what suits its device, its model and its memory.

A fairness bound is counted in tokens that the KV cache holds (docs/fairness.md). With these defaults it is a useful
number on either kind of device: some minutes of its work at most.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSizes:
    """What a device of one kind takes on at a time."""

    most_kv_tokens: int | None  # None: as many as its memory holds
    max_running: int  # requests
    token_budget: int  # tokens per step


SIZES = {
    # What a CPU lacks is speed, not memory: a cache as large as its memory allows holds an hour of its output.
    "cpu": DeviceSizes(most_kv_tokens=4096, max_running=32, token_budget=256),
    # Up to about so many requests a decode step takes hardly longer, and from about so many tokens a prompt computes at
    # full speed.
    "cuda": DeviceSizes(most_kv_tokens=None, max_running=128, token_budget=2048),
}


def check_sizes(*, max_running: int | None, token_budget: int | None, kv_tokens: int | None, block_tokens: int) -> None:
    """Raise ValueError for sizes that no worker can work with; None: what suits the device."""
    running = max_running or 1
    if token_budget is not None and token_budget <= running:
        raise ValueError(
            f"token_budget: must be above max_running ({running}), since a full batch that decodes leaves no "
            f"token for prompts otherwise; got {token_budget}"
        )
    if kv_tokens is not None and (kv_tokens <= 0 or kv_tokens % block_tokens):
        raise ValueError(f"kv_tokens: must be a positive multiple of block_tokens ({block_tokens}), got {kv_tokens}")
