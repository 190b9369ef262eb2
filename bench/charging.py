"""What it costs to charge for output when it is generated or reserved: DLPM on one simulated worker.

    python -m bench.charging [--seconds 60] [--quantum-tokens 512]

In each scene two users keep calls open all the time; all calls of a user begin with the same 512 tokens. The first user
floods the worker. A row shows the largest service gap that the worker measured and the bound that holds for it, in cost
units and in seconds of the run's service; the service of all per second; the part of prompt tokens that were cached;
and for the second user its part of the service (half is fair where it has enough calls) and its P99 time to the first
token.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from bench.machine import commit
from local_worker.core.charging import OutputCharge
from serving.cost import MICRO
from simulation.call import SimulatedCall
from simulation.measures import hit_rate
from simulation.prompts import PromptSegments
from simulation.run import CallResult, Scenario
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.workload import ClosedLoop

PREFIX_TOKENS, NEW_TOKENS = 512, 64
WARM_UP_SECONDS = 5.0
COLUMNS = (
    *("scene", "charge", "gap", "gap, s", "bound", "bound, s", "service/s", "hit rate"),
    *("second's part", "its P99 to first token, s"),
)


@dataclass(frozen=True, slots=True)
class Flow:
    """One user's calls: `parallel` are open at any time; each generates `output` tokens and reserves `unused` more."""

    parallel: int
    output: int
    unused: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """Two users, of which the first floods the worker."""

    name: str
    first: Flow
    second: Flow


SCENES = (
    Scene("100 calls beside 100, all use what they reserve", Flow(100, 200), Flow(100, 200)),
    Scene("100 calls beside 8", Flow(100, 200), Flow(8, 200)),
    Scene("long outputs beside short ones", Flow(100, 1000), Flow(100, 50)),
    Scene("all reserve eight times what they use", Flow(100, 200, 1400), Flow(100, 200, 1400)),
    Scene("the first reserves eight times what it uses", Flow(100, 200, 1400), Flow(100, 200)),
    Scene("the first stops after four of 4,000 tokens", Flow(100, 4, 3996), Flow(100, 200)),
)


@dataclass(frozen=True, slots=True)
class ChargingLoad:
    """The workload of a scene: each open call is followed by the next one until `seconds` have passed."""

    scene: Scene
    seconds: float

    def make(self) -> ClosedLoop:
        """Make the workload; see WorkloadSpec."""
        return _Loop(self).loop


@dataclass(slots=True)
class _Loop:
    load: ChargingLoad
    loop: ClosedLoop = field(default_factory=ClosedLoop)
    segments: PromptSegments = field(default_factory=PromptSegments)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        for client, flow in (("first", self.load.scene.first), ("second", self.load.scene.second)):
            prefix = self.segments.fresh(PREFIX_TOKENS)
            for _ in range(flow.parallel):
                self.loop.start(self._call(client, flow, prefix, 0.0), self._then(client, flow, prefix))

    def _then(self, client: str, flow: Flow, prefix: list[int]) -> Callable[[SimulatedCall], Iterator[SimulatedCall]]:
        def then(ended: SimulatedCall) -> Iterator[SimulatedCall]:
            now = ended.arrival + ended.latency
            if now < self.load.seconds:
                yield self.loop.follow(self._call(client, flow, prefix, now), self._then(client, flow, prefix))

        return then

    def _call(self, client: str, flow: Flow, prefix: list[int], arrival: float) -> SimulatedCall:
        return SimulatedCall(
            number=next(self.numbers),
            client=client,
            prompt=[*prefix, *self.segments.fresh(NEW_TOKENS)],
            output_tokens=flow.output,
            unused_tokens=flow.unused,
            arrival=arrival,
        )


def measure(scene: Scene, charge: OutputCharge, seconds: float, quantum_tokens: int) -> tuple[str, ...]:
    """Run a scene and return the cells of its row."""
    worker = WorkerSpec(
        charge=charge,
        quantum_tokens=quantum_tokens,
        kv_tokens=65_536,
        max_running=128,
        max_prompt_tokens=1024,
        max_output_tokens=4096,
    )
    run = Scenario(ClusterSpec(worker=worker), ChargingLoad(scene, seconds)).run()
    records = [each for each in run.records if WARM_UP_SECONDS <= each.ended < seconds]
    second = [each for each in records if each.client == "second"]
    waits = sorted(each.first - each.arrival for each in second if each.first is not None)
    rate = sum(map(_service, records)) / (seconds - WARM_UP_SECONDS)
    gap, bound = run.worst_gap / MICRO, (run.bound or 0) / MICRO
    return (
        *(scene.name, charge, f"{gap:,.0f}", f"{gap / rate:.1f}", f"{bound:,.0f}", f"{bound / rate:.1f}"),
        *(f"{rate:,.0f}", f"{hit_rate(run):.0%}", f"{sum(map(_service, second)) / sum(map(_service, records)):.2f}"),
        f"{waits[len(waits) * 99 // 100]:.1f}",
    )


def _service(record: CallResult) -> int:
    return record.input_tokens - record.cached_tokens + 2 * record.output_tokens


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m bench.charging", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated seconds (default: %(default)s)")
    parser.add_argument("--quantum-tokens", type=int, default=512, help="Q^u, in tokens (default: %(default)s)")
    args = parser.parse_args()
    print(f"simulated; commit {commit()}; Q^u {args.quantum_tokens}, {args.seconds:g} s each\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for scene in SCENES:
        for charge in OutputCharge:
            print(f"| {' | '.join(measure(scene, charge, args.seconds, args.quantum_tokens))} |", flush=True)


if __name__ == "__main__":
    main()
