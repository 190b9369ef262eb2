"""The channels of a client to its gateway."""

import asyncio
import threading

import grpc

from fairlead.errors import Closed
from fairlead.rpc.channel import open_channel
from fairlead.v1 import inference_pb2_grpc


class Connections:
    """The channels of a client, one per event loop, each opened by the first call that needs it.

    A channel belongs to the loop in which it was opened. A client can be created before any loop runs, and can be used
    in several loops, one after the other or in several threads at once.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._is_closed = False
        self._lock = threading.Lock()  # for both tables
        self._channels: dict[asyncio.AbstractEventLoop, grpc.aio.Channel] = {}
        self._stubs: dict[asyncio.AbstractEventLoop, inference_pb2_grpc.InferenceStub] = {}

    def stub(self) -> inference_pb2_grpc.InferenceStub:
        """Return the gateway's stub for the running loop; raise Closed after `close`."""
        if self._is_closed:
            raise Closed("the client is closed")
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._stubs:
                self._forget_ended_loops()
                self._channels[loop] = open_channel(self.target)
                self._stubs[loop] = inference_pb2_grpc.InferenceStub(self._channels[loop])
            return self._stubs[loop]

    async def close(self) -> None:
        """Cancel the calls in progress in the running loop; no channel is opened afterwards."""
        self._is_closed = True
        with self._lock:
            own = self._channels.pop(asyncio.get_running_loop(), None)
            self._channels.clear()
            self._stubs.clear()
        if own is not None:
            await own.close()

    def _forget_ended_loops(self) -> None:
        for loop in [loop for loop in self._channels if loop.is_closed()]:
            del self._channels[loop], self._stubs[loop]
