"""An engine that is not ours, in a process of its own: it serves HTTP and publishes KV events as `vllm serve` does.

`python -m tests.fakes.served_engine --port 8000 --events tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558`. Its
tokens are bytes; the next one follows from all tokens before it, so that every output is known. Prompts choose its
faults: those with `refuse` are answered with 400, with `fail at` with 500; those that begin with `break` lose their
connection after three tokens, and with `stay` get one token and no end.
"""

import argparse
import asyncio
import contextlib

import uvicorn

from tests.fakes.served_engine.engine import ServedEngine
from tests.fakes.served_engine.http import Http
from tests.fakes.served_engine.kv import Publisher


async def serve(options: argparse.Namespace) -> None:
    engine = ServedEngine(options)
    publisher = (
        Publisher(options.events, options.replay, options.shape == "arrays", options.drop) if options.events else None
    )
    server = uvicorn.Server(uvicorn.Config(Http(engine), port=options.port, log_level="critical", lifespan="off"))
    tasks = [asyncio.create_task(engine.run(publisher))]
    if publisher is not None:
        tasks.append(asyncio.create_task(publisher.replay()))
    await server.serve()
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="m")
    parser.add_argument("--harmony", type=int, default=0)
    parser.add_argument("--events", default="")
    parser.add_argument("--replay", default="")
    parser.add_argument("--shape", choices=("maps", "arrays"), default="maps")
    parser.add_argument("--drop", type=int, default=0)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=65)
    parser.add_argument("--max-num-seqs", type=int, default=8)
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--long-prefill-token-threshold", type=int, default=0)
    parser.add_argument("--prefix-caching", type=int, default=1)
    parser.add_argument("--tells-settings", type=int, default=0)
    parser.add_argument("--step-seconds", type=float, default=0.001)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
