"""What a short request waits for beside long prompts at an engine that schedules by itself, as vLLM does.

The engine gives the tokens of a step to its requests in the order of their arrival, and to a prompt at most T of them
(`--long-prefill-token-threshold`), unless it has no other request. Its steps take the time of Llama-3.1-8B on an
A100-80G. What is given to it, and when, is decided by the adapter's batch. Of a chain of prefixes a link comes a step
after the last one was computed, since the engine does not wait for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fairlead.outcomes import FinishReason
from lab.bench.fair_slices.driven import TOKEN, request_of
from lab.bench.fair_slices.steps import LONG_OUTPUT, QUIET_PROMPT
from local_worker.core.batch import Batch, Slice
from local_worker.core.engine_cache import EngineCache
from local_worker.core.external import ExternalBatch, ExternalQueue, LongPrompts
from local_worker.core.limits import BatchLimits
from local_worker.core.policies import WHOLE_POLICIES, QueuePolicyConfig
from local_worker.core.request import Request
from serving.cost import WeightedTokens
from serving.statistics import percentile
from simulation.step_time import StepTime, profile

BLOCK, PAGES, TOKEN_BUDGET, PART = 16, 40_000, 2048, 512
QUIET_OUTPUT, STEPS, STEPS_BETWEEN = 16, 1500, 10
# Tokens of a long prompt, how many of them each client keeps open, and the number of such clients.
NEIGHBOURS = ((4096, 6, 1), (32_768, 40, 1), (32_768, 6, 3), (131_072, 2, 3))


@dataclass(slots=True)
class Engine:
    """The engine behind `batch`; `part` is T, None without a limit."""

    batch: ExternalBatch
    part: int | None
    computed: dict[Request, int] = field(default_factory=dict)  # tokens of each request at the engine, by arrival
    goals: dict[Request, int | None] = field(default_factory=dict)  # how far it computes a prompt; None: and generates
    linked: list[Request] = field(default_factory=list)  # whose link was computed in the last step
    due: list[Request] = field(default_factory=list)  # and in the one before
    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    _time: StepTime = field(default_factory=lambda: StepTime(profile("a100-80g", "llama-3.1-8b").coefficients))

    def step(self) -> None:
        """Take what the batch gives, and compute one step."""
        for request in [*self.batch.hand_over(self.seconds), *self.due]:
            self.computed[request], self.goals[request] = request.computed, self.batch.queue.next_link(request)
        self.due, self.linked = self.linked, []
        slices = list(self._slices())
        if slices:
            self.seconds += self._time(Batch(tuple(piece for _, piece in slices)), [1] * len(slices))
        self.steps += 1
        for request, piece in slices:
            self.computed[request] = piece.stop
            self.tokens += piece.stop - piece.start
            if piece.samples:
                self._computed(request)
        self.batch.queue.take_left()

    def _slices(self) -> Iterator[tuple[Request, Slice]]:
        left = TOKEN_BUDGET
        part = self.part if self.part is not None and len(self.computed) > 1 else TOKEN_BUDGET
        for request, start in self.computed.items():
            goal = self.goals[request] or len(request.tokens)
            stop = start + min(left, part, goal - start)
            left -= stop - start
            if stop > start:
                is_last = stop == goal
                yield request, Slice(request.arrival, (), start, stop, (), is_last, request.sampling, stop)

    def _computed(self, request: Request) -> None:
        if (goal := self.goals[request]) is not None:
            self.batch.queue.linked(request, goal)
            del self.computed[request]
            self.linked.append(request)
            return
        ends = request.output_tokens + 1 == request.sampling.max_tokens
        self.batch.received(request, [TOKEN], FinishReason.LENGTH if ends else None)
        if ends:
            del self.computed[request], self.goals[request]


def new_batch(policy: str, long_prompts: LongPrompts) -> ExternalBatch:
    """Make an adapter's batch under `policy`, beside an engine with nothing to do, with this way of long prompts."""
    cost, most = WeightedTokens(), PAGES * BLOCK
    config = QueuePolicyConfig(
        quantum_tokens=TOKEN_BUDGET // 4,
        cost=cost,
        max_input_tokens=most,
        max_output_tokens=most,
        most_output_tokens=most,
        block_tokens=BLOCK,
    )
    limits = BatchLimits(
        max_running=128,
        token_budget=TOKEN_BUDGET,
        max_prompt_tokens=most,
        max_waiting=4096,
        max_waiting_per_client=1024,
    )
    cache = EngineCache(PAGES, BLOCK)
    return ExternalBatch(ExternalQueue(WHOLE_POLICIES[policy](config), cache, cost, limits, long_prompts))


@dataclass(slots=True)
class Contention:
    """Some clients keep long prompts open; a quiet one asks for QUIET_OUTPUT tokens every STEPS_BETWEEN steps."""

    engine: Engine
    prompt_tokens: int
    open_each: int
    clients: int
    long: list[Request] = field(default_factory=list)
    arrivals: int = 0
    waits: list[tuple[int, float]] = field(default_factory=list)  # steps and seconds

    def run(self) -> None:
        """Let all ask until the engine has made STEPS steps."""
        while self.engine.steps < STEPS:
            quiet = self._submit("quiet", QUIET_PROMPT, QUIET_OUTPUT)
            steps, seconds = self.engine.steps, self.engine.seconds
            while not quiet.output_tokens:
                self._step()
            self.waits.append((self.engine.steps - steps, self.engine.seconds - seconds))
            while quiet.output_tokens < QUIET_OUTPUT or self.engine.steps % STEPS_BETWEEN:
                self._step()

    def _step(self) -> None:
        self.long = [request for request in self.long if request.output_tokens < LONG_OUTPUT]
        for client in map("long-{}".format, range(self.clients)):
            for _ in range(self.open_each - sum(request.client == client for request in self.long)):
                self.long.append(self._submit(client, self.prompt_tokens, LONG_OUTPUT))
        self.engine.step()

    def _submit(self, client: str, prompt_tokens: int, output_tokens: int) -> Request:
        self.arrivals += 1
        request = request_of(client, [self.arrivals] * prompt_tokens, output_tokens, self.arrivals, BLOCK)
        self.engine.batch.queue.submit(request, self.engine.seconds)
        return request


def table(policies: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for each neighbour, policy and limit."""
    yield "| neighbours | policy | T | long prompts | first token of the short one, p50 / p99: steps | s | tokens/s |"
    yield "|---|---|---|---|---|---|---|"
    for prompt_tokens, open_each, clients in NEIGHBOURS:
        for policy in policies:
            for long_prompts in LongPrompts:
                part = PART if long_prompts is LongPrompts.PARTS else None
                engine = Engine(new_batch(policy, long_prompts), part)
                contention = Contention(engine, prompt_tokens, open_each, clients)
                contention.run()
                steps, seconds = zip(*contention.waits, strict=True)
                yield (
                    f"| {clients} with {open_each} prompts of {prompt_tokens:,} | {policy} | {part or 'none'} "
                    f"| {long_prompts.name.lower()} "
                    f"| {percentile(steps, 50):.0f} / {percentile(steps, 99):.0f} "
                    f"| {percentile(seconds, 50):.2f} / {percentile(seconds, 99):.2f} "
                    f"| {engine.tokens / engine.seconds:,.0f} |"
                )
