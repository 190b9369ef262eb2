"""How a step's budget of tokens is shared out among the requests that run."""

from collections.abc import Iterable, Iterator

from local_worker.core.request import Request


def behind(request: Request) -> int:
    """Return how many tokens of a running request are still to be computed."""
    return request.due - request.computed


def shares(running: Iterable[Request], budget: int) -> Iterator[tuple[Request, int]]:
    """Yield who computes how many tokens: decoding requests first, one token each, in any number; what is left of
    `budget` goes to prompts, in the order of `running`."""
    prompts = []
    for request in running:
        missing = behind(request)
        if missing == 1:
            yield request, 1
            budget -= 1
        elif missing > 1:
            prompts.append((request, missing))
    for request, missing in prompts:
        if budget <= 0:
            return
        yield request, min(missing, budget)
        budget -= missing
