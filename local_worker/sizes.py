"""How much a worker takes on where its options do not say: what suits its device, its model and its memory.

A fairness bound is counted in tokens that the KV cache holds (docs/fairness.md). With these defaults it is a useful
number on either kind of device: some minutes of its work at most.
"""

from dataclasses import dataclass

from local_worker.config import WorkerConfig
from local_worker.core.limits import Admission, Limits


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


def max_running(config: WorkerConfig, device: str) -> int:
    """Most requests in a batch: as configured, or as suits the device ("cpu" or "cuda") and the configured budget."""
    if config.max_running is not None:
        return config.max_running
    most = SIZES[device].max_running
    return most if config.token_budget is None else min(most, config.token_budget - 1)


def limits(config: WorkerConfig, device: str, longest: int) -> Limits:
    """The limits of a worker on `device`, where prompt and output together have at most `longest` tokens.

    What is not configured follows: prompts leave room for a block of output, a step for as much prompt as decoding.
    """
    running = max_running(config, device)
    return Limits(
        max_running=running,
        token_budget=config.token_budget or max(SIZES[device].token_budget, 2 * running),
        max_prompt_tokens=config.max_prompt_tokens or max(1, longest - config.block_tokens),
        max_waiting=config.max_waiting,
        max_waiting_per_client=config.max_waiting_per_client,
        admission=Admission(config.admission),
    )
