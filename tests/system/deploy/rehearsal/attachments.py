"""Which workers a scheduler knows."""

from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from serving.rpc.channel import open_channel, secret_metadata
from tests.system.deploy.rehearsal.pod import Pod


async def attached(scheduler: Pod, secret: str) -> list[str]:
    """The names of the workers that it knows now. Raises AioRpcError where it does not accept the secret."""
    async with open_channel(f"{scheduler.address}:7050") as channel:
        watch = scheduler_pb2_grpc.SchedulerStub(channel).Watch(
            scheduler_pb2.WatchRequest(), metadata=secret_metadata(secret)
        )
        return [member.worker for member in (await anext(aiter(watch))).members]
