"""A gateway that stands still for a while: what it has lost meanwhile is no worker's fault, and callers wait for it."""

from fairlead.rpc.channel import open_sync_channel
from fairlead.v1 import inference_pb2_grpc
from tests.services import Stack, eventually
from tests.system.faults.load import output_of, request_for


def test_calls_go_on_when_their_gateway_wakes(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.05")
    gateway = stack.gateway(throttle="none")
    request = request_for("Tell me", 300)
    with open_sync_channel(gateway.address) as channel:
        call = inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=120)
        begun = [next(call), next(call)]
        eventually(lambda: stack.requests() == 1, "the request runs")
        gateway.pause()
        eventually(lambda: stack.requests() == 0, "the only worker gives up a gateway that does not answer")
        gateway.resume()
        text, tokens = output_of([*begun, *call])
    assert len(tokens) == 300
    [ended] = gateway.logged("call ended")
    assert (ended["outcome"], ended["attempts"]) == ("COMPLETED", 2)
    assert len(text) == len(tokens)
