"""`fairlead tune`: sweep the quanta and the throttle's limit over a trace; draw the front, recommend."""

import argparse
from itertools import product

from cli.simulate import (
    CLIENT_QUANTA,
    WORKER_QUANTA,
    add_workload_options,
    front_report,
    recommendation,
    results,
    scenario,
    table,
    wholes,
    workload,
)
from simulation.reproduction.writing import write
from simulation.what_if import summarize


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("tune", help="find quanta and limits for your own trace")
    add_workload_options(parser)
    parser.add_argument(
        "--quantum-tokens", type=wholes, default=CLIENT_QUANTA, help="Q^u to try (default: %(default)s)"
    )
    parser.add_argument(
        "--route-quantum-tokens", type=wholes, default=WORKER_QUANTA, help="Q^w to try (default: %(default)s)"
    )
    parser.add_argument(
        "--user-per-minute", type=wholes, default="60", help="T_user to try, with --throttle (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """DLPM and DoubleQ with every combination."""
    workload(args).rows()  # what is wrong with it is said before anything starts
    axes = args.quantum_tokens, args.route_quantum_tokens, args.user_per_minute
    scenarios = {
        f"Q^u={client}, Q^w={worker}, T_user={limit}": scenario(args, "dlpm", "doubleq", client, worker, limit)
        for client, worker, limit in product(*axes)
    }
    summaries = [summarize(name, result) for name, result in results(scenarios, args.processes)]
    write(args.out, "tune", front_report(summaries))
    print(table(summaries))
    print(recommendation(summaries))
    print(f"plot and numbers: {args.out}")
    return 0
