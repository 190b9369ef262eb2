"""Agents on a simulated pool: all are followed to their ends, and whoever was admitted goes on."""

from dataclasses import replace

import pytest

from lab.bench.working_sets import stack
from lab.bench.working_sets.__main__ import CELLS, cluster, run
from lab.bench.working_sets.agents import Agents
from lab.bench.working_sets.sessions import Session, Turn
from simulation.cluster import SimulatedCluster
from simulation.trace_rows import PrefixBlocks, TraceRow

CELL = replace(CELLS["claude-code"], gpu="a10g", kv_tokens=25_600, longest=8000)
SECONDS = 120.0


def session(calls: int) -> Session:
    """A context that grows by ten blocks with each call."""
    rows = [
        TraceRow(
            arrival=0.0,
            client="",
            app="agent",
            input_tokens=64 * 10 * (number + 1),
            output_tokens=16,
            blocks=(PrefixBlocks("own", range(10 * (number + 1))),),
            block_tokens=64,
        )
        for number in range(calls)
    ]
    return [Turn(row, 1.0, (number - 1,) if number else ()) for number, row in enumerate(rows)]


def agents(per_second: float) -> Agents:
    return Agents([session(8)], [2.0, 1.0], per_second, SECONDS)


def test_agents_that_fit_all_finish_and_nothing_is_computed_again() -> None:
    seen = run(cluster(CELL, "oit", 1), agents(0.05))
    assert seen.refused == 0
    assert len(seen.finished) > 2
    assert all(each.calls == 8 for each in seen.finished)
    assert sum(call.again for call in seen.answered) == 0


def test_with_claims_no_turn_of_an_admitted_agent_is_refused_and_less_is_computed_again() -> None:
    by_calls = run(cluster(CELL, "oit, calls", 1), agents(1.0))
    seen = agents(1.0)
    log = SimulatedCluster(cluster(CELL, "oit", 1), seen).run()
    refused = [call for call in log.calls if not call.completed]
    assert refused
    assert all(call.stage == 0 for call in refused)
    assert len(seen.finished) > len(by_calls.finished)
    again = [sum(call.again for call in each.answered) / len(each.answered) for each in (seen, by_calls)]
    assert again[0] < again[1]


@pytest.mark.e2e
async def test_agents_on_real_processes_are_measured() -> None:
    seen = await stack.run("oit:100000", per_minute=120, seconds=10, engine="fake:0.02")
    assert seen.calls == len(seen.first_tokens) > 0
    assert seen.computed >= seen.calls * stack.ANSWER_TOKENS
    assert 0 <= seen.again <= seen.computed
