"""What a request's progress costs by the configured cost function; micro-units, not divided by its weight."""

from local_worker.core.request import Request
from serving.cost import Cost


class Charging:
    """For the policies' accounts and the ledger alike."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def extend(self, request: Request, tokens: int) -> int:
        """Of computing the last `tokens` of the prompt; what a cache held comes first, and so do system messages."""
        held = request.prompt_tokens - tokens
        return self._cost.extend(tokens, min(tokens, max(0, request.system_tokens - held)))

    def decode(self, request: Request, tokens: int) -> int:
        """Of the last `tokens` that were generated."""
        before = len(request.tokens) - request.prompt_tokens - tokens
        return self._cost.decode(tokens, request.prompt_tokens, before)

    def due(self, request: Request, tokens: int) -> int:
        """As `decode`, less what was charged ahead."""
        before = len(request.tokens) - request.prompt_tokens - tokens
        paid = request.reserved - before
        if paid >= tokens:
            return 0
        if paid > 0:
            return self.output(request, request.reserved, before + tokens)
        return self._cost.decode(tokens, request.prompt_tokens, before)

    def output(self, request: Request, start: int, stop: int) -> int:
        """Of output tokens `[start, stop)`, generated or not."""
        return self._cost.decode(stop - start, request.prompt_tokens, start)
