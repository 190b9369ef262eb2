"""`fairlead demo`: three users contend for the same amount of service under three systems; the results are compared."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from cli.demo.evidence import NAMES, backlogged_gap, findings, weigh
from cli.demo.lengths import lengths_for
from cli.demo.observation import Observation
from cli.demo.picture import draw
from cli.demo.report import screen, write_json
from cli.demo.systems import FAIR, FCFS, VTC, WORKERS, System, stack
from cli.demo.trial import Trial, hold
from cli.demo.watch import watch
from cli.option_types import above_zero
from cli.service_process import ending_signals
from cli.writing import can_draw
from global_scheduler.core.policies import DEFAULT_POLICY
from serving.config import ConfigError

# Service that each system delivers, as a multiple of DLPM's bound. Under FCFS the flooding user gets 80 % of it and the
# others 10 % each, so the gap is 70 % of this service.
SERVICE = 2.0


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("demo", help="compare FCFS, VTC and DLPM under a flood")
    parser.add_argument(
        "--limit",
        type=above_zero,
        default=150.0,
        metavar="SECONDS",
        help="time limit of a system's run, even if it has not delivered its service (default: %(default)s)",
    )
    parser.add_argument("--model", default="smollm2-135m-instruct", help="model of the workers (default: %(default)s)")
    parser.add_argument(
        "--engine",
        default="transformers",
        choices=("transformers", "vllm", "fake"),
        help="transformers, vllm where it is installed, or fake for a trial run (default: %(default)s)",
    )
    parser.add_argument(
        "--route", choices=FAIR, default=DEFAULT_POLICY, help="route beside DLPM: %(choices)s (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-results"),
        help="folder for plot, numbers and logs (default: %(default)s)",
    )
    parser.add_argument(
        "--watch", action="store_true", help="show one system on a page, with buttons that drive it, until Ctrl-C"
    )
    parser.add_argument(
        "--page-listen", default="127.0.0.1:7080", help="address of the page with --watch (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the demo and return 0 only if the measurements support all its findings.

    Raises ConfigError for an engine that is not installed, and StackError when a service fails.
    """
    if args.engine == "vllm" and find_spec("vllm") is None:
        raise ConfigError("--engine vllm: vllm is not installed; docs/operations.md says how to install it")
    args.out.mkdir(parents=True, exist_ok=True)
    # As Ctrl-C, which ends the services as well: a running event loop cancels what it does. An exception that is raised
    # wherever the program is would be lost in a callback of a library.
    for number in ending_signals()[1:]:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    if args.watch:
        return watch(args)
    with asyncio.Runner() as runner:  # one event loop, because gRPC's threads may still use that of an earlier trial
        # DLPM first: its workers report the bound, which sets the amount of service for all systems.
        dlpm = _try(FAIR[args.route], args, runner, lambda seen: seen.served >= SERVICE * seen.bound > 0)
        bound = dlpm.observation.bound
        vtc = _try(VTC, args, runner, lambda seen: seen.served >= SERVICE * bound)
        fcfs = _try(FCFS, args, runner, lambda seen: seen.served >= SERVICE * bound and _gap(seen) > bound)
    trials = [fcfs, vtc, dlpm]
    try:
        runs = [weigh(trial) for trial in trials]
    except ValueError as error:
        print(f"demo: {error}; logs in {args.out}", file=sys.stderr)
        return 1
    found = findings(runs, bound)
    write_json(args.out / "demo.json", bound, found, list(zip(runs, trials, strict=True)))
    print("\n" + screen(runs, found, bound))
    if can_draw():
        draw(args.out / "demo.png", bound, [(weighed, t.observation) for weighed, t in zip(runs, trials, strict=True)])
        print(f"Picture: {args.out / 'demo.png'}")
    print(f"All numbers: {args.out / 'demo.json'}")
    return 0 if all(finding.holds for finding in found) else 1


def _try(
    system: System, args: argparse.Namespace, runner: asyncio.Runner, enough: Callable[[Observation], bool]
) -> Trial:
    print(f"{system.title}: starting gateway, scheduler and {WORKERS} workers", file=sys.stderr, flush=True)
    trial = Trial(system, lengths=lengths_for(args.engine))
    with stack(system, args.model, args.engine, args.out) as running:
        runner.run(hold(trial, running, enough, args.limit))
    return trial


def _gap(observation: Observation) -> float:
    return backlogged_gap(observation.samples, NAMES)
