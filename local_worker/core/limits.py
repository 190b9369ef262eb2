"""The limits of a batcher, and the two modes of admission to the running batch."""

from dataclasses import dataclass
from enum import StrEnum

from fairlead.errors import TooLong
from local_worker.core.request import Request


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

    def check_size(self, request: Request, capacity: int) -> None:
        """Raise TooLong for a request that can never be served, where the KV cache holds `capacity` tokens."""
        # Output tokens of earlier attempts count against the output's limit, not against the prompt's.
        prompt_tokens = request.prompt_tokens - request.seed_position
        if prompt_tokens > self.max_prompt_tokens:
            raise TooLong(f"at most {self.max_prompt_tokens} prompt tokens, got {prompt_tokens}", "prompt")
        if request.budget > capacity:
            message = f"{request.prompt_tokens} prompt tokens and max_tokens {request.sampling.max_tokens}"
            message += f" make {request.budget}; the KV cache holds {capacity}"
            raise TooLong(message, "sampling.max_tokens")

    def tokens_on_entry(self, request: Request, block_tokens: int) -> int:
        """Return for how many tokens `request` must get pages when it enters the running batch.

        Under optimistic admission the headroom doubles with each preemption, so that no request is preempted for ever.
        """
        if self.admission is AdmissionMode.RESERVE:
            return request.budget
        return min(request.budget, len(request.tokens) + (block_tokens << request.preemptions))
