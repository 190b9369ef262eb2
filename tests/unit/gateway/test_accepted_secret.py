"""While one cluster secret replaces another, services of either secret work together."""

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from serving.config import ConfigError, check_secrets
from serving.rpc.channel import secret_metadata
from tests.services import SECRET, Stack

NEXT, ADMIN = "the next secret of all", "the operators' own secret"


def refusal(stub: scheduler_pb2_grpc.AdminStub, secret: str) -> str | None:
    """The status of an operator's call that is refused; None of one that is answered."""
    try:
        stub.Status(scheduler_pb2.StatusRequest(), metadata=secret_metadata(secret), timeout=60)
    except grpc.RpcError as error:
        return str(error.code().name)
    return None


def test_services_of_both_secrets_serve_a_call_together(stack: Stack) -> None:
    stack.scheduler = stack.start("global_scheduler", accepted_secret=NEXT, admin_secret=ADMIN)
    stack.schedulers = [stack.scheduler]
    stack.worker("w", secret=NEXT, accepted_secret=SECRET)
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"), sampling=common_pb2.SamplingParams(max_tokens=1)
    )
    with grpc.insecure_channel(stack.gateway(accepted_secret=NEXT).address) as channel:
        *_, last = inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=60)
    assert last.finished.usage.output_tokens == 1
    with grpc.insecure_channel(stack.scheduler.address) as channel:
        operators = scheduler_pb2_grpc.AdminStub(channel)
        assert refusal(operators, ADMIN) is None
        assert refusal(operators, NEXT) == refusal(operators, SECRET) == "UNAUTHENTICATED", "they have their own"


def test_the_accepted_secret_is_long_enough_or_absent() -> None:
    check_secrets(SECRET, "")
    check_secrets(SECRET, NEXT)
    with pytest.raises(ConfigError, match="accepted_secret: needs at least 16 characters"):
        check_secrets(SECRET, "short")
