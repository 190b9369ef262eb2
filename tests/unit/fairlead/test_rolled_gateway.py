"""The SDK while gateways are replaced under it, a new one first, as a rolling update does."""

import asyncio

import grpc

from fairlead import Client, Retries
from fairlead.errors import FairleadError
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc

USERS = 20
ROLLS = 3
PROMPT = "long " * 60_000  # more than gRPC by default keeps of a call to make it again


class Gateway(inference_pb2_grpc.InferenceServicer):
    """Answers every call that it sees."""

    async def Generate(self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext) -> None:
        finished = inference_pb2.Finished(
            outcome=common_pb2.OUTCOME_COMPLETED, finish_reason=common_pb2.FINISH_REASON_LENGTH
        )
        await context.write(inference_pb2.GenerateResponse(accepted=inference_pb2.Accepted(request_id="r", model="m")))
        await context.write(inference_pb2.GenerateResponse(finished=finished))


async def start(port: int) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 1)])
    inference_pb2_grpc.add_InferenceServicer_to_server(Gateway(), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, port


class Users:
    """Each calls all the time; `lost` are the calls that failed."""

    def __init__(self, address: str, retries: Retries) -> None:
        self.lost: list[FairleadError] = []
        self.is_over = False
        self._address = address
        self._retries = retries
        self._answered = [0] * USERS
        self._answer = asyncio.Event()

    async def call(self, user: int) -> None:
        async with Client(self._address, retries=self._retries) as client:
            while not self.is_over:
                try:
                    await client.generate(PROMPT)
                except FairleadError as error:
                    self.lost.append(error)
                self._answered[user] += 1
                self._answer.set()

    async def each_calls_twice(self) -> None:
        """Return when everybody has begun and ended a call since."""
        wanted = [answered + 2 for answered in self._answered]
        while any(answered < enough for answered, enough in zip(self._answered, wanted, strict=True)):
            self._answer.clear()
            await self._answer.wait()


async def while_gateways_are_replaced(retries: Retries) -> list[FairleadError]:
    """Return the errors of users whose gateway is replaced time and again."""
    serving, port = await start(0)
    users = Users(f"127.0.0.1:{port}", retries)
    async with asyncio.TaskGroup() as tasks:
        for user in range(USERS):
            tasks.create_task(users.call(user))
        for _ in range(ROLLS):
            await users.each_calls_twice()
            stopping, (serving, _) = serving, await start(port)
            await stopping.stop(grace=30)
        await users.each_calls_twice()
        users.is_over = True
    await serving.stop(None)
    return users.lost


async def test_an_application_that_allows_retries_sees_nothing_of_it() -> None:
    assert await while_gateways_are_replaced(Retries()) == []


async def test_without_retries_too_a_call_that_a_stopping_gateway_never_looked_at_is_made_at_the_next() -> None:
    # Where the connection closes beneath a call, UNAVAILABLE, nobody but the gateway knows whether it saw the call.
    lost = await while_gateways_are_replaced(Retries(attempts=0))
    causes = [error.__cause__ for error in lost]
    assert [cause for cause in causes if not connection_closed(cause)] == []


def connection_closed(cause: BaseException | None) -> bool:
    return isinstance(cause, grpc.aio.AioRpcError) and cause.code() is grpc.StatusCode.UNAVAILABLE
