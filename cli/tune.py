"""`fairlead tune`: find policies, quanta and rate limits for a trace."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from cli.comparison import INTERRUPTED, Comparison
from cli.configuration import LOCAL_QUANTUM, ROUTE_QUANTUM, Configuration, check_quantum_is_used, policy_names
from cli.limit_options import NAMES, READ_BY, add_limit_options, given_limits
from cli.option_types import wholes, written_to
from cli.pool_options import add_pool_options
from cli.recommendation import alternatives, best_of, reasons_for
from cli.summary_report import summary_report
from cli.summary_table import summary_table
from cli.writing import write
from fairlead.errors import InvalidRequest
from global_scheduler.core.policies import DEFAULT_POLICY
from simulation.spec import SERVED_POLICIES, SERVED_ROUTES
from simulation.what_if.front import ranked
from simulation.what_if.summary import Summary
from throttler.core.profiles import RateLimits

CLIENT_QUANTA = [256, 2048, 16384]
WORKER_QUANTA = [2048, 16384, 131072]
Settings = dict[str, int]  # by axis
LIMITS = {"user_per_minute": [15, 60, 240], "app_per_minute": [RateLimits().app_per_minute]}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("tune", help="find policies, quanta and limits for your own trace")
    add_pool_options(parser)
    add_limit_options(parser, wholes, {name: ",".join(map(str, values)) for name, values in LIMITS.items()})
    parser.add_argument(
        "--policy",
        default=",".join(SERVED_POLICIES),
        help="local policies to try, comma-separated (default: %(default)s)",
    )
    parser.add_argument(
        "--route",
        help=f"global policies to try (default: {','.join(SERVED_ROUTES)}; with one worker {DEFAULT_POLICY})",
    )
    for option, symbol, quanta in (("", "Q^u", CLIENT_QUANTA), ("route-", "Q^w", WORKER_QUANTA)):
        tried = ",".join(map(str, quanta))
        parser.add_argument(
            f"--{option}quantum-tokens", type=wholes, help=f"quanta {symbol} to try, in cost units (default: {tried})"
        )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search and print the recommendation: first the local policy, then the global one, then quanta and limits.

    Each round starts from the best result so far. After an interrupt, the best of the finished ones is recommended.
    """
    search = Search(args)
    status = 0
    try:
        search.run()
    except KeyboardInterrupt:
        if not search.comparison.summaries:
            raise
        print(f"\ninterrupted: {len(search.comparison.summaries)} configurations are done")
        status = INTERRUPTED
    summaries = ranked(search.comparison.summaries)
    write(args.out, "tune", summary_report(summaries))
    print("\n".join(["", summary_table(summaries), *search.comparison.refusals, *search.comparison.unanswered()]))
    print("\n".join([*search.without_effect(), written_to(args.out)]))
    best = best_of(summaries)
    if best is None:
        raise InvalidRequest("no recommendation: under every configuration some client has no answered call")
    print("\n".join(["", *reasons_for(best, summaries), *alternatives(best, summaries)]))
    print("\n".join(["to set it:", *search.tried[best.name].settings(args.throttle)]))
    return status


class Search:
    """A coordinate descent: each round starts from the best result of all earlier rounds."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._policies = policy_names("--policy", args.policy, SERVED_POLICIES)
        default = ",".join(SERVED_ROUTES) if args.workers > 1 else DEFAULT_POLICY
        self._routes = policy_names("--route", args.route or default, SERVED_ROUTES)
        check_quantum_is_used(args.route_quantum_tokens, self._routes)
        self._limits = _limits(args)
        self._start = Configuration(self._policies[0], self._routes[0])
        self._start.scenario(args)  # raises for impossible sizes before any simulation
        self._swept: dict[str, Settings] = {}
        self.tried: dict[str, Configuration] = {}
        self.comparison = Comparison(args)

    def run(self) -> None:
        """Run all rounds. A round with only one candidate is skipped, because the next one includes it."""
        for policies, routes in ((self._policies, self._routes[:1]), ([self._best.policy], self._routes)):
            pairs = list(product(policies, routes))
            if len(pairs) > 1:
                self._try([replace(self._best, policy=local, route=across) for local, across in pairs])
        best = self._best
        self._swept = {_set(best, settings).name: settings for settings in self._sweep(best)}
        self._try([_set(best, settings) for settings in self._swept.values()])

    @property
    def _best(self) -> Configuration:
        best = best_of(self.comparison.summaries)
        return self._start if best is None else self.tried[best.name]

    def _try(self, candidates: Sequence[Configuration]) -> None:
        new = {candidate.name: candidate for candidate in candidates if candidate.name not in self.tried}
        self.tried |= new
        for _ in self.comparison.run({name: candidate.scenario(self._args) for name, candidate in new.items()}):
            pass

    def _sweep(self, best: Configuration) -> list[Settings]:
        """Return all combinations of the limits and of the quanta that the policies of `best` use."""
        axes: dict[str, list[int]] = {}
        if best.policy in LOCAL_QUANTUM:
            axes["Q^u"] = self._args.quantum_tokens or CLIENT_QUANTA
        if best.route in ROUTE_QUANTUM:
            # With one worker, Q^w has no effect.
            several = WORKER_QUANTA if self._args.workers > 1 else [best.route_quantum_tokens]
            axes["Q^w"] = self._args.route_quantum_tokens or several
        axes |= {NAMES[limit]: values for limit, values in self._limits.items()}
        return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]

    def without_effect(self) -> Iterator[str]:
        """Yield the parameters of the last round that had no effect: all tried values gave equal results."""
        done = {s.name: s for s in self.comparison.summaries if s.name in self._swept}
        for axis in next(iter(self._swept.values()), {}):
            tried = sorted({self._swept[name][axis] for name in done})
            if len(tried) > 1 and _is_idle(axis, self._swept, done):
                yield f"{axis} has no effect here: {', '.join(map(str, tried))} give equal results"


def _limits(args: argparse.Namespace) -> dict[str, list[int]]:
    """Return the limits that the throttle uses, with the values to try."""
    given = given_limits(args)
    return {limit: given.get(limit, LIMITS[limit]) for limit in READ_BY[args.throttle]}


def _set(configuration: Configuration, settings: Settings) -> Configuration:
    limits = tuple((limit, settings[symbol]) for limit, symbol in NAMES.items() if symbol in settings)
    return replace(
        configuration,
        quantum_tokens=settings.get("Q^u", configuration.quantum_tokens),
        route_quantum_tokens=settings.get("Q^w", configuration.route_quantum_tokens),
        limits=limits,
    )


def _is_idle(axis: str, swept: Mapping[str, Settings], done: Mapping[str, Summary]) -> bool:
    outcomes: dict[tuple[int, ...], set[tuple[object, ...]]] = {}
    for name, summary in done.items():
        others = tuple(value for key, value in swept[name].items() if key != axis)
        outcomes.setdefault(others, set()).add(summary.cells()[1:])
    return all(len(different) == 1 for different in outcomes.values())
