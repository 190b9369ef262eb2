"""Steps from a short request's arrival to its first token while another client keeps long prompts open.

The batcher runs alone, without an engine and without time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from lab.bench.fair_slices.driven import commit, request_of
from local_worker.core.batcher import Batcher
from local_worker.core.request import Request
from simulation.spec import WorkerSpec

OPEN = {4096: 6, 32_768: 6, 131_072: 4}  # length of the long prompts -> how many are open at any time
LONG_OUTPUT, QUIET_PROMPT, QUIET_OUTPUT = 16, 64, 4
WARM_UP_STEPS, QUIET_REQUESTS, STEPS_BETWEEN = 20, 8, 7


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps to the first token of each quiet request, and the mean number of tokens of a step."""

    waits: tuple[int, ...]
    tokens_per_step: float


def measure(policy: str, prompt_tokens: int) -> Steps:
    """Return what the quiet client waits for under `policy` beside prompts of this length."""
    return _Contention(policy, prompt_tokens).run()


@dataclass(slots=True)
class _Contention:
    policy: str
    prompt_tokens: int
    batcher: Batcher = field(init=False)
    block_tokens: int = field(init=False)
    long: list[Request] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    steps: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        spec = WorkerSpec(policy=self.policy, kv_tokens=640_000, max_prompt_tokens=131_072, fairness_levels="user")
        self.batcher, self.block_tokens = spec.make_batcher(), spec.block_tokens

    def run(self) -> Steps:
        for _ in range(WARM_UP_STEPS):
            self._step()
        waits = tuple(self._ask() for _ in range(QUIET_REQUESTS))
        return Steps(waits, self.tokens / self.steps)

    def _ask(self) -> int:
        quiet, began = self._submit("quiet", QUIET_PROMPT, QUIET_OUTPUT), self.steps
        while not quiet.output_tokens:
            self._step()
        wait = self.steps - began
        while quiet.output_tokens < QUIET_OUTPUT:
            self._step()
        for _ in range(STEPS_BETWEEN):
            self._step()
        return wait

    def _step(self) -> None:
        self.long = [request for request in self.long if request.output_tokens < LONG_OUTPUT]
        while len(self.long) < OPEN[self.prompt_tokens]:
            self.long.append(self._submit("long", self.prompt_tokens, LONG_OUTPUT))
        plan = self.batcher.plan(0.0)
        assert plan is not None, "nothing was planned although a long prompt is open"
        self.steps += 1
        self.tokens += plan.batch.tokens
        commit(self.batcher, plan)

    def _submit(self, client: str, prompt_tokens: int, output_tokens: int) -> Request:
        number = next(self.numbers)
        request = request_of(client, [number + 2] * prompt_tokens, output_tokens, number, self.block_tokens)
        self.batcher.queue.submit(request, 0.0)
        return request


def table(policies: list[str]) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for each length and policy."""
    yield "| prompts of the other, tokens | policy | steps to the first token, least to most | tokens per step |"
    yield "|---|---|---|---|"
    for prompt_tokens in OPEN:
        for policy in policies:
            found = measure(policy, prompt_tokens)
            span = f"{min(found.waits)} to {max(found.waits)}"
            yield f"| {prompt_tokens:,} | {policy} | {span} | {found.tokens_per_step:,.0f} |"
