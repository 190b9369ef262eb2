"""The cost of a request's progress under the configured cost function, in micro-units not divided by its weight."""

from enum import StrEnum

from local_worker.core.request import Request
from serving.cost import Cost


class OutputCharge(StrEnum):
    """The time at which DLPM charges for output.

    GENERATED charges for each token when it is generated. RESERVED charges for `max_tokens` at admission and gives back
    at the end what was not used.
    """

    GENERATED = "generated"
    RESERVED = "reserved"


class Charging:
    """The costs that both the policies' accounts and the service ledger charge."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def extend(self, request: Request, tokens: int) -> int:
        """Return the cost of computing the last `tokens` of the prompt.

        The prompt tokens before them were cached. System messages come first in the prompt.
        """
        held = request.prompt_tokens - tokens
        return self._cost.extend(tokens, min(tokens, max(0, request.system_tokens - held)))

    def decode(self, request: Request, tokens: int) -> int:
        """Return the cost of the last `tokens` that were generated."""
        before = len(request.tokens) - request.prompt_tokens - tokens
        return self._cost.decode(tokens, request.prompt_tokens, before)

    def due(self, request: Request, tokens: int) -> int:
        """Return the cost of the last `tokens` that were generated, without those that were charged ahead."""
        before = len(request.tokens) - request.prompt_tokens - tokens
        paid = request.reserved - before
        if paid >= tokens:
            return 0
        if paid > 0:
            return self.output(request, request.reserved, before + tokens)
        return self._cost.decode(tokens, request.prompt_tokens, before)

    def next_output(self, request: Request) -> int:
        """Return the cost of the next output token."""
        return self.output(request, request.output_tokens, request.output_tokens + 1)

    def output(self, request: Request, start: int, stop: int) -> int:
        """Return the cost of the output tokens `[start, stop)`, whether or not they are generated yet."""
        return self._cost.decode(stop - start, request.prompt_tokens, start)
