"""One seed, one small random system, broken at random and watched by the oracle.

`python -m simulation.rehearsal --seeds 1000` runs seeds 0 to 999; a failure prints the command that replays it.
"""

import argparse
import random
import sys
import traceback
from multiprocessing import Pool

from global_scheduler.core.policies import POLICIES as ROUTES
from local_worker.core.limits import Admission
from simulation.call import Call
from simulation.cluster import Cluster
from simulation.faults import draw, inject, lose_events
from simulation.journal import Journal
from simulation.oracle import run_watched
from simulation.prompts import Segments, output_run
from simulation.spec import ADMISSIONS, LOCAL_POLICIES, ClusterSpec, WorkerSpec
from simulation.workload import ClosedLoop
from throttler.core.profiles import Limits

SECONDS = 20.0


def rehearse(seed: int) -> Journal:
    """Raises AssertionError when the system breaks a promise under `seed`."""
    rng = random.Random(seed)
    cluster = Cluster(_spec(rng), _workload(rng))
    inject(cluster, draw(rng, cluster, rng.randrange(8), SECONDS))
    lose_events(cluster, random.Random(rng.random()), rng.choice([0.0, 0.3]))
    return run_watched(cluster)


def _spec(rng: random.Random) -> ClusterSpec:
    worker = WorkerSpec(
        policy=rng.choice(sorted(LOCAL_POLICIES)),
        cost=rng.choice(["weighted-tokens", "profiled"]),
        quantum_tokens=rng.choice([16, 128, 1024]),
        kv_tokens=rng.choice([640, 2048]),
        max_running=rng.choice([4, 16]),
        token_budget=rng.choice([64, 512]),
        max_prompt_tokens=512,
        max_output_tokens=64,
        max_waiting=rng.choice([8, 1000]),
        admission=rng.choice(list(Admission)),
        strict_paper=rng.random() < 0.3,
        decode_run=rng.choice([1, 1, 5]),
    )
    return ClusterSpec(
        workers=rng.choice([1, 2, 4]),
        worker=worker,
        route=rng.choice(sorted(ROUTES)),
        route_quantum_tokens=rng.choice([64, 2048]),
        route_strict_paper=rng.random() < 0.3,
        index_blocks=rng.choice([32, 10_000]),
        throttle=rng.choice(sorted(ADMISSIONS)),
        limits=Limits(user_per_minute=rng.choice([5, 60]), app_per_minute=rng.choice([20, 600])),
        network_seconds=rng.choice([0.0, 0.001, 0.05]),
        event_lag_seconds=rng.choice([0.0, 0.2]),
        report_seconds=rng.choice([0.05, 0.5]),
        stall_timeout=1.0,
    )


def _workload(rng: random.Random) -> ClosedLoop:
    """Interactions of one to four calls, each of which quotes the call before it."""
    segments, loop = Segments(), ClosedLoop()
    systems = {name: segments.fresh(rng.choice([8, 64, 160])) for name in ("chat", "code")}
    numbers = iter(range(10_000))

    def follow(call: Call, left: int) -> list[Call]:
        if not left or not call.completed:
            return []
        prompt = [*call.prompt, *output_run(call.number, 0, call.output_tokens), *segments.fresh(rng.randint(1, 16))]
        arrival = call.latency + call.arrival + rng.expovariate(2.0)
        after = _call(rng, next(numbers), call.client, call.app, prompt, arrival)
        after.interaction, after.stage, after.last = call.interaction, call.stage + 1, left == 1
        return [loop.follow(after, lambda ended: follow(ended, left - 1))]

    for number in range(rng.randint(10, 60)):
        app = rng.choice(sorted(systems))
        prompt = [*systems[app], *segments.fresh(rng.randint(1, 64))]
        arrival, calls = rng.uniform(0, SECONDS / 2), rng.randrange(4)
        call = _call(rng, next(numbers), f"client-{rng.randrange(4)}", app, prompt, arrival)
        call.interaction, call.last = f"interaction-{number}", not calls
        loop.start(call, lambda ended, left=calls: follow(ended, left))  # type: ignore[misc]
    return loop


def _call(rng: random.Random, number: int, client: str, app: str, prompt: list[int], arrival: float) -> Call:
    output = rng.randint(1, 40)
    return Call(number=number, client=client, app=app, prompt=prompt, output_tokens=output, arrival=arrival)


def _attempt(seed: int) -> tuple[int, str]:
    try:
        rehearse(seed)
    except Exception:  # whatever it is, the seed is to be printed
        return seed, traceback.format_exc()
    return seed, ""


def main() -> int:
    """Exit status 1 when a seed failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    args = parser.parse_args()
    failed = 0
    with Pool() as pool:
        for seed, error in pool.imap_unordered(_attempt, range(args.first, args.first + args.seeds), chunksize=4):
            if error:
                failed += 1
                print(f"{error}seed {seed} failed; replay: python -m simulation.rehearsal --seeds 1 --first {seed}")
    print(f"{args.seeds - failed} of {args.seeds} seeds passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
