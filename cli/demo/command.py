"""`fairlead demo`: start the stack twice, let the users contend, show what each scheduler made of it."""

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cli.demo.evidence import Evidence, weigh
from cli.demo.observation import Observation, observe
from cli.demo.report import plot, table, verdict, write_json
from cli.demo.scenario import PERSONAS, Record, contend
from cli.stack import Stack

WORKERS = 2
# Small on purpose: a bound larger than the whole run's service would show nothing. U = L_input + 2 M per worker.
WORKER_ARGS = ["--kv-tokens", "320", "--max-prompt-tokens", "160", "--token-budget", "128", "--quantum-tokens", "64"]
# A request or two: a client's requests reach every worker within the run, so that it can be backlogged on all of them.
SCHEDULER_ARGS = ["--quantum-tokens", "160"]
PROGRESS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Schedulers:
    """One choice of local and global policy."""

    title: str
    local: str
    across: str


UNFAIR = Schedulers("FCFS + RR", "fcfs", "round-robin")
FAIR = Schedulers("DLPM + DoubleQ", "dlpm", "doubleq")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("demo", help="one contention scenario under FCFS and under DLPM + DoubleQ")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each run (default: %(default)s)")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="what the workers load (default: %(default)s)")
    parser.add_argument("--engine", default="transformers", help="transformers, or fake for a rehearsal")
    parser.add_argument("--out", type=Path, default=Path("demo-results"), help="folder for plot, numbers and logs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 only if every user was really served in both runs and the fair run kept its bound."""
    args.out.mkdir(parents=True, exist_ok=True)
    results: list[tuple[Evidence, Record, Observation]] = []
    for schedulers in (UNFAIR, FAIR):
        record, observation = _serve(schedulers, args)
        try:
            results.append((weigh(schedulers.title, record, observation), record, observation))
        except ValueError as error:
            print(f"demo: {error}; logs in {args.out}", file=sys.stderr)
            return 1
    (unfair, _, _), (fair, _, fair_run) = results
    bound = fair_run.bound
    print(f"\n{table([unfair, fair], bound)}\n")
    write_json(args.out / "demo.json", bound, results)
    plot(args.out / "demo.png", bound, [(evidence, observation) for evidence, _, observation in results])
    print(f"plot: {args.out / 'demo.png'}   numbers: {args.out / 'demo.json'}")
    print(verdict(unfair, fair, bound))
    return 0 if fair.gap <= bound else 1


def _serve(schedulers: Schedulers, args: argparse.Namespace) -> tuple[Record, Observation]:
    print(f"[{schedulers.title}] starting gateway, scheduler and {WORKERS} workers", flush=True)
    stack = Stack(
        workers=WORKERS,
        model=args.model,
        engine=args.engine,
        scheduler_args=[*SCHEDULER_ARGS, "--policy", schedulers.across],
        worker_args=[*WORKER_ARGS, "--policy", schedulers.local],
        gateway_args=["--throttle", "none"],  # only the schedulers differ between the runs
        log_dir=args.out / schedulers.local,
    )
    record, observation = Record(), Observation()
    with stack:
        asyncio.run(_contend(stack, schedulers.title, args.seconds, record, observation))
    return record, observation


async def _contend(stack: Stack, title: str, seconds: float, record: Record, observation: Observation) -> None:
    stop = asyncio.Event()
    observer = asyncio.create_task(observe(stack.scheduler, stack.secret, observation))
    contention = asyncio.create_task(contend(stack.gateway, stop, record))
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0 and not contention.done():
        await asyncio.wait({contention, observer}, timeout=min(left, PROGRESS_SECONDS), return_when="FIRST_COMPLETED")
        _show_progress(title, seconds - left, record, observation)
        if observer.done():
            observer.result()
    observer.cancel()
    stop.set()
    await contention


def _show_progress(title: str, elapsed: float, record: Record, observation: Observation) -> None:
    served = observation.samples[-1].service if observation.samples else {}
    users = "  ".join(f"{persona.name} {served.get(persona.name, 0.0):,.0f}" for persona in PERSONAS)
    print(f"[{title}] {elapsed:3.0f} s  service: {users}  requests done: {len(record.calls)}", flush=True)
