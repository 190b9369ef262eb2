"""The job over HTTP, run in the routers' environment. It prints the measurements as JSON."""

import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from bench.control_plane.job import TOKENS, Job, measure


async def main() -> None:
    """Run the job. Arguments: URL, calls, callers, seconds per token, the router's process ids."""
    url, calls, callers, step_seconds, *pids = sys.argv[1:]
    job = Job(int(calls), int(callers), float(step_seconds))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(prompt: str) -> float:
            body = {"model": "fake", "prompt": prompt, "stream": True, "max_tokens": TOKENS}
            began, first, chunks = time.perf_counter(), 0.0, 0
            async with session.post(f"{url}/v1/completions", json=body) as response:
                async for line in response.content:
                    chunks += line.startswith(b"data: {")
                    first = first or time.perf_counter() - began
            assert chunks >= TOKENS, f"{chunks} chunks, status {response.status}"
            return first

        measured = await measure(job, call, {pid: int(pid) for pid in pids})
    print(json.dumps(asdict(measured)))


asyncio.run(main())
