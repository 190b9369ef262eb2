"""Whose prompts stay in the KV cache: coding agents that pause for their tools, alone and beside a flood.

    python -m lab.bench.fair_cache TRACE

TRACE is a trace of Claude Code sessions (`claudecode_requests.csv.gz`), of which all counts of tokens are divided by
four. Each agent is a user and makes the first calls of one session, with its recorded pauses. The flood's prompts are
all different. Each row is one simulation of one GPU.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from lab.bench.machine import commit
from lab.reproduction.systems import least_recently_used
from serving.statistics import percentile
from simulation.run import Scenario, SimulationRun
from simulation.spec import SERVED, ClusterSpec
from simulation.trace_replay import TraceReplay
from simulation.trace_rows import TraceRow
from simulation.traces import read

COLUMNS = (
    "beside",
    "eviction",
    "agents' hit rate",
    "their first token p50 / p99, s",
    "their end, s",
    "tokens of the flood's prompts",
)
FLOOD = "flood"
DIVIDED_BY = 4
AGENTS = 16
CALLS = 40  # of each agent
MOST_TOKENS = 32_000  # of a prompt
FLOOD_SECONDS = 400.0
FLOODS = {"nobody": (0.0, 0), "4 x 2,000 tokens/s": (4.0, 2_000), "1 x 8,000 tokens/s": (1.0, 8_000)}
WORKER = replace(SERVED, kv_tokens=200_000, block_tokens=64)


@dataclass(frozen=True)
class Agents:
    """The sessions of agents, and calls of a flood; see WorkloadSpec."""

    trace: Path
    rate: float  # calls of the flood per second
    tokens: int  # of a prompt of the flood

    def make(self) -> TraceReplay:
        """Make the workload."""
        return TraceReplay([*self._agents(), *self._flood()])

    def _agents(self) -> Iterator[TraceRow]:
        sessions: dict[str, list[tuple[int, TraceRow]]] = {}
        for position, row in enumerate(read(self.trace).rows):
            sessions.setdefault(row.interaction, []).append((position, row))
        most = MOST_TOKENS * DIVIDED_BY
        chosen = [rows[:CALLS] for rows in sessions.values() if len(rows) >= CALLS]
        chosen = [rows for rows in chosen if all(row.input_tokens <= most for _, row in rows)]
        Random(1).shuffle(chosen)
        places: dict[int, int] = {}
        for user, rows in enumerate(chosen[:AGENTS]):
            for position, row in rows:
                places[position] = len(places)
                after = tuple([places[before] for before in row.after if before in places])
                yield replace(
                    row,
                    client=f"agent-{user}",
                    arrival=2.0 * user,
                    after=after,
                    input_tokens=row.input_tokens // DIVIDED_BY,
                    output_tokens=max(1, row.output_tokens // DIVIDED_BY),
                    block_tokens=row.block_tokens // DIVIDED_BY,
                )

    def _flood(self) -> Iterator[TraceRow]:
        random, at = Random(2), 0.0
        while self.rate and (at := at + random.expovariate(self.rate)) < FLOOD_SECONDS:
            yield TraceRow(arrival=at, client=FLOOD, app=FLOOD, input_tokens=self.tokens, output_tokens=100)


def hit_rate(run: SimulationRun) -> float:
    """Return the part of the agents' prompts that was cached."""
    calls = [call for call in run.records if call.client != FLOOD]
    return sum(call.cached_tokens for call in calls) / sum(call.input_tokens for call in calls)


def row_of(run: SimulationRun) -> str:
    """Return the figures of a run as cells of a table."""
    agents = [call for call in run.records if call.client != FLOOD]
    waits = [call.first - call.arrival for call in agents if call.first is not None]
    flood = [call for call in run.records if call.client == FLOOD and call.ended < FLOOD_SECONDS]
    last = max(call.ended for call in agents)
    first = " / ".join(f"{percentile(waits, each):.2f}" for each in (50, 99))
    return f"{hit_rate(run):.3f} | {first} | {last:,.0f} | {sum(call.input_tokens for call in flood):,}"


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.fair_cache", description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path)
    trace = parser.parse_args().trace
    print(f"simulated; commit {commit()}; {AGENTS} agents, KV cache of {WORKER.kv_tokens:,} tokens\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for flood, (rate, tokens) in FLOODS.items():
        for name, worker in (("used longest ago", least_recently_used(WORKER)), ("fair", WORKER)):
            run = Scenario(ClusterSpec(worker=worker), Agents(trace, rate, tokens)).run()
            print(f"| {flood} | {name} | {row_of(run)} |", flush=True)


if __name__ == "__main__":
    main()
