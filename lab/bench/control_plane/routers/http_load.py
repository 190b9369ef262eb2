"""The job over HTTP, run in the routers' environment. It prints the measurements as JSON."""

import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
from lab.bench.control_plane.job import Job, measure


async def main() -> None:
    """Run the job. Arguments: URL, the job and the ids of the router's processes as JSON."""
    url, job, pids = sys.argv[1], Job(**json.loads(sys.argv[2])), json.loads(sys.argv[3])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(prompt: str) -> float:
            body = {"model": "fake", "prompt": prompt, "stream": True, "max_tokens": job.tokens}
            began, first, chunks = time.perf_counter(), 0.0, 0
            async with session.post(f"{url}/v1/completions", json=body) as response:
                async for line in response.content:
                    chunks += line.startswith(b"data: {")
                    first = first or time.perf_counter() - began
            assert chunks >= job.tokens, f"{chunks} chunks, status {response.status}"
            return first

        measured = await measure(job, call, pids)
    print(json.dumps(asdict(measured)))


asyncio.run(main())
