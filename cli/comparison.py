"""Comparison of configurations of one pool under one trace, simulated in parallel and judged as runs finish."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace

from cli.configuration import Configuration
from cli.jobs import run_jobs
from cli.pool_options import prepare, workload
from cli.summary_table import times
from fairlead.errors import InvalidRequest, listed
from simulation.run import Scenario, SimulationRun
from simulation.what_if.baseline import Baseline, Isolation
from simulation.what_if.clients import ClientRow, by_client
from simulation.what_if.reasons import reasons
from simulation.what_if.summary import Summary, summarize

INTERRUPTED = 130  # exit status of an interrupted command in a shell


class Comparison:
    """The results of each configuration so far, by its name.

    All configurations are judged against one baseline, which is simulated together with the first of them.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.summaries: list[Summary] = []
        self.clients: dict[str, list[ClientRow]] = {}
        self.refusals: list[str] = []
        self._args = args
        self._calls = prepare(args)
        # The services' default policies: the choice hardly affects a lone client or the capacity.
        spec = Configuration("dlpm").scenario(args).spec
        self._pool = replace(spec, throttle="none")
        self._baseline: Baseline | None = None

    def run(self, scenarios: Mapping[str, Scenario]) -> Iterator[tuple[str, SimulationRun]]:
        """Simulate and judge each scenario, equal ones once; print a line and yield the run as each one finishes."""
        isolation = [Isolation(self._pool, workload(self._args))] if self._baseline is None else []
        unjudged: list[tuple[str, SimulationRun]] = []
        for job, result in run_jobs([*isolation, *scenarios.values()], self._args.processes, self._calls):
            if isinstance(job, Isolation):
                self._baseline = result
                print(_described(result), flush=True)
            else:
                unjudged += [(name, result) for name, wanted in scenarios.items() if wanted == job]
            if self._baseline is not None:
                for name, run in unjudged:
                    self._add(name, run, scenarios[name], self._baseline)
                    yield name, run
                unjudged.clear()

    def judge(self, name: str, scenario: Scenario) -> Summary:
        """Simulate one more scenario and judge it against the same baseline; it does not enter the comparison."""
        assert self._baseline is not None
        [(_, run)] = run_jobs([scenario], 1, self._calls)
        return summarize(name, run, self._baseline)

    def unanswered(self) -> list[str]:
        """Return, for each configuration, the clients without any answered call."""
        return [f"{s.name}: no call of {listed(s.unanswered)} was answered" for s in self.summaries if s.unanswered]

    def check_answered(self) -> None:
        """Raise InvalidRequest, with the reasons, when no configuration answered any call."""
        if not any(summary.answered for summary in self.summaries):
            raise InvalidRequest(f"no call was answered: {'; '.join(self.refusals)}")

    def _add(self, name: str, run: SimulationRun, scenario: Scenario, baseline: Baseline) -> None:
        summary = summarize(name, run, baseline)
        self.summaries.append(summary)
        self.clients[name] = by_client(run, baseline)
        self.refusals += [f"{name}: {reason}" for reason in reasons(run, scenario.spec)]
        judged = summary.judged
        print(
            f"{name}: slowdown {times(summary.of_clients)}, mean TTFT {judged.ttft_mean:,.2f} s, "
            f"{summary.service:,.0f} service/s",
            flush=True,
        )


def _described(baseline: Baseline) -> str:
    """Describe the pool's capacity, and whose calls' times are shown."""
    shares = baseline.shares
    within = sum(map(shares.is_within, shares.asks))
    asked = sum(ask.service for ask in shares.asks.values()) / shares.end
    who = "their times are shown first" if within else "every client asks for more, so the times of all are shown"
    return (
        f"the pool gives at most {shares.capacity:,.0f} service/s, {len(shares.clients):,} "
        f"clients ask for {asked:,.0f}\n"
        f"{within:,} of {len(shares.asks):,} calls are within their client's fair share: {who}"
    )
