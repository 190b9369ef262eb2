"""The batcher's decision for one step: how its tokens are divided, its slices, and the plans that are in flight."""

from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from fairlead.outcomes import FinishReason
from local_worker.core.batch import Batch, SampledLogprobs, Slice
from local_worker.core.request import Request


class Plan(NamedTuple):
    """One step: its batch, and the requests that have just entered the running batch, for the first time or again.

    A step may be run as several decoding steps: then `lengths` holds the largest number of tokens that each request
    generates in it. No request can enter before the run ends, and one that ends during the run leaves when it ends.
    """

    batch: Batch
    parts: tuple[tuple[Request, Slice], ...]  # each request of the step with its slice of the batch, in its order
    admitted: tuple[Request, ...]
    lengths: tuple[int, ...] = ()  # one per part; empty unless the step is a run

    @property
    def requests(self) -> tuple[Request, ...]:
        """The requests of the step: the k-th slice of the batch belongs to the k-th request."""
        return tuple([request for request, _ in self.parts])


class Advance(NamedTuple):
    """The new tokens of one request: after a commit, one token per step of an engine.

    `finish` is the reason why the output ends with the last of `tokens`; None while it goes on. An output that cannot
    go on has no new tokens, and a `failure` that says why.
    """

    request: Request
    tokens: Sequence[int]
    finish: FinishReason | None
    logprobs: Sequence[SampledLogprobs] = ()  # one per token; empty unless the caller requested them
    # With the first token of an output, if the caller requested them: those of the prompt's tokens but the first.
    scores: Sequence[SampledLogprobs] | None = None
    failure: str = ""


# A step computes a row of the vocabulary's size for each token that is scored.
SCORED_TOKENS = 256


def behind(request: Request) -> int:
    """Return the number of tokens of a running request that are due and not yet computed.

    After a deferral that is 0 until the steps in flight, which were to compute its next tokens, have ended.
    """
    computed, known, in_flight = request.computed, len(request.tokens), request.in_flight
    if in_flight and computed < known:
        return 0
    return min(known + in_flight, request.budget - 1) - computed


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


class InFlight:
    """The queue of plans in flight. It owns `Request.in_flight`, and sets `computed` to its value after the plan."""

    def __init__(self) -> None:
        self._plans: deque[Plan] = deque()  # oldest first
        self._sources: dict[Request, int] = {}  # index of each request among the samples of the newest plan

    def __bool__(self) -> bool:
        return bool(self._plans)

    def __contains__(self, request: Request) -> bool:
        return any(other is request for plan in self._plans for other, _ in plan.parts)

    def has_any(self, requests: Container[Request]) -> bool:
        """Return whether one of `requests` takes part in a step in flight."""
        return any(request in requests for plan in self._plans for request, _ in plan.parts)

    def launched(self, plan: Plan) -> None:
        """Record `plan`, which the engine computes after all earlier plans."""
        self._plans.append(plan)
        sources = self._sources = {}
        for request, piece in plan.parts:
            request.computed = piece.stop
            if piece.samples:
                sources[request] = len(sources)
                request.in_flight += 1

    def landed(self) -> None:
        """Remove the oldest plan: its step was computed or has failed."""
        for request, piece in self._plans.popleft().parts:
            request.in_flight -= piece.samples
        if not self._plans:
            self._sources = {}  # an idle worker holds no request

    def source(self, request: Request) -> int | None:
        """Return the index of `request`'s last token among the samples of the newest plan; None when the token is
        known."""
        return self._sources[request] if request.in_flight else None

    def check_invariants(self, running: Iterable[Request]) -> None:
        """Raise AssertionError unless the plans sample exactly the tokens that `running` has in flight."""
        for request in running:
            samples = [piece.samples for plan in self._plans for other, piece in plan.parts if other is request]
            assert request.in_flight == sum(samples), f"{request.id}: {request.in_flight} in flight, {samples} launched"
            assert request.computed <= request.due, f"{request.id}: {request.computed} computed, {request.due} due"


class LateMasks:
    """Requests that were deferred (see StepResult), until they take part in a step again."""

    def __init__(self) -> None:
        self._late: dict[Request, None] = {}
        self._ready: dict[Request, None] = {}

    @property
    def requests(self) -> Collection[Request]:
        """Those whose masks are still late."""
        return self._late.keys()

    def add(self, request: Request) -> None:
        """Record that `request` was deferred."""
        self._ready.pop(request, None)
        self._late[request] = None

    def discard(self, arrivals: Collection[int]) -> None:
        """Record that the masks of the requests with these `arrivals` are ready."""
        for request in [request for request in self._late if request.arrival in arrivals]:
            del self._late[request]
            self._ready[request] = None

    def take_back(self, requests: Iterable[Request]) -> list[Request]:
        """Return those of `requests` that were deferred: they take part again."""
        if not self._late and not self._ready:
            return []
        again = [request for request in requests if request in self._late or request in self._ready]
        for request in again:
            self.left(request)
        return again

    def left(self, request: Request) -> None:
        """Forget `request`, which has left the running batch."""
        self._late.pop(request, None)
        self._ready.pop(request, None)
