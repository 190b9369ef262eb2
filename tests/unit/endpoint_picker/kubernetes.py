"""An API server of Kubernetes that lists and watches, as its "API concepts" say, over HTTP."""

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/ml/inferencepools"
PODS = "/api/v1/namespaces/ml/pods"


def pool(ports: list[int], **labels: str) -> Object:
    """An InferencePool named `engines`."""
    spec = {"selector": {"matchLabels": labels}, "targetPorts": [{"number": port} for port in ports]}
    return {"metadata": {"name": "engines"}, "spec": spec}


def pod(name: str, address: str, is_ready: bool = True, **labels: str) -> Object:
    """A pod of which the kubelet says whether it is ready."""
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(is_ready)}]
    return {"metadata": {"name": name, "labels": labels}, "status": {"podIP": address, "conditions": conditions}}


class KubernetesServer:
    """Objects by path and name; every change has a version. A version before `oldest` is gone."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {POOLS: {}, PODS: {}}
        self.changes: list[tuple[int, str, str, Object]] = []  # version, path, type, object
        self.version = 1
        self.oldest = 0
        self.address = ""
        self.calls: Counter[str] = Counter()  # "list" and "watch" with the path
        self.tokens: list[str] = []  # of all calls
        self.refusals: list[tuple[int, str]] = []  # answers to the next calls
        self._changed = asyncio.Condition()
        self._refused = 0
        self._watching: set[asyncio.StreamWriter] = set()

    async def put(self, path: str, found: Object) -> None:
        """Add or replace an object."""
        name = found["metadata"]["name"]
        await self._change(path, "MODIFIED" if name in self.objects[path] else "ADDED", found)

    async def delete(self, path: str, name: str) -> None:
        await self._change(path, "DELETED", self.objects[path][name])

    async def _change(self, path: str, kind: str, found: Object) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            del self.objects[path][found["metadata"]["name"]]
        else:
            self.objects[path][found["metadata"]["name"]] = found
        async with self._changed:
            self.changes.append((self.version, path, kind, json.loads(json.dumps(found))))
            self._changed.notify_all()

    def forget_changes(self) -> None:
        """Watches from versions before now are answered with 410."""
        self.oldest = self.version
        self.changes.clear()

    async def cut(self) -> None:
        """Break the connections of all watches."""
        async with self._changed:
            while self._watching:
                self._watching.pop().transport.abort()
            self._changed.notify_all()

    async def watched(self, watches: int = 2) -> None:
        """Wait until so many watches are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._watching) >= watches)

    async def refused(self, calls: int) -> None:
        """Wait until so many calls were refused."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._refused >= calls)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        target = urlsplit(head.split(" ")[1])
        query = {key: value for key, (value,) in parse_qs(target.query).items()}
        self.tokens += [line.split("Bearer ")[1] for line in head.splitlines() if line.startswith("Authorization")]
        try:
            self.calls[f"{'watch' if 'watch' in query else 'list'} {target.path}"] += 1
            if self.refusals:
                status, message = self.refusals.pop(0)
                async with self._changed:
                    self._refused += 1
                    self._changed.notify_all()
                await self._answer(writer, status, {"code": status, "message": message})
            elif "watch" in query:
                await self._watch(writer, target.path, query)
            else:
                items = [each for each in self.objects[target.path].values() if _selected(each, query)]
                await self._answer(writer, 200, {"metadata": {"resourceVersion": str(self.version)}, "items": items})
        except ConnectionError:
            pass
        finally:
            self._watching.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, status: int, body: Object) -> None:
        text = json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()

    async def _watch(self, writer: asyncio.StreamWriter, path: str, query: dict[str, str]) -> None:
        seen = int(query["resourceVersion"])
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if seen < self.oldest:
            await _send(writer, "ERROR", {"code": 410, "message": "too old resource version"})
            writer.write(b"0\r\n\r\n")
            return
        async with self._changed:
            self._watching.add(writer)
            self._changed.notify_all()
        while not writer.is_closing():
            async with self._changed:
                if self.version == seen:
                    await self._changed.wait()
                changes = [each for each in self.changes if each[0] > seen]
            for version, changed, kind, found in changes:
                seen = version
                if changed == path and _selected(found, query):
                    await _send(writer, kind, found)
            await _send(writer, "BOOKMARK", {"metadata": {"resourceVersion": str(seen)}})


async def _send(writer: asyncio.StreamWriter, kind: str, found: Object) -> None:
    line = json.dumps({"type": kind, "object": found}).encode() + b"\n"
    half = len(line) // 2  # a line may come in pieces
    for piece in (line[:half], line[half:]):
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    await writer.drain()


def _selected(found: Object, query: dict[str, str]) -> bool:
    wanted = dict(each.split("=") for each in query.get("labelSelector", "").split(",") if each)
    name = query.get("fieldSelector", "").removeprefix("metadata.name=")
    labels = found["metadata"].get("labels", {})
    return wanted.items() <= labels.items() and name in ("", found["metadata"]["name"])


@asynccontextmanager
async def kubernetes(tls: ssl.SSLContext | None = None) -> AsyncIterator[KubernetesServer]:
    """An API server that serves within the context."""
    api = KubernetesServer()
    server = await asyncio.start_server(api.handle, "127.0.0.1", 0, ssl=tls)
    api.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        await api.cut()
