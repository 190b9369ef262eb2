"""Channels for operators' questions to the schedulers, of which one leads."""

import contextlib
from collections.abc import Sequence

import grpc

from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from serving.rpc.channel import open_channel, secret_metadata
from serving.rpc.mutual_tls import MutualTls

MOST_CLIENTS = 300
TIMEOUT_SECONDS = 2.0


class NoLeader(Exception):
    """No scheduler leads, or none answers; the message says why."""


class AdminChannels:
    """Asks the leading scheduler, with the admin secret; channels stay open from the first question to `close`."""

    def __init__(self, addresses: Sequence[str], secret: str, mutual_tls: MutualTls | None) -> None:
        self._addresses = addresses
        self._metadata = secret_metadata(secret)
        self._mutual_tls = mutual_tls
        self._channels = contextlib.AsyncExitStack()
        self._stubs: list[scheduler_pb2_grpc.AdminStub] = []

    async def list_clients(self) -> scheduler_pb2.ListClientsResponse:
        """Return the leader's answer; raise NoLeader. The scheduler that led last is asked first."""
        if not self._stubs:
            for address in self._addresses:
                channel = await self._channels.enter_async_context(open_channel(address, self._mutual_tls))
                self._stubs.append(scheduler_pb2_grpc.AdminStub(channel))
        problem = "no scheduler leads"
        for stub in list(self._stubs):
            try:
                answer: scheduler_pb2.ListClientsResponse = await stub.ListClients(
                    scheduler_pb2.ListClientsRequest(most=MOST_CLIENTS),
                    metadata=self._metadata,
                    timeout=TIMEOUT_SECONDS,
                )
            except grpc.aio.AioRpcError as error:
                reraise_cancellation()
                problem = f"the scheduler does not answer: {error.code().name.lower()}"
                continue
            if answer.cluster.epoch:
                self._stubs.remove(stub)
                self._stubs.insert(0, stub)
                return answer
        raise NoLeader(problem)

    async def close(self) -> None:
        """Close the channels; the next question opens them again."""
        self._stubs.clear()
        await self._channels.aclose()
