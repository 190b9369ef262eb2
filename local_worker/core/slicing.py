"""Division of a step's token budget among the running requests, and the slice of each request."""

from collections.abc import Iterable, Iterator

from local_worker.core.batch import Slice
from local_worker.core.request import Request

# A step computes a row of the vocabulary's size for each token that is scored.
SCORED_TOKENS = 256


def behind(request: Request) -> int:
    """Return the number of tokens of a running request that are due and not yet computed.

    After a deferral that is 0 until the steps in flight, which were to compute its next tokens, have ended.
    """
    if request.in_flight and request.computed < len(request.tokens):
        return 0
    return request.due - request.computed


def shares(running: Iterable[Request], budget: int) -> Iterator[tuple[Request, int]]:
    """Yield each request that takes part in the step with its number of tokens.

    Decoding requests come first with one token each, without a limit on their number. The rest of `budget` (tokens)
    goes to prompts in the order of `running`; those whose log-probabilities are requested get at most SCORED_TOKENS.
    """
    unscored = SCORED_TOKENS
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
        tokens = min(missing, budget)
        if request.scores_prompt:
            tokens = min(tokens, unscored)
            unscored -= tokens
        if tokens:
            yield request, tokens
            budget -= tokens


def slice_of(request: Request, tokens: int, source: int | None) -> Slice:
    """Return the slice of the next `tokens` of `request`; `source` is described in Slice."""
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
        tuple(request.tokens[start + 1 : min(stop + 1, request.prompt_tokens)]) if request.scores_prompt else (),
    )
