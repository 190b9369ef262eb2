"""The KV cache of the served engine, and the messages about it."""

import time
import zlib
from collections import Counter
from typing import Any

import msgspec

from fairlead.token_ids import pack_ids
from tests.fakes.served_engine.running import Running

END = (-1).to_bytes(8, "big", signed=True)


class KvCache:
    """Blocks by name with the number of their copies, oldest first; what happens to them goes to `publish`."""

    def __init__(self, pages: int, block: int) -> None:
        self.pages, self.block = pages, block
        self.copies: Counter[int] = Counter()
        self.held: Counter[int] = Counter()
        self.events: list[dict[str, Any]] = []

    def names(self, tokens: list[int], salt: str) -> list[int]:
        names, parent = [], zlib.crc32(salt.encode())
        for stop in range(self.block, len(tokens) + 1, self.block):
            parent = zlib.crc32(pack_ids(tokens[stop - self.block : stop]), parent)
            names.append(parent)
        return names

    def enter(self, request: Running) -> None:
        for name in self.names(request.tokens[:-1], request.salt):
            if name not in self.copies:
                break
            self.held[name] += 1
            request.names.append(name)
        request.computed = len(request.names) * self.block

    def store(self, request: Running) -> None:
        for index in range(len(request.names), request.computed // self.block):
            name = self.names(request.tokens[: (index + 1) * self.block], request.salt)[-1]
            self.copies[name] += 1
            self.held[name] += 1
            self.events.append(
                {
                    "type": "BlockStored",
                    "block_hashes": [name],
                    "parent_block_hash": request.names[-1] if request.names else None,
                    "token_ids": request.tokens[index * self.block : (index + 1) * self.block],
                    "block_size": self.block,
                    "lora_id": None,
                    "medium": "GPU",
                    "lora_name": None,
                    "extra_keys": [(request.salt,) if request.salt and not index else None],
                    "group_idx": 0,
                }
            )
            request.names.append(name)

    def leave(self, request: Running) -> None:
        self.held.subtract(request.names)
        for name in [name for name in reversed(self.copies) if self.held[name] <= 0]:
            if self.copies.total() <= self.pages:
                break
            self.remove(name)

    def remove(self, name: int) -> None:
        self.copies[name] -= 1
        if not self.copies[name]:
            del self.copies[name]
        self.events.append({"type": "BlockRemoved", "block_hashes": [name], "medium": "GPU", "group_idx": 0})

    def clear(self) -> None:
        self.copies.clear()
        self.events.append({"type": "AllBlocksCleared"})


class Publisher:
    """ZeroMQ's sockets. Each `drop`-th message is lost on its way, and only in the replay."""

    def __init__(self, endpoint: str, replay: str, arrays: bool, drop: int) -> None:
        import zmq.asyncio

        self._context = context = zmq.asyncio.Context()
        self._socket = context.socket(zmq.PUB)
        self._socket.bind(endpoint)
        self._router = context.socket(zmq.ROUTER)
        self._router.bind(replay)
        self.sent: list[bytes] = []
        self.first = 0  # the number of the oldest message that is kept for a replay
        self._arrays, self._drop = arrays, drop

    async def publish(self, events: list[Any]) -> None:
        shaped: list[Any] = [self._array(event) if self._arrays else event for event in events]
        await self.send(msgspec.msgpack.encode([time.time(), shaped, 0]))

    async def send(self, payload: bytes) -> None:
        number = len(self.sent)
        self.sent.append(payload)
        if not self._drop or (number + 1) % self._drop:
            await self._socket.send_multipart([b"", number.to_bytes(8, "big"), payload])

    async def send_frames(self, frames: list[bytes]) -> None:
        """Publish what may be no message."""
        await self._socket.send_multipart(frames)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _array(self, event: dict[str, Any]) -> list[Any]:
        fields = [event["type"]]
        names = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
        return fields + [event[name] for name in names if name in event]

    async def replay(self) -> None:
        while True:
            client, empty, start = await self._router.recv_multipart()
            for number in range(max(self.first, int.from_bytes(start, "big")), len(self.sent)):
                await self._router.send_multipart([client, empty, b"", number.to_bytes(8, "big"), self.sent[number]])
            await self._router.send_multipart([client, empty, b"", END, b""])
