"""`fairlead tune`: sweep the quanta and the throttle's limits over a trace; draw the fronts, recommend."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from cli.comparison import INTERRUPTED, Comparison
from cli.limit_options import NAMES, READ_BY, add_limit_options, given_limits
from cli.option_types import wholes, written_to
from cli.pool_options import add_pool_options, scenario
from cli.recommendation import best_of, reasons_for
from cli.summary_report import summary_report
from cli.summary_table import summary_table
from fairlead.errors import InvalidRequest
from simulation.reproduction.run import Scenario
from simulation.reproduction.writing import write
from simulation.what_if.front import ranked
from simulation.what_if.summary import Summary
from throttler.core.profiles import Limits

CLIENT_QUANTA = "256,2048,16384"
WORKER_QUANTA = "2048,16384,131072"
Settings = dict[str, int]  # by axis
LIMITS = {"user_per_minute": [15, 60, 240], "app_per_minute": [Limits().app_per_minute]}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    parser = commands.add_parser("tune", help="find quanta and limits for your own trace")
    add_pool_options(parser)
    add_limit_options(parser, wholes, {name: ",".join(map(str, values)) for name, values in LIMITS.items()})
    parser.add_argument(
        "--quantum-tokens", type=wholes, default=CLIENT_QUANTA, help="Q^u to try (default: %(default)s)"
    )
    parser.add_argument(
        "--route-quantum-tokens", type=wholes, default=WORKER_QUANTA, help="Q^w to try (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """DLPM and DoubleQ with every combination; when it is interrupted, of those that are done."""
    settings = _settings(args)
    comparison, status = Comparison(args), 0
    try:
        for _ in comparison.run({name: _scenario(args, values) for name, values in settings.items()}):
            pass
    except KeyboardInterrupt:
        if not comparison.summaries:
            raise
        print(f"\ninterrupted: {len(comparison.summaries)} of {len(settings)} configurations are done")
        status = INTERRUPTED
    summaries = ranked(comparison.summaries)
    write(args.out, "tune", summary_report(summaries))
    print("\n".join(["", summary_table(summaries), *comparison.refusals, *comparison.unanswered()]))
    print("\n".join([*_without_effect(settings, summaries), written_to(args.out)]))
    best = best_of(summaries)
    if best is None:
        raise InvalidRequest("nothing is recommended: under every configuration some client has no call answered")
    print("\n".join(["", *reasons_for(best, summaries)]))
    return status


def _settings(args: argparse.Namespace) -> dict[str, Settings]:
    """Every combination of what is swept, under a name that tells it."""
    axes, given = {"Q^u": args.quantum_tokens, "Q^w": args.route_quantum_tokens}, given_limits(args)
    axes |= {NAMES[limit]: given.get(limit, LIMITS[limit]) for limit in READ_BY[args.throttle]}
    found = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return {", ".join(f"{axis}={value}" for axis, value in values.items()): values for values in found}


def _scenario(args: argparse.Namespace, values: Settings) -> Scenario:
    limits = {limit: values[symbol] for limit, symbol in NAMES.items() if symbol in values}
    return scenario(args, "dlpm", "doubleq", values["Q^u"], values["Q^w"], Limits(**limits))


def _without_effect(settings: Mapping[str, Settings], summaries: Sequence[Summary]) -> Iterator[str]:
    """What was tried in vain: whatever else is set, every value of it gives the same."""
    for axis in next(iter(settings.values())):
        tried = sorted({values[axis] for values in settings.values()})
        outcomes: dict[tuple[int, ...], set[tuple[object, ...]]] = {}
        for summary in summaries:
            others = tuple(value for key, value in settings[summary.name].items() if key != axis)
            outcomes.setdefault(others, set()).add(summary.cells()[1:])
        if len(tried) > 1 and all(len(different) == 1 for different in outcomes.values()):
            yield f"{axis} makes no difference here: {', '.join(map(str, tried))} all give the same"
