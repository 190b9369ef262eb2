"""A worker whose ranks are on two nodes, here two processes on one machine, as a LeaderWorkerSet starts them."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests import services
from tests.engines import VLLM_DEADLINE, VLLM_SETTINGS
from tests.ports import free_ports
from tests.services import Process, Stack
from tests.system.faults.load import caller, output_of, request_for
from tests.system.faults.small_model import save_small_model

CALLS, TOKENS = 4, 30


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """With one scheduler."""
    monkeypatch.setattr(services, "DEADLINE", VLLM_DEADLINE)
    stack = Stack(tmp_path)
    yield stack
    stack.close()


def outputs(gateway: Process) -> list[tuple[str, list[int]]]:
    """Of greedy and of sampled calls."""
    requests = [request_for(f"Story {number}", TOKENS, temperature=float(number % 2)) for number in range(CALLS)]
    with caller(gateway.address) as stub:
        return [output_of(list(stub.Generate(request, timeout=VLLM_DEADLINE))) for request in requests]


def test_two_nodes_compute_the_same_and_end_together(stack: Stack, tmp_path: Path) -> None:
    model, [port] = save_small_model(tmp_path / "small"), free_ports(1)
    nodes = f"enforce_eager: true, tensor_parallel_size: 2, nnodes: 2, master_addr: 127.0.0.1, master_port: {port}"
    first, further = (
        {**VLLM_SETTINGS, "model": model, "vllm_args": f"{{{nodes}, node_rank: {rank}}}"} for rank in range(2)
    )
    far = stack.start("local_worker", scheduler=stack.addresses, **further)
    stack.worker("a", **first)
    gateway = stack.gateway(throttle="none")
    expected = outputs(gateway)
    assert far.terminate() == 0
    with pytest.raises(grpc.RpcError):
        outputs(gateway)
    assert stack.workers.pop("a").wait() != 0
    stack.worker("b", **{**VLLM_SETTINGS, "model": model})
    with caller(gateway.address) as stub:
        stack.await_workers(stub)
    assert outputs(gateway) == expected
