"""Limits in tokens at a gateway: calls reserve, workers' usage settles, and both fronts say what is left."""

from pathlib import Path

import grpc

from fairlead.errors import FairleadError, InvalidRequest, ThrottledUser
from fairlead.rpc.status import from_call
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Stack, eventually
from tests.unit.gateway.http.http_client import HttpClient

PROFILES = """
limits: {user_tokens_per_minute: 1000}
apps: {default: {cost_per_minute: 3000}}
"""


def request_for(prompt_tokens: int, max_tokens: int) -> inference_pb2.GenerateRequest:
    return inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=bytes(4 * prompt_tokens))),
        sampling=common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True),
    )


def test_calls_reserve_settle_and_are_refused_with_the_limit_and_its_value(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "profiles.yaml").write_text(PROFILES)
    stack.worker("a", engine="fake:0.001")
    gateway = stack.gateway(profiles=tmp_path / "profiles.yaml", throttle="rpm:1000", http_listen="127.0.0.1:0")
    http = HttpClient(gateway.wait_for("listening")["http_port"])
    with grpc.insecure_channel(gateway.address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)

        def call(prompt_tokens: int, max_tokens: int, user: str = "ann") -> FairleadError | None:
            request = request_for(prompt_tokens, max_tokens)
            try:
                list(stub.Generate(request, timeout=60, metadata=[("x-fairlead-user", user)]))
            except grpc.RpcError as error:
                return from_call(error)
            return None

        assert call(100, 100) is None
        refusal = call(100, 901)
        assert isinstance(refusal, InvalidRequest), "no waiting helps"
        assert "user 'default/ann' is over user_tokens_per_minute=1000" in refusal.message
        assert "the call is expected to need 1001 tokens" in refusal.message
        assert call(700, 100) is None, "200 + 800"
        refusal = call(10, 1)
        assert isinstance(refusal, ThrottledUser)
        assert "need 11 tokens, and 0 are left" in refusal.message
        assert 0 < refusal.retry_after <= 61

        # A call that is cancelled at once has needed less than it reserved.
        metadata = [("x-fairlead-user", "bob")]
        begun = stub.Generate(request_for(10, 900), timeout=60, metadata=metadata)
        next(iter(begun))
        begun.cancel()
        eventually(lambda: call(10, 200, "bob") is None, "what the cancelled call did not need is given back")

        # Another user of the same app: 3000 cost units are a limit of the app, of which an output token costs 2.
        refusals = [call(10, 400, f"user {number}") for number in range(5)]
        assert refusals[-1] is not None
        assert "app 'default' of tenant 'default' is over app_cost_per_minute=3000" in refusals[-1].message
    answer = http.complete(prompt="hello", max_tokens=5, user="carol")
    assert answer.headers["x-ratelimit-limit-tokens"] == "1000"
    assert 0 < int(answer.headers["x-ratelimit-remaining-tokens"]) <= 1000
