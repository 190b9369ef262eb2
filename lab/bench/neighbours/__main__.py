"""A quiet user beside one neighbour at a time: how long it waits, and what all get together.

    python -m lab.bench.neighbours [NEIGHBOUR ...] [--engine fake] [--policies dlpm fcfs] [--seconds 30]

Gateway, scheduler and worker are processes. Steps of the engine `fake` take the time that Llama-3.1-8B needs on an
A100-80G, for the tokens of a step and the context that they read (`tallied_worker`). `transformers` and `vllm`, in the
environment of `make vllm-venv`, compute a small model, for which neighbours' lengths are a sixteenth. The neighbour is
another tenant, in a process of its own. For each of them the table has the quiet user's time to the first token and
between tokens, beside the same without neighbours in the same run; and what the neighbour and all together get, in cost
units per second of tokens that the engine computed, with `all` also of those that the cache served.

Targets: the 99th percentile to the first token is at most 1.2 times that alone plus the two longest steps of the
engine, and all get at least 0.97 of what they get under FCFS, where that keeps the engine busy.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lab.bench.flood.workload import Workload
from lab.bench.machine import commit, processor
from lab.bench.neighbours.engines import ENGINES
from lab.bench.neighbours.neighbour import Neighbour, neighbours
from lab.bench.neighbours.report import misses, table
from lab.bench.neighbours.row import Row, rows
from lab.bench.neighbours.trial import Observation, Trial
from local_worker.core.policies import POLICIES


async def compare(
    engine: str,
    policies: Sequence[str],
    chosen: Sequence[Neighbour],
    seconds: float,
    folder: Path,
    work: Workload,
) -> list[Row]:
    """Return the rows of the table: each neighbour under each policy, for so many seconds."""
    seen: list[Observation] = []
    for policy in policies:
        logs = folder / policy
        logs.mkdir(parents=True, exist_ok=True)
        async for each in Trial(engine, policy, logs, work, seconds).run(chosen):
            seen.append(each)
            print(f"{policy}: {each.beside or 'alone'}", file=sys.stderr, flush=True)
    return rows(seen)


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    args = _parser().parse_args()
    setting = ENGINES[args.engine]
    offered = {each.name: each for each in neighbours(setting.longest_prompt)}
    if unknown := [name for name in args.neighbours if name not in offered]:
        sys.exit(f"expected some of {'; '.join(offered)}, got {'; '.join(unknown)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: it ends the services as well
    chosen = [offered[name] for name in args.neighbours or offered]
    every = args.quiet_every or setting.quiet_every
    work = Workload(seed=args.seed, quiet_every=every, quiet_prompt=64, quiet_answer=16)
    found = asyncio.run(compare(args.engine, args.policies, chosen, args.seconds, args.out, work))
    (args.out / "neighbours.json").write_text(json.dumps([asdict(row) for row in found], indent=1))
    load = os.getloadavg()[0]
    print(f"{processor()}, {os.cpu_count()} cores, load {load:.1f}; commit {commit()}; {args.seconds:g} s each\n")
    print(table(found))
    for policy in args.policies:
        print(f"\n{misses(found, policy)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("neighbours", nargs="*", metavar="NEIGHBOUR", help="rows of the table (default: all)")
    parser.add_argument("--engine", choices=ENGINES, default="fake", help="of the worker (default: %(default)s)")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=["dlpm", "fcfs"])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the questions (default: %(default)s)")
    parser.add_argument(
        "--quiet-every", type=float, help="seconds between two questions (default: 0.5, and 2 with a real model)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/neighbours"), help="folder for logs and figures (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    main()
