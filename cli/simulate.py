"""`fairlead simulate`: simulate an operator's own workload under several policies."""

import argparse
from itertools import product

from cli.comparison import INTERRUPTED, Comparison
from cli.configuration import Configuration, check_quantum_is_used, policy_names
from cli.limit_options import NAMES, add_limit_options, given_limits
from cli.objective import objective
from cli.option_types import above_zero, whole, written_to
from cli.pool_options import add_pool_options
from cli.recommendation import alternatives, best_of, reasons_for
from cli.report import Chart, ChartLine, Report
from cli.sizing import Sizing, cost
from cli.summary_report import summary_report
from cli.summary_table import clients_table, summary_table
from cli.writing import write
from global_scheduler.core.policies import DEFAULT_POLICY
from simulation.measures import received
from simulation.run import Scenario, SimulationRun
from simulation.spec import GLOBAL_POLICIES, LOCAL_POLICIES
from simulation.what_if import clients
from simulation.what_if.front import ranked
from simulation.what_if.summary import Summary
from throttler.core.profiles import RateLimits

MOST_LINES = 8  # clients in a plot: those with most calls


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("simulate", help="simulate your own trace under several policies")
    add_pool_options(parser)
    add_limit_options(parser, whole, {name: str(getattr(RateLimits(), name)) for name in NAMES})
    parser.add_argument("--policy", default="dlpm", help="local policies, comma-separated (default: %(default)s)")
    parser.add_argument(
        "--route", default=DEFAULT_POLICY, help="global policies, comma-separated (default: %(default)s)"
    )
    parser.add_argument(
        "--quantum-tokens",
        type=whole,
        default=512,
        help="quantum Q^u per client at a worker, in cost units (default: %(default)s)",
    )
    parser.add_argument(
        "--route-quantum-tokens",
        type=whole,
        help="quantum Q^w of doubleq per client and worker at the scheduler, in cost units (default: 4096)",
    )
    parser.add_argument("--objective", type=objective, help="print how many workers meet it, for example p99-ttft=2s")
    parser.add_argument("--price", type=above_zero, help="price of a GPU hour; print the cost of a million tokens")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate each pair of policies and print a row per pair; after an interrupt, only the finished ones."""
    configurations = _configurations(args)
    scenarios = {name: configuration.scenario(args) for name, configuration in configurations.items()}
    comparison, status = Comparison(args), 0
    try:
        for name, result in comparison.run(scenarios):
            write(args.out, name.replace(" ", ""), Report(_curves(result), [_chart(name, result)]))
    except KeyboardInterrupt:
        if not comparison.summaries:
            raise
        print(f"\ninterrupted: {len(comparison.summaries)} of {len(scenarios)} configurations are done")
        status = INTERRUPTED
    best = _conclude(args, comparison)
    if best is not None:
        print("\n".join(["to set it:", *configurations[best.name].settings(args.throttle)]))
        _size(args, comparison, scenarios[best.name], best)
    print(written_to(args.out))
    return status


def _configurations(args: argparse.Namespace) -> dict[str, Configuration]:
    """Return the configurations by the names of their two policies, in which alone they differ."""
    routes = policy_names("--route", args.route, GLOBAL_POLICIES)
    check_quantum_is_used(args.route_quantum_tokens, routes)
    pairs = product(policy_names("--policy", args.policy, LOCAL_POLICIES), routes)
    quanta, limits = (args.quantum_tokens, args.route_quantum_tokens or 4096), tuple(given_limits(args).items())
    return {f"{local} + {across}": Configuration(local, across, *quanta, limits) for local, across in pairs}


def _size(args: argparse.Namespace, comparison: Comparison, scenario: Scenario, best: Summary) -> None:
    """Print how many workers meet the objective, and the cost of tokens, if these options were given."""
    sizing, workers = Sizing(comparison, scenario, {args.workers: best}), args.workers
    if args.objective is not None:
        print("\n".join(sizing.sentences(args.objective)))
        workers = sizing.enough or workers
    if args.price is not None:
        print(cost(sizing.summary(workers), workers, args.price))


def _conclude(args: argparse.Namespace, comparison: Comparison) -> Summary | None:
    """Write and print the results and return the best configuration; raises InvalidRequest when no call was
    answered."""
    summaries = ranked(comparison.summaries)
    write(args.out, "summary", summary_report(summaries))
    rows = [(name, *row.cells()) for name, of in comparison.clients.items() for row in of]
    write(args.out, "clients", Report([clients.HEADER, *rows]))
    print("\n".join(["", summary_table(summaries), *comparison.refusals, *comparison.unanswered()]))
    comparison.check_answered()
    best = best_of(summaries)
    if best is None:
        print("\nno recommendation: under every configuration some client has no answered call")
    else:
        print("\n".join(["", clients_table(best.name, comparison.clients[best.name])]))
        print("\n".join(["", *reasons_for(best, summaries), *alternatives(best, summaries)]))
    return best


def _loudest(result: SimulationRun) -> list[str]:
    return sorted(result.clients, key=lambda client: -len(result.of(client)))[:MOST_LINES]


def _curves(result: SimulationRun) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("client", "second", "service")]
    for client in _loudest(result):
        rows += [(client, second, value) for second, value in enumerate(received(result, client)) if second % 10 == 0]
    return rows


def _chart(name: str, result: SimulationRun) -> Chart:
    seconds = range(int(result.seconds) + 2)
    # With the word "client", because plots leave out labels that begin with an underscore.
    lines = [ChartLine(f"client {client}", seconds, received(result, client)) for client in _loudest(result)]
    return Chart(f"{name}: service received", "time, s", "service, cost units", lines)
