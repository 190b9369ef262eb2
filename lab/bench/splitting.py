"""Shares of callers that split themselves: many users of a tenant, many sub-agents of an agent. Simulated.

    python -m lab.bench.splitting [--seconds 30] [--levels user] [--levels tenant,user,interaction]
    python -m lab.bench.splitting --workers 4 --route least-delay --levels tenant,user

In each scene two parties keep calls open all the time, so many for each worker; all calls of a party begin with the
same tokens, 128 unless the scene says otherwise. A row shows the part of the workers' service that the second party
received, the part to which it is entitled while it waits at every worker, and its P99 time to the first token.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from global_scheduler.core.policies import DEFAULT_POLICY
from lab.bench.machine import commit
from lab.loops import ClosedLoop
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments
from simulation.run import CallResult, Scenario
from simulation.spec import ClusterSpec, WorkerSpec

NEW_TOKENS, OUTPUT_TOKENS = 64, 48
WARM_UP_SECONDS = 5.0
COLUMNS = ("first party", "second party", "second's part of the service", "its fair part", "its P99 to first token, s")


@dataclass(frozen=True, slots=True)
class Caller:
    """The client and the interaction of one call."""

    client: str
    interaction: str = ""


@dataclass(frozen=True, slots=True)
class Party:
    """One of two parties, which keeps `parallel` calls for each worker open."""

    name: str
    parallel: int
    caller: Callable[[int, int], Caller]  # of the number of the open call, and of the calls so far
    prefix_tokens: int = 128


@dataclass(frozen=True, slots=True)
class Scene:
    """Two parties, of which each should receive half of the service."""

    first: Party
    second: Party


def _users(tenant: str, users: int) -> Callable[[int, int], Caller]:
    return lambda slot, made: Caller(f"{tenant}/user-{slot % users}")


def _agent(name: str) -> Callable[[int, int], Caller]:
    """Return the caller of an agent and its sub-agents, whose sessions name the agent's as their root."""
    return lambda slot, made: Caller("tenant/user", name)


SCENES = (
    Scene(Party("a tenant with 1 user, 40 calls", 40, _users("a", 1)), Party("1 user, 40 calls", 40, _users("b", 1))),
    Scene(
        Party("a tenant with 20 users, 40 calls", 40, _users("a", 20)), Party("1 user, 40 calls", 40, _users("b", 1))
    ),
    Scene(
        Party("a tenant with a new user for each call, 40 calls", 40, lambda slot, made: Caller(f"a/user-{made}")),
        Party("1 user, 40 calls", 40, _users("b", 1)),
    ),
    Scene(
        Party("an agent with 50 sub-agents, a call each", 51, _agent("swarm")),
        Party("an agent of the same user, 16 calls", 16, _agent("single")),
    ),
    Scene(
        Party(
            "a user with a new interaction for each call, none ended, 40 calls",
            40,
            lambda slot, made: Caller("a/user", f"interaction-{made}"),
        ),
        Party("another user of the tenant with one, 40 calls", 40, lambda slot, made: Caller("a/other", "one")),
    ),
    Scene(
        Party("a tenant with 20 users, 20 calls", 20, _users("a", 20)),
        Party("1 user, 8 calls with 3,000 tokens in common", 8, _users("b", 1), prefix_tokens=3000),
    ),
)


@dataclass(frozen=True, slots=True)
class SplittingLoad:
    """The workload of a scene: each open call is followed by the next one until `seconds` have passed."""

    scene: Scene
    seconds: float
    workers: int

    def make(self) -> ClosedLoop:
        """Make the workload; see WorkloadSpec."""
        return _Loop(self).loop


@dataclass(slots=True)
class _Loop:
    load: SplittingLoad
    loop: ClosedLoop = field(default_factory=ClosedLoop)
    segments: PromptSegments = field(default_factory=PromptSegments)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        for party in (self.load.scene.first, self.load.scene.second):
            made, prefix = count(), self.segments.fresh(party.prefix_tokens)
            for slot in range(party.parallel * self.load.workers):
                call = self._call(party, slot, next(made), prefix, 0.0)
                self.loop.start(call, self._then(party, slot, made, prefix))

    def _then(
        self, party: Party, slot: int, made: Iterator[int], prefix: list[int]
    ) -> Callable[[SimulatedCall], Iterator[SimulatedCall]]:
        def then(ended: SimulatedCall) -> Iterator[SimulatedCall]:
            now = ended.arrival + ended.latency
            if now < self.load.seconds:
                call = self._call(party, slot, next(made), prefix, now)
                yield self.loop.follow(call, self._then(party, slot, made, prefix))

        return then

    def _call(self, party: Party, slot: int, made: int, prefix: list[int], arrival: float) -> SimulatedCall:
        caller = party.caller(slot, made)
        return SimulatedCall(
            number=next(self.numbers),
            client=caller.client,
            interaction=caller.interaction,
            app=party.name,
            prompt=[*prefix, *self.segments.fresh(NEW_TOKENS)],
            output_tokens=OUTPUT_TOKENS,
            arrival=arrival,
        )


def measure(scene: Scene, seconds: float, levels: str, workers: int, route: str) -> tuple[float, float]:
    """Return the second party's part of the service, and the P99 of its seconds to the first token."""
    worker = WorkerSpec(fairness_levels=levels, kv_tokens=8192, max_running=16, token_budget=512)
    spec = ClusterSpec(workers=workers, worker=worker, route=route)
    run = Scenario(spec, SplittingLoad(scene, seconds, workers)).run()
    records = [each for each in run.records if WARM_UP_SECONDS <= each.ended < seconds]
    second = [each for each in records if each.app == scene.second.name]
    waits = sorted(each.first - each.arrival for each in second if each.first is not None)
    return sum(map(_service, second)) / sum(map(_service, records)), waits[len(waits) * 99 // 100]


def _service(record: CallResult) -> int:
    return record.input_tokens - record.cached_tokens + 2 * record.output_tokens


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.splitting", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="simulated seconds (default: %(default)s)")
    parser.add_argument("--levels", default="user", help="levels of fairness of the workers (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="number of workers in the pool (default: %(default)s)")
    parser.add_argument("--route", default=DEFAULT_POLICY, help="route policy of the scheduler (default: %(default)s)")
    args = parser.parse_args()
    pool = f"{args.workers} workers, {args.route}" if args.workers > 1 else "1 worker"
    print(f"simulated; commit {commit()}; {pool}; levels {args.levels}, {args.seconds:g} s each\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for scene in SCENES:
        part, wait = measure(scene, args.seconds, args.levels, args.workers, args.route)
        print(f"| {scene.first.name} | {scene.second.name} | {part:.2f} | 0.50 | {wait:.1f} |", flush=True)


if __name__ == "__main__":
    main()
