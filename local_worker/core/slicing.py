"""How a step's budget of tokens is shared out among the requests that run, and what each one's slice says."""

from collections.abc import Iterable, Iterator

from local_worker.core.batch import Slice
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


def slice_of(request: Request, tokens: int, source: int | None) -> Slice:
    """Return the slice of the next `tokens` that `request` computes; `source` says where an unknown one comes from."""
    start = request.computed
    stop = start + tokens
    samples = stop == request.due
    return Slice(
        request.arrival,
        () if source is not None else tuple(request.tokens[start:stop]),
        start,
        stop,
        tuple(request.pages),
        samples,
        request.sampling,
        request.prompt_tokens,
        request.seed_position,
        source,
        tuple(request.tokens[:stop]) if samples and request.is_penalised else (),
        request.model,
    )
