"""The worker's limits: the configured values, and the device's defaults for the others."""

from local_worker.config import WorkerConfig
from local_worker.core.limits import SIZES, AdmissionMode, BatchLimits
from local_worker.worker_options import WorkerOptions

# Requests. A full queue drops those of the client with most; this also bounds requests that are never dropped.
MAX_WAITING_PER_CLIENT = 1024


def max_running(config: WorkerConfig, device: str) -> int:
    """Return the largest number of requests in a batch on `device` ("cpu" or "cuda").

    The default of the device is reduced to fit a configured token budget.
    """
    if config.max_running is not None:
        return config.max_running
    most = SIZES[device].max_running
    return most if config.token_budget is None else min(most, config.token_budget - 1)


def token_budget(config: WorkerConfig, device: str) -> int:
    """Return the largest number of tokens of a step on `device`.

    By default a step has as many tokens for prompts as for decoding.
    """
    return config.token_budget or max(SIZES[device].token_budget, 2 * max_running(config, device))


def quantum_tokens(config: WorkerOptions, device: str) -> int:
    """Return the quantum Q^u in cost units on `device`."""
    return config.quantum_tokens or SIZES[device].quantum_tokens


def limits(config: WorkerConfig, device: str, longest: int, block_tokens: int) -> BatchLimits:
    """Return the limits of a worker on `device`, where prompt and output together have at most `longest` tokens.

    By default prompts leave room for one block of output.
    """
    return BatchLimits(
        max_running=max_running(config, device),
        token_budget=token_budget(config, device),
        max_prompt_tokens=config.max_prompt_tokens or max(1, longest - block_tokens),
        max_waiting=config.max_waiting,
        max_waiting_per_client=MAX_WAITING_PER_CLIENT,
        admission=AdmissionMode(config.admission),
    )
