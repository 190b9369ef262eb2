"""The cost of a request's progress under the configured cost function, in micro-units not divided by its weight."""

from local_worker.core.request import Request
from serving.cost import Cost


class Charging:
    """The costs that both the policies' accounts and the service ledger charge."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        # The highest cost of one more token of a prompt. A constant part of the cost is charged with the last token.
        self.most_per_token = max(cost.extend(2, 0) - cost.extend(1, 0), cost.extend(2, 2) - cost.extend(1, 1))

    def extend(self, request: Request, tokens: int) -> int:
        """Return the cost of computing the last `tokens` of the prompt.

        The prompt tokens before them were cached. System messages come first in the prompt.
        """
        held = request.prompt_tokens - tokens
        return self._cost.extend(tokens, min(tokens, max(0, request.system_tokens - held)))

    def part(self, request: Request, start: int, stop: int) -> int:
        """Return the cost of the prompt's positions `[start, stop)`; the costs of adjacent parts add up."""
        length = request.prompt_tokens
        return self.extend(request, length - start) - self.extend(request, length - stop)

    def again(self, tokens: int) -> int:
        """Return the cost of `tokens` that are computed once more, of the prompt or of the output."""
        return self._cost.extend(tokens, 0)

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
