"""Host time of a step's plan and commit with 256 running and 10,000 waiting requests of 1,000 clients."""

import gc
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from lab.bench.fair_slices.driven import commit, request_of
from simulation.spec import WorkerSpec

RUNNING, WAITING, CLIENTS = 256, 10_000, 1000
PREFIX = 256  # tokens that a client's prompts have in common
WARM_UP_STEPS, STEPS = 100, 200


@dataclass(frozen=True, slots=True)
class HostTime:
    """Microseconds of processor time for one step."""

    plan: float
    worst_plan: float
    commit: float


def measure(policy: str) -> HostTime:
    """Return the medians and the worst plan under `policy`, without Python's collector of cycles: there are none."""
    gc.disable()
    try:
        return _measure(policy)
    finally:
        gc.enable()


def _measure(policy: str) -> HostTime:
    spec = WorkerSpec(policy=policy, kv_tokens=960_000, max_running=RUNNING, max_prompt_tokens=8192)
    batcher, dice = spec.make_batcher(), random.Random(1)
    prefixes = [[dice.randrange(50_000) for _ in range(PREFIX)] for _ in range(CLIENTS)]
    arrivals = 0
    plans: list[int] = []
    commits: list[int] = []
    for step in range(WARM_UP_STEPS + STEPS):
        while len(batcher.queue.waiting) + len(batcher.queue.running) < WAITING + RUNNING:
            client = dice.randrange(CLIENTS)
            prompt = prefixes[client] + [dice.randrange(50_000) for _ in range(dice.randrange(16, 512))]
            request = request_of(f"u{client}", prompt, dice.randrange(100, 300), arrivals, spec.block_tokens)
            batcher.queue.submit(request, 0.0)
            arrivals += 1
        began = time.thread_time_ns()
        plan = batcher.plan(0.0)
        planned = time.thread_time_ns()
        assert plan is not None
        commit(batcher, plan)
        if step >= WARM_UP_STEPS:
            plans.append(planned - began)
            commits.append(time.thread_time_ns() - planned)
    return HostTime(median(plans) / 1000, max(plans) / 1000, median(commits) / 1000)


def table(policies: list[str], rounds: int = 2) -> Iterator[str]:
    """Yield the lines of a Markdown table; the policies take turns, and the least of the rounds is shown."""
    yield "| policy | plan, median, us | plan, worst, us | commit, median, us |"
    yield "|---|---|---|---|"
    found = [(policy, measure(policy)) for _ in range(rounds) for policy in policies]
    for policy in policies:
        best = min((each for name, each in found if name == policy), key=lambda each: each.plan)
        yield f"| {policy} | {best.plan:,.0f} | {best.worst_plan:,.0f} | {best.commit:,.0f} |"
