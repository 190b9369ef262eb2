"""Two real gateways before one pool: what interactions at one of them hold is not free at the other."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from fairlead.errors import ThrottledMemory
from fairlead.rpc.status import from_call
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.redis_server import RedisServer
from tests.services import Stack, eventually
from tests.unit.gateway.test_sharing import call_of, knows_of_overload
from throttler.redis_claims import CLAIMS

MEMORY = 8192  # of which claims may have 6,553
TOKENS = 1300


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Killed also where a test fails."""
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def started(channel: grpc.aio.Channel, name: str) -> grpc.aio.UnaryStreamCall:
    """The first call of a new interaction, which stays in the queue."""
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=pack_ids([97] * TOKENS))),
        sampling=common_pb2.SamplingParams(max_tokens=500, ignore_eos=True),
        interaction=inference_pb2.Interaction(id=name),
    )
    metadata = [("x-fairlead-user", name)]
    return inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=120, metadata=metadata)


def are_claimed(redis: RedisServer, number: int) -> bool:
    """Whether gateways have published so many claims."""
    views = [json.loads(redis.client.get(key) or b"{}") for key in redis.client.keys(CLAIMS + "*")]
    return sum(len(claims) for view in views for claims, _ in view.values()) == number


def reads(redis: RedisServer) -> int:
    return int(redis.client.info("commandstats").get("cmdstat_mget", {"calls": 0})["calls"])


@pytest.mark.e2e
async def test_gateways_admit_no_more_interactions_than_fit_into_the_memory_of_the_pool_that_they_share(
    stack: Stack, redis: RedisServer
) -> None:
    stack.worker("a", engine="fake:0.02", max_running=1, kv_tokens=MEMORY)
    gateways = [stack.gateway(throttle="oit:1000", redis=redis.url) for _ in range(2)]
    one, other = (grpc.aio.insecure_channel(gateway.address) for gateway in gateways)
    fillers = [call_of("filler", channel) for channel in (one, other, one)]
    for gateway in gateways:
        await asyncio.to_thread(eventually, partial(knows_of_overload, gateway), "every gateway knows of the overload")
    admitted = list[grpc.aio.UnaryStreamCall]()
    for number in range(1, 6):  # more of them at once could be refused: the other gateway may admit some, too
        admitted.append(started(one, f"task-{number}"))
        await asyncio.to_thread(eventually, partial(are_claimed, redis, number), f"{number} hold memory")
    seen = reads(redis) + 6
    await asyncio.to_thread(eventually, lambda: reads(redis) >= seen, "both gateways have read what the other told")
    for channel in (one, other):
        refused = started(channel, "late")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await refused.read()
        error = from_call(caught.value)
        assert isinstance(error, ThrottledMemory), error
        assert "6,500 of 8,192 tokens" in error.message
        assert 0 < error.retry_after <= 5
    assert not any(call.done() for call in admitted)
    for call in (*admitted, *fillers):
        call.cancel()
    for channel in (one, other):
        await channel.close()
