"""A bare gateway: the exchanges of a call over HTTP with worker and scheduler, and nothing else.

Run as `python -m lab.bench.control_plane.bare_gateway SCHEDULER` with the cluster's secret in FAIRLEAD_SECRET it serves
on a free port of loopback and prints the port. A prompt is tokenized at a worker, placed by the scheduler and sent;
what the worker sends is written as it comes, over the connections of the gateway itself. There are no checks, limits,
keys, accounting, log lines, deadlines or second attempts: what it costs, a gateway with the same messages cannot save.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import uvloop

from cli.stack import Stack
from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from gateway.core.call_events import TOKENS, Completed, Ended, Event, OutputChunk
from gateway.http.asgi import Receive, Scope, Send
from gateway.http.server import HttpServer
from gateway.upstream.schedulers import SchedulerLink
from gateway.upstream.workers import SHORT_PROMPT, WorkerLinks
from lab.bench.control_plane.bare import EVENT, HEADERS, running
from serving.watched_cluster import WatchedCluster

TIMEOUT = 60.0  # seconds


class Asked(msgspec.Struct):
    """The fields of a request that a bare gateway reads."""

    prompt: str
    max_tokens: int


class BareGateway:
    """Forwards each request to a worker; an ASGI application."""

    def __init__(self, scheduler: str, secret: str) -> None:
        self.scheduler = SchedulerLink(scheduler, secret, self._on_report, lambda: 0)
        self.has_workers = asyncio.Event()
        self._workers = WorkerLinks(secret, lambda: False)
        self._members: Iterator[scheduler_pb2.Member] = iter(())
        self._numbers = itertools.count()
        self._asked = msgspec.json.Decoder(Asked)

    def _on_report(self, link: SchedulerLink, report: WatchedCluster | None) -> None:
        if report is not None and report.members and not self.has_workers.is_set():
            self._members = itertools.cycle(report.members.values())
            self.has_workers.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make one call, of the only client."""
        asked, name = self._asked.decode(await _body(receive)), str(next(self._numbers))
        member = next(self._members)
        link = self._workers.link(member.address, member.instance)
        request = worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(text=asked.prompt), client="x", model="fake")
        is_short = request.ByteSize() <= SHORT_PROMPT
        encoded = await (link.short_prompts.encode(request) if is_short else link.encode(request, TIMEOUT))
        assert encoded is not None
        placed = await self.scheduler.select(
            scheduler_pb2.DispatchRequest(
                request_id=name,
                attempt=1,
                client="x",
                model="fake",
                digests=encoded.digests,
                revision=encoded.revision,
                prompt_tokens=len(encoded.token_ids) // 4,
                weight=1.0,
            )
        )
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        connection, ended = scope["state"]["connection"], asyncio.get_running_loop().create_future()

        def forward(event: Event) -> None:
            if isinstance(event, Completed | Ended):
                ended.set_result(None)
            elif isinstance(event, OutputChunk):
                connection.write_chunk(EVENT)

        submit = worker_pb2.Submit(
            request_id=name,
            attempt=1,
            client="x",
            model="fake",
            token_ids=encoded.token_ids,
            sampling=common_pb2.SamplingParams(max_tokens=asked.max_tokens, ignore_eos=True),
            weight=1.0,
            tokens_per_message=TOKENS,
        )
        self._workers.link(placed.address, placed.instance).submit(submit, forward)
        await ended
        await send({"type": "http.response.body", "body": EVENT + b"data: [DONE]\n\n", "more_body": False})


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        event = await receive()
        parts.append(event["body"])
        if not event["more_body"]:
            return b"".join(parts)


@contextmanager
def bare_gateway(stack: Stack) -> Iterator[tuple[str, int]]:
    """Run a bare gateway before the workers of the stack; yield its address and its process id."""
    command = [sys.executable, "-m", "lab.bench.control_plane.bare_gateway", stack.scheduler]
    with running(command, {**os.environ, "FAIRLEAD_SECRET": stack.secret}) as started:
        yield started


async def _serve(scheduler: str, secret: str) -> None:
    gateway = BareGateway(scheduler, secret)
    server = HttpServer("127.0.0.1:0", gateway, None, seconds=TIMEOUT, reader_seconds=TIMEOUT)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(gateway.scheduler.run())
        await gateway.has_workers.wait()
        await server.start()
        print(server.port, flush=True)


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], os.environ["FAIRLEAD_SECRET"]))
