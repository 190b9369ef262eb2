"""A caller's connection is replaced after a time, so that callers reach gateways that were added since."""

import grpc

from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Stack

TOKENS = 100  # at 20 ms per step they take 2 s, several times as long as a connection may be kept


def request(max_tokens: int) -> inference_pb2.GenerateRequest:
    return inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"),
        sampling=common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True),
    )


async def test_a_call_outlives_its_connections_age_and_later_calls_take_another_connection(stack: Stack) -> None:
    stack.worker("w", engine="fake:0.02")
    gateway = stack.gateway(connection_seconds=0.3)
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        long = stub.Generate(request(TOKENS))
        messages = [await anext(aiter(long))]
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert not long.done()
        assert [message async for message in stub.Generate(request(1))], "over another connection"
        messages += [message async for message in long]
        assert await long.code() == grpc.StatusCode.OK
        assert messages[-1].finished.usage.output_tokens == TOKENS
