"""`fairlead simulate`: an operator's own workload under several policies."""

import argparse
from collections.abc import Collection
from itertools import product

from cli.comparison import INTERRUPTED, Comparison
from cli.limit_options import NAMES, add_limit_options, given_limits
from cli.option_types import whole, written_to
from cli.pool_options import add_pool_options, scenario
from cli.recommendation import best_of, reasons_for
from cli.summary_report import summary_report
from cli.summary_table import clients_table, summary_table
from fairlead.errors import InvalidRequest
from global_scheduler.core.policies import POLICIES as ROUTES
from simulation.reproduction.item import Chart, Line, Report
from simulation.reproduction.measures import received
from simulation.reproduction.run import Run
from simulation.reproduction.writing import write
from simulation.spec import LOCAL_POLICIES
from simulation.what_if import clients
from simulation.what_if.front import ranked
from throttler.core.profiles import Limits

MOST_LINES = 8  # clients in a plot: those that sent most


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("simulate", help="your own trace under several policies")
    add_pool_options(parser)
    add_limit_options(parser, whole, {name: str(getattr(Limits(), name)) for name in NAMES})
    parser.add_argument("--policy", default="dlpm", help="local policies, comma-separated (default: %(default)s)")
    parser.add_argument("--route", default="doubleq", help="global policies, comma-separated (default: %(default)s)")
    parser.add_argument("--quantum-tokens", type=whole, default=512, help="Q^u (default: %(default)s)")
    parser.add_argument("--route-quantum-tokens", type=whole, default=4096, help="Q^w (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """A row per pair of policies; when it is interrupted, of those that are done."""
    pairs = product(_names("--policy", args.policy, LOCAL_POLICIES), _names("--route", args.route, ROUTES))
    quanta, limits = (args.quantum_tokens, args.route_quantum_tokens), Limits(**given_limits(args))
    scenarios = {f"{local} + {across}": scenario(args, local, across, *quanta, limits) for local, across in pairs}
    comparison, status = Comparison(args), 0
    try:
        for name, result in comparison.run(scenarios):
            write(args.out, name.replace(" ", ""), Report(_curves(result), [_chart(name, result)]))
    except KeyboardInterrupt:
        if not comparison.summaries:
            raise
        print(f"\ninterrupted: {len(comparison.summaries)} of {len(scenarios)} configurations are done")
        status = INTERRUPTED
    _conclude(args, comparison)
    return status


def _conclude(args: argparse.Namespace, comparison: Comparison) -> None:
    """Write and say what was found; raises InvalidRequest when nothing was answered."""
    summaries = ranked(comparison.summaries)
    write(args.out, "summary", summary_report(summaries))
    rows = [(name, *row.cells()) for name, of in comparison.clients.items() for row in of]
    write(args.out, "clients", Report([clients.HEADER, *rows]))
    print("\n".join(["", summary_table(summaries), *comparison.refusals, *comparison.unanswered()]))
    comparison.check_answered()
    best = best_of(summaries)
    if best is None:
        print("\nnothing is recommended: under every configuration some client has no call answered")
    else:
        print("\n".join(["", clients_table(best.name, comparison.clients[best.name])]))
        print("\n".join(["", *reasons_for(best, summaries)]))
    print(written_to(args.out))


def _names(option: str, text: str, known: Collection[str]) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidRequest(f"no such policy: {', '.join(unknown)}; there are {', '.join(sorted(known))}", option)
    return names


def _loudest(result: Run) -> list[str]:
    return sorted(result.clients, key=lambda client: -len(result.of(client)))[:MOST_LINES]


def _curves(result: Run) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [("client", "second", "service")]
    for client in _loudest(result):
        rows += [(client, second, value) for second, value in enumerate(received(result, client)) if second % 10 == 0]
    return rows


def _chart(name: str, result: Run) -> Chart:
    seconds = range(int(result.seconds) + 2)
    # Whatever a client is called: plots leave out labels that begin with an underscore.
    lines = [Line(f"client {client}", seconds, received(result, client)) for client in _loudest(result)]
    return Chart(f"{name}: service received", "time, s", "service, cost units", lines)
