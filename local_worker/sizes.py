"""A worker's limits: what its options say, and what suits its device where they do not."""

from local_worker.config import WorkerConfig
from local_worker.core.device_sizes import SIZES
from local_worker.core.limits import AdmissionMode, BatchLimits


def max_running(config: WorkerConfig, device: str) -> int:
    """Most requests in a batch: as configured, or as suits the device ("cpu" or "cuda") and the configured budget."""
    if config.max_running is not None:
        return config.max_running
    most = SIZES[device].max_running
    return most if config.token_budget is None else min(most, config.token_budget - 1)


def limits(config: WorkerConfig, device: str, longest: int) -> BatchLimits:
    """The limits of a worker on `device`, where prompt and output together have at most `longest` tokens.

    What is not configured follows: prompts leave room for a block of output, a step for as much prompt as decoding.
    """
    running = max_running(config, device)
    return BatchLimits(
        max_running=running,
        token_budget=config.token_budget or max(SIZES[device].token_budget, 2 * running),
        max_prompt_tokens=config.max_prompt_tokens or max(1, longest - config.block_tokens),
        max_waiting=config.max_waiting,
        max_waiting_per_client=config.max_waiting_per_client,
        admission=AdmissionMode(config.admission),
    )
