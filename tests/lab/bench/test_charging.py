"""What the comparison of ways to charge for output measures."""

from dataclasses import replace

import pytest

from lab.bench.charging.cases import A100, EXPECTED, Case
from lab.bench.charging.flows import Flow, TwoFlows
from lab.bench.charging.row import COLUMNS, Row
from lab.bench.charging.window import Window
from local_worker.core.accounts.charging import OutputCharge
from simulation.cluster import SimulatedCluster
from simulation.spec import AdmissionMode, ClusterSpec

SMALL = replace(A100, kv_tokens=2048, max_running=8, max_prompt_tokens=1024, max_output_tokens=1024)
CASE = Case("twelve calls beside four", SMALL, TwoFlows(Flow(12, (20,)), Flow(4, (20,))), 4.0, context=1024)


def test_calls_without_a_limit_reserve_the_rest_of_the_context_and_none_outlives_the_window() -> None:
    calls = SimulatedCluster(ClusterSpec(worker=SMALL), Window(CASE.workload, 0.5, context=1024).make()).run().calls
    assert {call.prompt_tokens + call.output_tokens + call.unused_tokens for call in calls} == {1024}
    assert any(call.completed for call in calls)
    assert all(call.arrival < 0.5 for call in calls)
    assert not all(call.completed for call in calls)


@pytest.mark.parametrize("charge", [*OutputCharge, EXPECTED])
def test_a_row_has_a_gap_within_its_bound(charge: str) -> None:
    row = Row(CASE, charge, AdmissionMode.OPTIMISTIC, 64, is_limited=False).run()
    cells = dict(zip(COLUMNS, row.strip("| ").split(" | "), strict=True))
    gap, bound = (float(cells[name].split(" (")[0].replace(",", "")) for name in ("gap", "bound"))
    assert 0 < gap <= bound, row
    assert cells["charge"] == f"`{charge}`"
