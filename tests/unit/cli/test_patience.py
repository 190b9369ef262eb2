"""What people are told while they wait for an answer."""

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from cli.endpoint import Endpoint, published
from cli.patience import patiently
from fairlead.errors import FairleadError, InvalidRequest, ThrottledUser, Unavailable
from fairlead.v1 import inference_pb2_grpc
from tests.services import SECRET, Stack
from tests.unit.cli.commands import Command

NOWHERE = "127.0.0.1:1"


class Refuses:
    """Raises these errors, one for each call, and then gives its answer."""

    def __init__(self, *errors: FairleadError, before: str = "") -> None:
        self._errors = list(errors)
        self._before = before

    def __call__(self) -> Iterator[str]:
        if self._before:
            yield self._before
        if self._errors:
            raise self._errors.pop(0)
        yield "answer"


def test_a_refusal_is_told_and_waited_out(capsys: pytest.CaptureFixture[str]) -> None:
    call = Refuses(ThrottledUser("busy", 0.0), ThrottledUser("still busy", 0.0))
    assert list(patiently(NOWHERE, call)) == ["answer"]
    assert capsys.readouterr().err.splitlines() == [
        "fairlead: busy; trying again in 0.0 s",
        "fairlead: still busy; trying again in 0.0 s",
    ]


@pytest.mark.parametrize(
    "call",
    [
        Refuses(InvalidRequest("no", "model")),
        Refuses(ThrottledUser("too long a wait", 3600.0)),
        Refuses(ThrottledUser("broken off", 0.0), before="some"),
        Refuses(Unavailable("nobody is there", 0.0)),
    ],
    ids=["cannot be", "not soon", "had begun", "not there"],
)
def test_errors_that_waiting_does_not_mend_are_raised(call: Refuses, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FairleadError):
        list(patiently(NOWHERE, call))
    assert capsys.readouterr().err == ""


@pytest.mark.e2e
def test_a_worker_that_loads_is_waited_for_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway without a worker, and the log of one that is loading: once there is one, the call is answered."""
    command = Command(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "worker-0.log").write_text(json.dumps({"message": "starting", "step": "loading weights"}))
    stack = Stack(tmp_path)
    try:
        gateway = stack.gateway().address
        with published(Endpoint(gateway, stack.scheduler.address, SECRET, str(tmp_path))):
            generate = command.start("generate", "hello", "--max-tokens", "4", "--raw")
            try:
                assert generate.wait_for("waiting").endswith("s] waiting for worker-0: loading weights\n")
                stack.worker("worker-0", model="tiny")
                with grpc.insecure_channel(gateway) as channel:
                    stack.await_workers(inference_pb2_grpc.InferenceStub(channel))
                (tmp_path / "gateway.log").write_text(json.dumps({"message": "ready"}))
                assert generate.ended() == 0
                assert len(generate.rest().splitlines()[-1]) == 4
            finally:
                generate.close()
    finally:
        stack.close()
