"""The job over HTTP: streamed completions, each caller over a connection that it keeps."""

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

from lab.bench.control_plane.job import Job, Measured, measure

COALESCED: Mapping[str, str] = {}
EACH_TOKEN: Mapping[str, str] = {"x-fairlead-streaming": "each_token"}
MAX_ANSWER = 1 << 20  # bytes
END = b"data: [DONE]\n\n\r\n0\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def over_http(
    address: str, processes: dict[str, int], job: Job, headers: Mapping[str, str], authority: Path | None
) -> Measured:
    """Run the job at `address` with these headers; `authority` signed the server's certificate if there is one."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=authority) if authority else None
    idle: list[Connection] = []

    async def call(prompt: str) -> float:
        request = _request(prompt, job.tokens, headers)
        began = time.perf_counter()
        reader, writer = (
            idle.pop() if idle else await asyncio.open_connection(host, int(port), limit=MAX_ANSWER, ssl=context)
        )
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server refuses the call: {head.decode('latin-1')}")
        await reader.readuntil(b"\n\n")
        first = time.perf_counter() - began
        await reader.readuntil(END)
        idle.append((reader, writer))
        return first

    try:
        return await measure(job, call, processes)
    finally:
        for _, writer in idle:
            writer.close()


def _request(prompt: str, tokens: int, headers: Mapping[str, str]) -> bytes:
    fields = {"prompt": prompt, "stream": True, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body = json.dumps(fields).encode()
    named = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST /v1/completions HTTP/1.1\r\n{head}\r\n".encode() + body
