"""What the services of a running cluster expose."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead import Client
from fairlead.errors import FairleadError
from tests.metrics import declared, samples, scrape
from tests.otlp import MetricsReceiver, Receiver
from tests.services import Process, Stack, eventually

Samples = dict[str, list[tuple[dict[str, str], float]]]


async def ask(address: str) -> None:
    async with Client(address, user="ann", app="agent") as client:
        async with client.interaction() as interaction:
            for _ in range(2):
                await interaction.generate("the same prompt again " * 4, max_tokens=8, ignore_eos=True)
        with contextlib.suppress(FairleadError):
            await client.generate("bad", temperature=-1.0)
        async for _ in client.stream("left in the middle", max_tokens=2000, ignore_eos=True):
            break


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, dict[str, Process]]]:
    """A cluster whose services all have the endpoint, after a few calls."""
    stack = Stack(tmp_path_factory.mktemp("stack"), metrics="127.0.0.1:0")
    stack.worker("w0", model="tiny", engine="fake:0.005")
    gateway = stack.gateway()
    asyncio.run(ask(gateway.address))
    yield stack, {"gateway": gateway, "scheduler": stack.scheduler, "worker": stack.workers["w0"]}
    stack.close()


def read(service: Process) -> Samples:
    return samples(scrape(service.logged("listening")[0]["metrics_port"])[1])


def value(found: Samples, name: str, **labels: str) -> float:
    return sum(number for given, number in found.get(name, ()) if labels.items() <= given.items())


def test_a_gateway_counts_calls_by_outcome_and_where_their_time_went(
    exposed: tuple[Stack, dict[str, Process]],
) -> None:
    gateway = exposed[1]["gateway"]
    found = eventually(
        lambda: (seen := read(gateway)) and value(seen, "fairlead_calls_total", outcome="CANCELLED") and seen,
        "the abandoned call is counted",
    )
    assert value(found, "fairlead_calls_total", outcome="COMPLETED", app="default", model="tiny") == 2
    assert value(found, "fairlead_calls_total", outcome="REJECTED_INVALID") == 1
    assert value(found, "fairlead_interactions_total", reason="end") == 1
    assert value(found, "gen_ai_server_time_to_first_token_seconds_count", gen_ai_operation_name="text_completion") == 2
    assert value(found, "gen_ai_server_time_per_output_token_seconds_count") == 2
    assert value(found, "gen_ai_server_request_duration_seconds_count", error_type="CANCELLED") == 1
    phases = {labels["phase"]: number for labels, number in found["fairlead_phase_duration_seconds_sum"]}
    assert phases.keys() == {"admit", "select", "queue", "prefill", "decode"}
    durations = found["gen_ai_server_request_duration_seconds_sum"]
    whole = sum(number for labels, number in durations if "error_type" not in labels)
    assert sum(phases.values()) == pytest.approx(whole, rel=0.02)
    assert value(found, "fairlead_tokens_total", kind="cached") > 0
    assert value(found, "fairlead_service_total", tier="none") > 0
    assert value(found, "fairlead_tokens_wasted_total", outcome="CANCELLED") > 0


def test_a_worker_exposes_its_load_and_its_fairness(exposed: tuple[Stack, dict[str, Process]]) -> None:
    worker = exposed[1]["worker"]
    found = eventually(
        lambda: (seen := read(worker)) and value(seen, "fairlead_worker_tokens_total", kind="cached") and seen,
        "the next reading",
    )
    names = ("running", "waiting", "queue_seconds", "kv_used_ratio", "slots_used_ratio", "step_seconds", "gap")
    assert [name for name in names if f"fairlead_worker_{name}" not in found] == []
    assert value(found, "fairlead_worker_gap") <= value(found, "fairlead_worker_gap_bound")
    assert {labels["level"] for labels, _ in found["fairlead_worker_level_gap"]} == {"tenant", "user"}
    for edge, inside in (("least", float.__ge__), ("greatest", float.__le__)):
        seen = value(found, "fairlead_worker_balance", edge=edge, policy="dlpm")
        assert inside(seen, value(found, "fairlead_worker_balance_limit", edge=edge, policy="dlpm"))
    least, greatest = (value(found, "fairlead_worker_balance", edge=edge) for edge in ("least", "greatest"))
    assert least < greatest, "somebody was charged"


def test_the_scheduler_exposes_the_cluster(exposed: tuple[Stack, dict[str, Process]]) -> None:
    found = eventually(
        lambda: (seen := read(exposed[1]["scheduler"])) and value(seen, "fairlead_members", state="serving") and seen,
        "the worker is attached",
    )
    assert value(found, "fairlead_members", model="tiny", state="serving") == 1
    assert value(found, "fairlead_pool_overloaded", model="tiny") == 0


def test_everything_exposed_is_declared_and_no_user_is_a_label(exposed: tuple[Stack, dict[str, Process]]) -> None:
    for service in exposed[1].values():
        found = read(service)
        assert found.keys() - declared() <= {"target_info"}
        assert "ann" not in {part for rows in found.values() for labels, _ in rows for part in labels.values()}


def test_metrics_are_pushed_too_by_the_processes_that_spans_name(
    tmp_path: Path,
    endpoint: str,
    receiver: Receiver,
    metrics_receiver: MetricsReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    stack = Stack(tmp_path)
    try:
        stack.worker("w0", model="tiny")
        gateway = stack.gateway()
        asyncio.run(ask(gateway.address))
        for process in (gateway, stack.workers["w0"], stack.scheduler):
            assert process.terminate() == 0
    finally:
        stack.close()
    assert ("fairlead-gateway", "fairlead.calls") in metrics_receiver.metrics
    assert {service: receiver.instance(span) for service, span in receiver.spans} == metrics_receiver.instances
