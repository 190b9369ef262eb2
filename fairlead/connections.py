"""A client's way to its gateway."""

import asyncio

import grpc

from fairlead.errors import Closed
from fairlead.rpc.channel import open_channel
from fairlead.v1 import inference_pb2_grpc


class Connections:
    """One channel per event loop, opened when a call first needs it.

    A channel belongs to the loop that it was opened in; a client may be made before any runs, and outlive several.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._is_closed = False
        self._channels: dict[asyncio.AbstractEventLoop, grpc.aio.Channel] = {}
        self._stubs: dict[asyncio.AbstractEventLoop, inference_pb2_grpc.InferenceStub] = {}

    def stub(self) -> inference_pb2_grpc.InferenceStub:
        """The gateway, for calls in the running loop; raises Closed."""
        if self._is_closed:
            raise Closed("the client is closed")
        loop = asyncio.get_running_loop()
        if loop not in self._stubs:
            self._forget_ended_loops()
            self._channels[loop] = open_channel(self.target)
            self._stubs[loop] = inference_pb2_grpc.InferenceStub(self._channels[loop])
        return self._stubs[loop]

    async def close(self) -> None:
        """Cancel the calls in progress in the running loop, and open no channel any more."""
        self._is_closed = True
        own = self._channels.pop(asyncio.get_running_loop(), None)
        self._channels.clear()
        self._stubs.clear()
        if own is not None:
            await own.close()

    def _forget_ended_loops(self) -> None:
        for loop in [loop for loop in self._channels if loop.is_closed()]:
            del self._channels[loop], self._stubs[loop]
