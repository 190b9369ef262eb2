"""The flood on one simulated worker, for several policies and quanta: what decides how long the quiet user waits.

    python -m lab.bench.flood.simulated [--quanta 512 128 32] [--seconds 600]

The users, the capacity and the lengths are those of `lab.bench.flood`; the time of a step is a constant and a time per
computed token, fitted to what `lab.bench.flood` measured over vLLM's executor. The simulator is deterministic.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from lab.bench.flood.engine import EngineSettings
from lab.bench.flood.phase import RAMP_SECONDS
from lab.bench.flood.workload import AGENT, FLOOD, QUIET, Workload
from lab.bench.machine import commit
from lab.loops import ClosedLoop
from serving.cost import MICRO
from serving.statistics import percentile
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.run import Scenario
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.step_time import Coefficients, MeasuredProfile

CAPACITY = EngineSettings(threads=2)
# A step of 16 requests of which one enters took 0.21 s, and a question alone was answered in 0.16 s.
STEP = Coefficients(step=0.03, sequence=0.0, weights=0.0, token=0.0033, context=0.0, pair=0.0)


@dataclass(frozen=True, slots=True)
class SimulatedFlood:
    """The calls of the three users until `seconds`, or of the quiet one alone."""

    seconds: float
    alone: bool = False

    def make(self) -> ClosedLoop:
        """Make the workload; see WorkloadSpec."""
        return _Loop(self).loop


Follow = Callable[[SimulatedCall, float], SimulatedCall]  # the next call of a program, after one that ended at a time


@dataclass(slots=True)
class _Loop:
    load: SimulatedFlood
    work: Workload = field(default_factory=Workload)
    loop: ClosedLoop = field(default_factory=ClosedLoop)
    segments: PromptSegments = field(default_factory=PromptSegments)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        work = self.work
        for question in work.questions("alone" if self.load.alone else "flooded", self.load.seconds):
            call = self._call(QUIET, self.segments.fresh(work.quiet_prompt), work.quiet_answer, question.at)
            self.loop.start(call, lambda ended: ())
        if self.load.alone:
            return
        flood_prefix, opening = self.segments.fresh(work.flood_prefix), self.segments.fresh(work.agent_prefix)
        lengths = (work.flood(number).max_tokens for number in count())
        for _ in range(work.flood_open):
            self._start(self._flood(flood_prefix, lengths, 0.0), lambda _, now: self._flood(flood_prefix, lengths, now))
        for _ in range(work.agent_open):
            self._start(self._agent(opening, 0, 0.0), lambda ended, now: self._after(opening, ended, now))

    def _start(self, call: SimulatedCall, follow: Follow) -> None:
        self.loop.start(call, self._then(follow))

    def _then(self, follow: Follow) -> Callable[[SimulatedCall], Iterator[SimulatedCall]]:
        def then(ended: SimulatedCall) -> Iterator[SimulatedCall]:
            now = ended.arrival + ended.latency
            if now < self.load.seconds:
                yield self.loop.follow(follow(ended, now), self._then(follow))

        return then

    def _flood(self, prefix: list[int], lengths: Iterator[int], now: float) -> SimulatedCall:
        return self._call(FLOOD, [*prefix, *self.segments.fresh(self.work.flood_own)], next(lengths), now)

    def _after(self, opening: list[int], ended: SimulatedCall, now: float) -> SimulatedCall:
        """Return the call of the agent that follows: the next of the interaction, or the first of another one."""
        stage = ended.stage + 1
        if stage == self.work.agent_calls:
            return self._agent(opening, 0, now)
        return self._agent([*ended.prompt, *ended.answer], stage, now)

    def _agent(self, before: list[int], stage: int, now: float) -> SimulatedCall:
        prompt = [*before, *self.segments.fresh(self.work.agent_step)]
        return self._call(AGENT, prompt, self.work.agent_answer, now, stage)

    def _call(self, user: str, prompt: list[int], answer: int, now: float, stage: int = 0) -> SimulatedCall:
        return SimulatedCall(
            number=next(self.numbers), client=user, prompt=prompt, output_tokens=answer, arrival=now, stage=stage
        )


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The service of a simulated worker to the users; `waits` are the quiet user's seconds to the first token."""

    waits: Sequence[float]
    interactions: int  # of the agent, finished
    hit_rate: float
    gap: int  # in cost units


def simulate(policy: str, quantum: int, seconds: float, alone: bool = False) -> Outcomes:
    """Return what the worker of `lab.bench.flood` gives under `policy`, with a quantum in cost units."""
    worker = WorkerSpec(
        profile=MeasuredProfile(coefficients=STEP, kv_tokens=CAPACITY.kv_tokens),
        policy=policy,
        quantum_tokens=quantum,
        kv_tokens=CAPACITY.kv_tokens,
        block_tokens=CAPACITY.block_tokens,
        max_running=CAPACITY.max_running,
        token_budget=CAPACITY.token_budget,
    )
    run = Scenario(ClusterSpec(worker=worker), SimulatedFlood(seconds, alone)).run()
    last = Workload().agent_calls - 1
    asked = [each for each in run.of(QUIET) if each.arrival >= RAMP_SECONDS]
    return Outcomes(
        waits=[each.first - each.arrival for each in asked if each.first is not None],
        interactions=sum(each.stage == last for each in run.of(AGENT)),
        hit_rate=sum(each.cached_tokens for each in run.records) / sum(each.input_tokens for each in run.records),
        gap=run.worst_gap // MICRO,
    )


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.flood.simulated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quanta",
        type=int,
        nargs="+",
        default=[512, 256, 128, 64, 32],
        help="quantum of DLPM in cost units (default: %(default)s)",
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated time in seconds (default: %(default)s)")
    args = parser.parse_args()
    alone = simulate("dlpm", args.quanta[0], args.seconds, alone=True).waits
    print(f"commit {commit()}; alone the quiet user waits {_percentiles(alone)} s\n")
    print("| policy | quantum | quiet user's wait, p50 / p99, s | agent's interactions | hit rate | gap |")
    print("|---|---|---|---|---|---|")
    cases = [("fcfs", 1), ("vtc", 1), *(("dlpm", quantum) for quantum in args.quanta)]  # FCFS and VTC have no quantum
    for policy, quantum in cases:
        found = simulate(policy, quantum, args.seconds)
        shown = f"{quantum:,}" if policy == "dlpm" else ""
        waits = _percentiles(found.waits)
        print(
            f"| {policy} | {shown} | {waits} | {found.interactions} | {found.hit_rate:.1%} | {found.gap:,} |",
            flush=True,
        )


def _percentiles(waits: Sequence[float]) -> str:
    return f"{percentile(waits, 50):.2f} / {percentile(waits, 99):.2f}"


if __name__ == "__main__":
    main()
