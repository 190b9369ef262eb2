"""Interactive calls before a batch in the background class: what they wait, and what the pool computes. Simulated.

    python -m lab.bench.background [--batch 10000] [--load 0.3 0.6 0.9] [--workers 2] [--step 0.053] [--seeds 1]

Workers with Llama-3.1-8B on an A100-80G. Four tenants make interactive calls at random times, with prompts of 64 to
2,048 tokens; a load of 1 is what saturates the pool. A batch keeps 256 calls open for each worker until all are
answered. A row shows the P50 and P99 time to the first token of interactive calls without and with the batch, over the
time in which the batch ran, and the service per second of the pool beside that of the batch alone: means over the seeds
1 to SEEDS. Between the two are those without a batch where each step that computes no prompt lasts at least STEP
seconds, as one of the batch does: what a batch costs that only lets nobody interrupt its step.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from lab.bench.machine import commit
from lab.loops import ClosedLoop
from local_worker.core.batch import Batch
from serving.statistics import percentile
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.prompts import PromptSegments
from simulation.run_log import RunLog
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.step_time import Coefficients, StepTime

OPEN = 256  # calls of the batch for each worker
TENANTS = ("ann/a", "bob/b", "bob/c", "carol/d")
PROMPTS, OUTPUT = (64, 2048), 64  # interactive: tokens of prompts, evenly over their logarithm; mean output
BATCH_PROMPT, BATCH_OUTPUT = 400, 100
SATURATING = 11.0  # interactive calls per second that saturate a worker
SETTLED_SECONDS = 10.0  # from the beginning until calls and service count
BATCH = "batch/nightly"


@dataclass(frozen=True, slots=True)
class BackgroundLoad:
    """Interactive calls at `rate` per second for `seconds`, and a batch of so many calls."""

    workers: int
    rate: float
    seconds: float
    batch: int
    seed: int = 1

    def make(self) -> ClosedLoop:
        """Make the workload; see WorkloadSpec."""
        return _Loop(self).loop


@dataclass(slots=True)
class _Loop:
    load: BackgroundLoad
    loop: ClosedLoop = field(default_factory=ClosedLoop)
    segments: PromptSegments = field(default_factory=PromptSegments)
    made: int = 0
    left: int = 0

    def __post_init__(self) -> None:
        dice, at = Random(self.load.seed), 0.0
        while self.load.rate and (at := at + dice.expovariate(self.load.rate)) < self.load.seconds:
            low, high = map(math.log, PROMPTS)
            prompt = round(math.exp(dice.uniform(low, high)))
            output = 1 + min(4 * OUTPUT, int(dice.expovariate(1 / OUTPUT)))
            self.loop.start(self._call(dice.choice(TENANTS), prompt, output, at), lambda ended: ())
        self.left = self.load.batch
        for number in range(min(self.left, OPEN * self.load.workers)):
            self.loop.start(self._of_batch(0.0001 * number), self._next)

    def _next(self, ended: SimulatedCall) -> Iterator[SimulatedCall]:
        if self.left:
            yield self.loop.follow(self._of_batch(ended.arrival + ended.latency), self._next)

    def _of_batch(self, at: float) -> SimulatedCall:
        self.left -= 1
        return self._call(BATCH, BATCH_PROMPT, BATCH_OUTPUT, at)

    def _call(self, client: str, prompt: int, output: int, at: float) -> SimulatedCall:
        self.made += 1
        return SimulatedCall(
            number=self.made,
            client=client,
            prompt=self.segments.fresh(prompt),
            output_tokens=output,
            arrival=at,
            background=client == BATCH,
        )


class LongStep(StepTime):
    """A function from a batch to the seconds of its step: at least `least` where it computes no prompt."""

    def __init__(self, coefficients: Coefficients, least: float) -> None:
        super().__init__(coefficients)
        self._least = least

    def __call__(self, batch: Batch, lengths: Sequence[int]) -> float:
        """See StepTime."""
        seconds = super().__call__(batch, lengths)
        return seconds if any(piece.stop - piece.start > 1 for piece in batch.slices) else max(seconds, self._least)


def simulated(load: BackgroundLoad, least_step: float = 0.0) -> RunLog:
    """Return the run of `load` on the pool; a step without prompts lasts at least `least_step` seconds."""
    worker = WorkerSpec(kv_tokens=425_984, max_running=128, max_prompt_tokens=8192, fairness_levels="tenant,user")
    cluster = SimulatedCluster(ClusterSpec(workers=load.workers, worker=worker), load.make())
    for each in cluster.workers.values():
        each.step_time = LongStep(worker.profile.coefficients, least_step)
    return cluster.run()


def waits(run: RunLog, until: float) -> list[float]:
    """Return the times to the first token of the interactive calls that arrived before `until`."""
    return [
        call.first_token_latency
        for call in run.calls
        if call.client != BATCH and SETTLED_SECONDS <= call.arrival < until
    ]


def served(run: RunLog, until: float) -> float:
    """Return the service of all clients per second between SETTLED_SECONDS and `until`."""

    def total(at: float) -> float:
        return sum(
            max((sum_ for second, sum_ in curve.items() if second <= at), default=0.0) for curve in run.service.values()
        )

    return (total(until) - total(SETTLED_SECONDS)) / (until - SETTLED_SECONDS)


def batch_end(run: RunLog) -> float:
    """Return when the batch had fewer calls than it keeps open."""
    return max(call.arrival for call in run.calls if call.client == BATCH)


def compared(load: BackgroundLoad, step: float) -> tuple[list[list[float]], float]:
    """Return the P50 and P99 of waits without the batch, without it in steps of `step` seconds, and with it; and the
    service per second with it."""
    both = simulated(load)
    until = min(load.seconds, int(batch_end(both)))
    alone = replace(load, seconds=until, batch=0)
    runs = (simulated(alone), simulated(alone, step), both)
    return [[percentile(waits(run, until), part) for part in (50, 99)] for run in runs], served(both, until)


def table(workers: int, batch: int, loads: list[float], step: float, seeds: int, show: Callable[[str], None]) -> None:
    """Show a Markdown table with a row for each load."""
    columns = (
        "load",
        "alone, p50 / p99, s",
        f"alone, in steps of {step} s, p50 / p99, s",
        "before the batch, p50 / p99, s",
        "p99",
        "service/s of the batch alone",
        "",
    )
    show(f"| {' | '.join(columns)} |")
    show(f"|{'---|' * len(columns)}")
    alone = simulated(BackgroundLoad(workers, 0.0, 0.0, batch))
    whole = served(alone, int(batch_end(alone)))
    for load in loads:
        seconds, rate = 1.2 * batch_end(alone) / max(0.05, 1 - load), load * SATURATING * workers
        made = [compared(BackgroundLoad(workers, rate, seconds, batch, 1 + seed), step) for seed in range(seeds)]
        figures = [
            [fmean(over) for over in zip(*of_seeds, strict=True)]
            for of_seeds in zip(*(f for f, _ in made), strict=True)
        ]
        shown = " | ".join(f"{middle:.3f} / {worst:.3f}" for middle, worst in figures)
        service = fmean(service for _, service in made)
        show(
            f"| {load:.1f} | {shown} | {figures[2][1] / figures[0][1]:.2f} times "
            f"| {whole:,.0f} | {service / whole:.2f} times |"
        )


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.background", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--load", type=float, nargs="+", default=[0.3, 0.6, 0.9])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--step", type=float, default=0.053)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    print(f"commit {commit()}")
    table(args.workers, args.batch, args.load, args.step, args.seeds, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
