"""Clusters for the gateway's tests: one of the test's own, or one per module for tests that leave it as it was."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from fairlead.v1 import inference_pb2_grpc
from tests.services import Stack
from tests.unit.gateway.scripted_worker import ScriptedWorker


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A cluster of this test's own, with nothing but a scheduler yet."""
    stack = Stack(tmp_path)
    yield stack
    stack.close()


@pytest.fixture(scope="module")
def shared_channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    """A channel to the gateway of a cluster with two workers, for tests that leave it as it was."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a")
    stack.worker("b")
    with grpc.insecure_channel(stack.gateway(throttle="none").address) as channel:
        yield channel
    stack.close()


@pytest.fixture(scope="module")
def shared(shared_channel: grpc.Channel) -> inference_pb2_grpc.InferenceStub:
    """The public service behind `shared_channel`."""
    return inference_pb2_grpc.InferenceStub(shared_channel)


@pytest.fixture
async def worker() -> AsyncIterator[ScriptedWorker]:
    """A worker that does what the test says."""
    worker = ScriptedWorker()
    await worker.server.start()
    yield worker
    await worker.server.stop(0)
