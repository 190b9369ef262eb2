"""The cluster's secret is replaced by three rolling restarts of everything, as docs/operations.md says, under load."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest

from fairlead import Retries, SyncClient
from fairlead.errors import FairleadError
from fairlead.v1 import inference_pb2_grpc
from tests.ports import own_address
from tests.services import SECRET, Process, Stack
from tests.system.faults.load import Callers

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NEXT = "the next secret of all"
# What services send and accept: all accept the new one, all send the new one, none accepts the old one.
STEPS = [(SECRET, NEXT), (NEXT, SECRET), (NEXT, "")]


@contextmanager
def client(number: int, address: str) -> Iterator[Callable[[], str]]:
    """A client of the SDK, which tries again."""
    with SyncClient(address, user=f"user-{number}", retries=Retries(attempts=20)) as opened:

        def call() -> str:
            try:
                found = opened.generate("Once upon a time", max_tokens=20, ignore_eos=True)
            except FairleadError as error:
                return repr(error)
            return f"{found.usage.output_tokens} tokens"

        yield call


def ready(gateway: str, stack: Stack) -> None:
    with grpc.insecure_channel(gateway) as channel:
        stack.await_workers(inference_pb2_grpc.InferenceStub(channel))


def test_no_call_fails_while_one_secret_replaces_another(tmp_path: Path) -> None:
    stack, address, numbers = Stack(tmp_path), own_address(), itertools.count()
    for name in ("a", "b"):
        stack.worker(name)
    gateway: Process = stack.gateway(listen=address, throttle="none")
    try:
        with Callers(4, partial(client, address=address)) as callers:
            callers.more(10)
            for secret, accepted in STEPS:
                settings = {"secret": secret, "accepted_secret": accepted}
                scheduler = stack.scheduler.address
                assert stack.scheduler.terminate() == 0
                stack.scheduler = stack.start("global_scheduler", listen=scheduler, **settings)
                stack.schedulers = [stack.scheduler]
                ready(address, stack)
                former, stack.workers = stack.workers, {}
                for name in former:
                    stack.worker(f"{name}{next(numbers)}", **settings)
                with grpc.insecure_channel(address) as channel:
                    stack.await_workers(inference_pb2_grpc.InferenceStub(channel), 2 * len(former))
                assert [worker.terminate() for worker in former.values()] == [0] * len(former)
                ready(address, stack)
                assert gateway.terminate() == 0
                gateway = stack.gateway(listen=address, throttle="none", **settings)
                callers.more(20)
        assert set(callers.outcomes) == {"20 tokens"}, callers.outcomes
    finally:
        stack.close()
