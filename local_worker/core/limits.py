"""The limits of a batcher, and their defaults for each kind of device.

A fairness bound is proportional to the number of tokens that the KV cache holds (docs/fairness.md). With the defaults
the bound is at most some minutes of work on either kind of device. A client may wait for two quanta of service to
another client, so a quantum is a quarter of the tokens of a step: 512 cost units are a tenth of a second of a GPU, and
more than a second of a CPU (lab/bench/README.md).
"""

from dataclasses import dataclass
from enum import StrEnum

BLOCK_TOKENS = 16  # tokens of a page, unless the engine or an option says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSizes:
    """The default limits for one kind of device."""

    most_kv_tokens: int | None  # None: as many tokens as fit in the device's memory
    max_running: int  # number of requests in the running batch
    token_budget: int  # number of tokens computed per step
    quantum_tokens: int  # Q^u in cost units


SIZES = {
    # A CPU has much memory and little speed: a KV cache of all its memory would hold the output of an hour.
    "cpu": DeviceSizes(most_kv_tokens=4096, max_running=32, token_budget=256, quantum_tokens=64),
    # Up to about 128 requests the time of a decode step hardly grows. From about 2048 tokens per step, prompts are
    # computed at full speed.
    "cuda": DeviceSizes(most_kv_tokens=None, max_running=128, token_budget=2048, quantum_tokens=512),
}


def check_sizes(*, max_running: int | None, token_budget: int | None, kv_tokens: int | None, block_tokens: int) -> None:
    """Raise ValueError for sizes with which a worker cannot run. None stands for the device's default."""
    running = max_running or 1
    if token_budget is not None and token_budget <= running:
        raise ValueError(
            f"token_budget: must be above max_running ({running}), since otherwise a full batch that decodes leaves "
            f"no token for prompts; got {token_budget}"
        )
    if kv_tokens is not None and (kv_tokens <= 0 or kv_tokens % block_tokens):
        raise ValueError(f"kv_tokens: must be a positive multiple of block_tokens ({block_tokens}), got {kv_tokens}")


class AdmissionMode(StrEnum):
    """The rule for how much of its output a request is given pages when it is admitted.

    RESERVE gives pages for the whole output; OPTIMISTIC gives them as tokens are generated.
    """

    RESERVE = "reserve"
    OPTIMISTIC = "optimistic"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of a batcher, in requests unless a name says tokens."""

    max_running: int
    token_budget: int  # largest number of tokens computed per step
    max_prompt_tokens: int
    max_waiting: int
    max_waiting_per_client: int
    admission: AdmissionMode = AdmissionMode.RESERVE
