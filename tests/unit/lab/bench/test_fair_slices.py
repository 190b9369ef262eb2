"""What `lab.bench.fair_slices` counts, on short cases: the same under every policy, and less under fair ones."""

from pathlib import Path

import pytest

from lab.bench.fair_slices import isolation, mixed, steps
from lab.bench.fair_slices.parties import Parties, Party
from simulation.run import Scenario
from simulation.spec import ClusterSpec, WorkerSpec

QUIET = Party(client="quiet", prompt=16, output=2, every=1.0, start=0.5)
BUSY = Party(client="busy", prompt=64, output=32, open=3)


def test_a_fair_policy_shortens_the_wait_beside_long_prompts_and_leaves_no_step_emptier() -> None:
    fcfs, fair = (steps.measure(policy, 32_768) for policy in ("fcfs", "dlpm"))
    assert len(fair.waits) == len(fcfs.waits) == steps.QUIET_REQUESTS
    assert max(fair.waits) <= 2 < min(fcfs.waits) / 10
    assert fair.tokens_per_step > 0.99 * fcfs.tokens_per_step


def test_the_step_table_has_a_row_for_each_length_and_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "OPEN", {256: 2})
    [_, _, row] = steps.table(["fcfs"])
    assert row.startswith("| 256 | fcfs | 1 to 1 |")


def test_parties_keep_their_calls_open_and_ask_at_intervals_until_the_end() -> None:
    run = Scenario(ClusterSpec(worker=WorkerSpec()), Parties((QUIET, BUSY), 5.0)).run()
    assert [call.arrival for call in run.of("quiet")] == [0.5, 1.5, 2.5, 3.5, 4.5]
    edges = [(call.arrival, 1) for call in run.of("busy")] + [(call.ended, -1) for call in run.of("busy")]
    open_calls, most = 0, 0
    for _, change in sorted(edges):
        open_calls += change
        most = max(most, open_calls)
    assert most == BUSY.open
    assert max(call.arrival for call in run.of("busy")) < 5.0 <= max(call.ended for call in run.of("busy"))


def test_service_is_counted_per_client_and_until_the_end() -> None:
    run = Scenario(ClusterSpec(worker=isolation.worker_spec("vtc")), Parties((QUIET, BUSY), 5.0)).run()
    both = [isolation.served(run, 5.0, client) for client in ("quiet", "busy")]
    assert sum(both) == pytest.approx(isolation.served(run, 5.0))
    assert both[0] == pytest.approx(5 * (16 + 2 * 2) / 5.0)
    assert isolation.served(run, 1e9) * 1e9 == pytest.approx(
        sum(call.input_tokens - call.cached_tokens + 2 * call.output_tokens for call in run.records)
    )


def test_a_mix_has_the_traces_clients_at_its_rate_with_a_prefix_of_their_own(tmp_path: Path) -> None:
    trace = tmp_path / mixed.TRACE.removesuffix(".gz")
    rows = ["0.0,a,300,3", "8.0,a,300,3", "8.0,b,20,6000", "48.1,a,1,1"]
    trace.write_text("\n".join(["arrival_s,client,input_tokens,output_tokens", *rows]))
    calls = list(mixed.Mix(trace, (mixed.OUTPUTS,)).make().first())
    ours = [call for call in calls if call.client != mixed.OUTPUTS.client]
    assert [(call.client, call.arrival) for call in ours] == [("a", 0.0), ("a", 10.0), ("b", 10.0)]
    first, second, other = ours
    assert first.prompt[: mixed.PREFIX] == second.prompt[: mixed.PREFIX]
    assert first.prompt[mixed.PREFIX] != second.prompt[mixed.PREFIX]
    assert (len(first.prompt), len(other.prompt), other.output_tokens) == (300, 20, mixed.LONGEST_OUTPUT)
    assert len(calls) - len(ours) == mixed.OUTPUTS.open
