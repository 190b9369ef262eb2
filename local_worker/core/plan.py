"""The batcher's decision for one step: how its tokens are divided, its slices, its time, and the plans in flight."""

import math
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from local_worker.core.batch import Batch, Entry, Slice
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


def slice_of(request: Request, tokens: int, sources: Mapping[Request, int]) -> Slice:
    """Return the slice of the next `tokens` of `request`; see InFlight for `sources`."""
    start, source = request.computed, sources[request] if request.in_flight else None
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
        request.packed_to(stop) if samples and request.is_penalised else b"",
        request.model,
        tuple(request.tokens[start + 1 : min(stop + 1, request.prompt_tokens)]) if request.scores_prompt else (),
    )


def entry_of(request: Request) -> Entry:
    """Return what an engine is told of a request that enters the running batch."""
    return Entry(request.arrival, tuple(request.tokens), request.client)


class InFlight:
    """The queue of plans in flight. It owns `Request.in_flight`, and sets `computed` to its value after the plan."""

    def __init__(self) -> None:
        self._plans: deque[Plan] = deque()  # oldest first
        # Index of each request among the samples of the newest plan: of its last token, if that is not known yet.
        self.sources: dict[Request, int] = {}

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
        sources = self.sources = {}
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
            self.sources = {}  # an idle worker holds no request

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
        self._late.pop(request, None)
        self._ready.pop(request, None)


STRETCH = 2
KEPT = 0.995  # weight of a step's time relative to that of the step after it
LEARNED_EVERY = 16  # steps: what one of many steps changes is not worth solving for
LEAST_STEPS = 32  # number of steps from which the pace is learned before it is used
LEAST_CONTEXT = 512.0  # C is never taken for less: a few odd steps must not stop prompts
MOST_ODD = 10.0  # a step that lasts longer than this times what was expected counts as that: the process was stopped
LEAST_EXPECTED = 0.001  # seconds
RIDGE = 1e-9  # keeps what no step has shown at 0
PLAN_SECONDS = 0.01  # that the host needs at most to plan a step, in most cases
MOST_DELAY = 0.9  # of a step's expected time
DELAY_GROWTH = 0.05  # of that part, after each step that had not ended
ENDED_SECONDS = 0.001  # a step that ends sooner after the launch of the next one had ended before it


class StepLoad(NamedTuple):
    """What the time of a step depends on."""

    step: float  # 1
    tokens: float  # thousands of computed tokens
    context: float  # millions of tokens in the pages of all requests
    pairs: float  # millions of pairs of a token of a prompt and one before it

    @classmethod
    def of(cls, slices: Iterable[Slice]) -> "StepLoad":
        tokens = context = pairs = 0
        for piece in slices:
            count = piece.stop - piece.start
            tokens += count
            context += piece.stop
            if count > 1:
                pairs += count * (piece.start + piece.stop) // 2
        return cls(1.0, tokens / 1e3, context / 1e6, pairs / 1e6)


class StepPace:
    """The time of steps, as a linear function of their load: least squares over steps of which the older weigh less.

    A budget in tokens does not bound the time of a step, because a token of a prompt attends to all tokens before it:
    2,048 tokens at the end of a prompt of 131,072 take seven times as long as at its beginning on an A100, and all that
    decodes waits for them. A token at context c takes as long as 1 + c / C tokens without, where C is the context at
    which attention takes as long as all the rest. A step lasts at most STRETCH times as long as one of `token_budget`
    tokens without context, or `seconds` if that is less. Shorter steps would read long contexts more often than they
    save.

    What no recent step has shown is forgotten: after hours without prompts a step gets the whole `token_budget` again.
    """

    def __init__(self, token_budget: int, seconds: float | None = None) -> None:
        self._token_budget = token_budget
        self._seconds = seconds
        self._steps = 0
        size = len(StepLoad._fields)
        self._factors = [0.0] * size  # seconds per unit of each field of StepLoad
        self._products = [[0.0] * size for _ in range(size)]  # sums of the products of two fields
        self._times = [0.0] * size  # sums of the products of a field and the time
        self._per_context = 0.0  # 1 / C

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Learn from a step of `load` that took `seconds`."""
        if self._steps >= LEAST_STEPS:
            seconds = min(seconds, MOST_ODD * max(LEAST_EXPECTED, self.expected(load)))
        for place, mine in enumerate(load):
            row = self._products[place]
            for column, other in enumerate(load):
                row[column] = KEPT * row[column] + mine * other
            self._times[place] = KEPT * self._times[place] + mine * seconds
        self._steps += 1
        if self._steps % LEARNED_EVERY == 0:
            self._learn()

    def _learn(self) -> None:
        self._factors = _solved(self._products, self._times)
        per_token, per_pair = self._factors[1] / 1e3, self._factors[3] / 1e6
        if self._steps >= LEAST_STEPS and per_token > 0:
            self._per_context = min(1 / LEAST_CONTEXT, max(0.0, per_pair / per_token))

    def expected(self, load: StepLoad) -> float:
        """Return the seconds that a step of `load` will take, as far as that is learned; at first 0."""
        return max(0.0, sum(map(float.__mul__, self._factors, load))) if self._steps >= LEAST_STEPS else 0.0

    @property
    def budget(self) -> float:
        """The number of tokens without context that a step can compute."""
        per_step, per_token = self._factors[0], self._factors[1] / 1e3
        if self._seconds is None or self._steps < LEAST_STEPS or per_token <= 0:
            return self._token_budget
        return min(self._token_budget, max(1.0, (self._seconds - per_step) / per_token / STRETCH))

    def most_tokens(self, start: int, budget: float) -> int:
        """Return how many tokens from the position `start` on count as at most `budget` tokens without context."""
        first, stretched = 1 + start * self._per_context, 2 * STRETCH * max(0.0, budget)
        return int(min(budget, stretched / (math.sqrt(first**2 + stretched * self._per_context) + first)))

    def counted(self, start: int, tokens: int) -> float:
        """Return as how many tokens without context `tokens` from the position `start` on count."""
        return tokens * max(1.0, (1 + (start + tokens / 2) * self._per_context) / STRETCH)


def _solved(products: Sequence[Sequence[float]], times: Sequence[float]) -> list[float]:
    """Return the factors that fit best: Gaussian elimination of symmetric, positive sums."""
    size = len(times)
    rows = [[*row, time] for row, time in zip(products, times, strict=True)]
    for place in range(size):
        rows[place][place] += RIDGE
    for place, pivot in enumerate(rows):
        for row in rows[place + 1 :]:
            part = row[place] / pivot[place]
            for column in range(place, size + 1):
                row[column] -= part * pivot[column]
    factors = [0.0] * size
    for place in reversed(range(size)):
        known = sum(map(float.__mul__, rows[place][place + 1 : size], factors[place + 1 :]))
        factors[place] = (rows[place][size] - known) / rows[place][place]
    return factors


class PlanDelay:
    """The part of a step's expected time that passes before the next step is planned, where the engine runs ahead.

    Who comes before that is in the next step. But the end is only expected, and a device that waits for the host loses
    more than a newcomer gains. Worse, such a step seems to last until the host came, so that a false expectation would
    confirm itself. So the part of the expected time that the host lets pass grows slowly, falls to 0 as soon as a step
    had ended before the next one was launched, and nothing is learned from that step.
    """

    def __init__(self) -> None:
        self._part = 0.0
        self._is_delayed = False

    def seconds(self, expected: float) -> float:
        """Return how long after the begin of a step, which is expected to last so many seconds, the next one is
        planned; at most 0: at once."""
        delay = self._part * expected - PLAN_SECONDS
        self._is_delayed = delay > 0
        return delay

    def ended(self, waited: float) -> bool:
        """Record that the host waited so many seconds for the end of the step after it had launched the next one;
        return whether the step's time is known: the host did not miss its end."""
        is_missed = self._is_delayed and waited < ENDED_SECONDS
        self._part = 0.0 if is_missed else min(MOST_DELAY, self._part + DELAY_GROWTH)
        self._is_delayed = False
        return not is_missed
