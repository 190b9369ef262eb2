"""The worker's gRPC services over a backend that schedules by itself and implements only the port."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from fairlead.errors import InvalidRequest
from fairlead.outcomes import FinishReason, Outcome
from fairlead.prompt import as_prompt
from fairlead.token_ids import pack_ids, unpack_ids
from fairlead.v1 import common_pb2, worker_pb2, worker_pb2_grpc
from local_worker.backend import Backend
from local_worker.core.events import RequestEnded, RequestEvents, RequestTokens, WorkerUpdate
from local_worker.core.request import Request
from local_worker.fair_executor import FairExecutor
from local_worker.prompt_encoder import PromptEncoder
from local_worker.service import TokenizerService, WorkerService
from local_worker.tokenizer import ByteTokenizer
from serving.constraint import Constraint
from serving.rpc.channel import secret_metadata
from serving.rpc.server import Server

SECRET = "a secret of the worker's tests"
WAIT = 60
STAYS = b"stay"


class Echo:
    """A backend that answers a prompt with the prompt at once, but never answers `STAYS`."""

    stepping_since = None
    prompts = PromptEncoder(ByteTokenizer(), 1 << 32, 4, SECRET, {"m": "r1"}, 100)

    def __init__(self) -> None:
        self.service = WorkerService(self)
        self.here: dict[Request, None] = {}
        self.constraints: list[str] = []  # of what was submitted; empty for none
        self.may_compile = asyncio.Event()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def flush_cache(self) -> None: ...

    def is_known(self, constraint: Constraint) -> bool:
        return constraint.texts == ("known",)

    async def check(self, constraint: Constraint) -> None:
        if constraint.texts == ("impossible",):
            raise InvalidRequest("cannot be compiled", constraint.field)
        if not self.is_known(constraint):
            async with asyncio.timeout(WAIT):
                await self.may_compile.wait()

    def submit(self, request: Request) -> None:
        if request.client == "unwelcome":
            raise InvalidRequest("is refused by the backend", "client")
        self.here[request] = None
        constraint = request.sampling.constraint
        self.constraints.append(constraint.texts[0] if constraint else "")
        if pack_ids(request.tokens) != STAYS:
            asyncio.get_running_loop().call_soon(self._end, request, Outcome.COMPLETED, request.tokens)

    def abort(self, request: Request) -> None:
        if request in self.here:
            self._end(request, Outcome.CANCELLED, [])

    def generate(self, request: Request, *tokens: int) -> None:
        entries = [RequestTokens(request, [token], text="x") for token in tokens]
        self.service.deliver(WorkerUpdate(events=RequestEvents(tokens=entries)))

    def _end(self, request: Request, outcome: Outcome, tokens: list[int]) -> None:
        del self.here[request]
        events = RequestEvents(ended=[RequestEnded(request, outcome, FinishReason.STOP)])
        if tokens:
            events.tokens.append(RequestTokens(request, tokens, text=pack_ids(tokens).decode()))
        self.service.deliver(WorkerUpdate(events=events))


@pytest.fixture
async def channel() -> AsyncIterator[tuple[Echo, grpc.aio.Channel]]:
    echo = Echo()
    backend: Backend = echo
    server = Server("127.0.0.1:0")
    server.add(worker_pb2_grpc.add_WorkerServicer_to_server, echo.service, "fairlead.v1.Worker", SECRET)
    tokenizer = TokenizerService(backend.prompts, FairExecutor("tokenizer"))
    server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, tokenizer, "fairlead.v1.Tokenizer", SECRET)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as opened:
        yield echo, opened
    await server.stop(0)


async def next_events(call: grpc.aio.StreamStreamCall) -> worker_pb2.StepEvents:
    async with asyncio.timeout(WAIT):
        events: worker_pb2.StepEvents = await call.read()
    return events


async def until_ended(call: grpc.aio.StreamStreamCall, requests: int) -> worker_pb2.StepEvents:
    """Return the events until `requests` of them have ended, from any number of messages."""
    events = worker_pb2.StepEvents()
    while len(events.ended) < requests:
        events.MergeFrom(await next_events(call))
    return events


async def test_requests_pass_through_the_port_and_drain_waits_for_the_last(
    channel: tuple[Echo, grpc.aio.Channel],
) -> None:
    echo, opened = channel
    metadata = secret_metadata(SECRET)
    ask = worker_pb2.EncodeRequest(prompt=as_prompt("tell"), client="a")
    encoded = await worker_pb2_grpc.TokenizerStub(opened).Encode(ask, metadata=metadata, timeout=WAIT)
    call = worker_pb2_grpc.WorkerStub(opened).Session(metadata=metadata)
    submits = [
        worker_pb2.Submit(request_id="told", attempt=1, token_ids=encoded.token_ids, weight=1.0),
        worker_pb2.Submit(request_id="empty", attempt=1, weight=1.0),
        worker_pb2.Submit(request_id="unwelcome", client="unwelcome", attempt=1, token_ids=STAYS, weight=1.0),
        worker_pb2.Submit(request_id="stays", attempt=2, token_ids=STAYS, weight=1.0),
    ]
    await call.write(worker_pb2.SessionCommands(submits=submits))
    heard = await until_ended(call, 3)
    ends = {end.request_id: end for end in heard.ended}
    assert [(tokens.request_id, unpack_ids(tokens.token_ids)) for tokens in heard.tokens] == [("told", list(b"tell"))]
    assert Outcome(ends["told"].outcome) is Outcome.COMPLETED
    assert "must hold at least 1 token" in ends["empty"].message
    assert (ends["unwelcome"].field, ends["unwelcome"].message) == ("client", "client: is refused by the backend")

    drained = asyncio.create_task(echo.service.drain())
    await call.write(worker_pb2.SessionCommands(submits=submits[:1]))
    assert "draining" in (await next_events(call)).ended[0].message
    assert not drained.done()
    await call.write(worker_pb2.SessionCommands(aborts=[worker_pb2.Abort(request_id="stays", attempt=2)]))
    (end,) = (await next_events(call)).ended
    assert (end.request_id, Outcome(end.outcome)) == ("stays", Outcome.CANCELLED)
    async with asyncio.timeout(WAIT):
        await drained


async def test_requests_of_a_broken_stream_are_aborted(channel: tuple[Echo, grpc.aio.Channel]) -> None:
    echo, opened = channel
    call = worker_pb2_grpc.WorkerStub(opened).Session(metadata=secret_metadata(SECRET))
    submit = worker_pb2.Submit(request_id="stays", attempt=1, token_ids=STAYS, weight=1.0)
    other = worker_pb2.Submit(request_id="told", attempt=1, token_ids=b"tell", weight=1.0)
    await call.write(worker_pb2.SessionCommands(submits=[submit, other]))
    assert [end.request_id for end in (await next_events(call)).ended] == ["told"]
    call.cancel()
    async with asyncio.timeout(WAIT):
        await echo.service.drain()
    assert not echo.here


async def test_tokens_are_gathered_as_the_gateway_asks_and_an_end_brings_what_is_held(
    channel: tuple[Echo, grpc.aio.Channel],
) -> None:
    echo, opened = channel
    call = worker_pb2_grpc.WorkerStub(opened).Session(metadata=secret_metadata(SECRET))
    wanted = {"each": 1, "unsaid": 0, "four": 4, "many": 1000}
    submits = [
        worker_pb2.Submit(request_id=key, attempt=1, token_ids=STAYS, weight=1.0, tokens_per_message=tokens)
        for key, tokens in wanted.items()
    ]
    told = worker_pb2.Submit(request_id="told", token_ids=b"tell", weight=1.0)
    await call.write(worker_pb2.SessionCommands(submits=[*submits, told]))
    await until_ended(call, 1)
    requests = {request.id: request for request in echo.here}

    def step(**tokens: int) -> None:
        """Generate so many tokens of each request."""
        for key, count in tokens.items():
            echo.generate(requests[key.replace("_", " ")], *[7] * count)

    async def until(**tokens: int) -> dict[str, list[int]]:
        """Return the number of tokens of each entry that leaves, by request, when so many tokens have left."""
        sizes: dict[str, list[int]] = {key: [] for key in tokens}
        while {key: sum(counts) for key, counts in sizes.items()} != tokens:
            for entry in (await next_events(call)).tokens:
                sizes[entry.request_id.replace(" ", "_")].append(len(unpack_ids(entry.token_ids)))
        return sizes

    step(each=1, unsaid=1, four=1, many=1)
    first = await until(each=1, unsaid=1, four=1, many=1)
    assert all(sizes == [1] for sizes in first.values()), "the first token leaves at once"
    step(each=3, unsaid=3, four=4, many=3)
    assert await until(each=3, unsaid=3, four=4, many=3) == {
        "each": [1, 1, 1],
        "unsaid": [1, 1, 1],
        "four": [4],
        "many": [3],
    }
    step(many=2)
    step(many=2)  # comes with the next tick
    await until(many=4)
    step(many=2)
    step(many=2)
    echo.abort(requests["many"])
    sizes, ended = list[int](), list[str]()
    while not ended:
        events = await next_events(call)
        sizes += [len(unpack_ids(entry.token_ids)) for entry in events.tokens]
        ended += [end.request_id for end in events.ended]
    assert (sum(sizes), ended) == (4, ["many"])


async def test_steps_that_are_faster_than_the_stream_share_a_message_and_keep_their_order(
    channel: tuple[Echo, grpc.aio.Channel],
) -> None:
    echo, opened = channel
    call = worker_pb2_grpc.WorkerStub(opened).Session(metadata=secret_metadata(SECRET))
    submit = worker_pb2.Submit(request_id="stays", token_ids=STAYS, weight=1.0)
    other = worker_pb2.Submit(request_id="told", token_ids=b"tell", weight=1.0)
    await call.write(worker_pb2.SessionCommands(submits=[submit, other]))
    await until_ended(call, 1)
    (request,) = echo.here
    for number in range(100):  # in one tick of the event loop: nothing is written meanwhile
        echo.generate(request, number)
    assert [tokens.token_ids[0] for tokens in (await next_events(call)).tokens] == list(range(100))


async def test_constraints_are_compiled_beside_other_requests_and_wait_for_a_drain(
    channel: tuple[Echo, grpc.aio.Channel],
) -> None:
    echo, opened = channel
    call = worker_pb2_grpc.WorkerStub(opened).Session(metadata=secret_metadata(SECRET))

    def constrained(request_id: str, regex: str) -> worker_pb2.Submit:
        sampling = common_pb2.SamplingParams(regex=regex)
        return worker_pb2.Submit(request_id=request_id, token_ids=b"tell", weight=1.0, sampling=sampling)

    submits = [
        constrained("refused", "impossible"),
        constrained("compiled", "a+"),
        constrained("compiled", "a+"),  # a repeated message
        constrained("waits", "b+"),
        constrained("aborted", "c+"),
        constrained("not behind them", "known"),
        worker_pb2.Submit(request_id="free", token_ids=b"tell", weight=1.0),
    ]
    aborted = worker_pb2.Abort(request_id="aborted")
    await call.write(worker_pb2.SessionCommands(submits=submits, aborts=[aborted]))
    early = {end.request_id: end for end in (await until_ended(call, 4)).ended}
    assert {*early} == {"refused", "free", "aborted", "not behind them"}
    refused = early["refused"]
    assert Outcome(refused.outcome) is Outcome.REJECTED_INVALID
    assert (refused.field, refused.message) == ("sampling.regex", "sampling.regex: cannot be compiled")
    assert Outcome(early["aborted"].outcome) is Outcome.CANCELLED

    drained = asyncio.create_task(echo.service.drain())
    echo.may_compile.set()
    late = await until_ended(call, 2)
    assert [end.request_id for end in late.ended] == ["compiled", "waits"]
    assert echo.constraints == ["", "known", "a+", "b+"]
    async with asyncio.timeout(WAIT):
        await drained


async def test_compilations_of_a_broken_stream_are_forgotten(channel: tuple[Echo, grpc.aio.Channel]) -> None:
    echo, opened = channel
    call = worker_pb2_grpc.WorkerStub(opened).Session(metadata=secret_metadata(SECRET))
    sampling = common_pb2.SamplingParams(regex="a+")
    submits = [
        worker_pb2.Submit(request_id="waits", token_ids=b"tell", weight=1.0, sampling=sampling),
        worker_pb2.Submit(request_id="free", token_ids=b"tell", weight=1.0),
    ]
    await call.write(worker_pb2.SessionCommands(submits=submits))
    await until_ended(call, 1)
    call.cancel()
    async with asyncio.timeout(WAIT):
        await echo.service.drain()
    echo.may_compile.set()
    assert echo.constraints == [""]


async def test_a_request_whose_constraint_is_compiled_keeps_its_deadline_and_its_place_in_the_order_of_arrival(
    channel: tuple[Echo, grpc.aio.Channel],
) -> None:
    echo, opened = channel
    call = worker_pb2_grpc.WorkerStub(opened).Session(metadata=secret_metadata(SECRET))
    sampling = common_pb2.SamplingParams(regex="a+")
    submits = [
        worker_pb2.Submit(
            request_id="compiled", token_ids=STAYS, weight=1.0, sampling=sampling, timeout_seconds=WAIT, attempt=1
        ),
        worker_pb2.Submit(request_id="free", token_ids=STAYS, weight=1.0, timeout_seconds=WAIT, attempt=1),
        worker_pb2.Submit(request_id="told", token_ids=b"tell", weight=1.0, attempt=1),
    ]
    await call.write(worker_pb2.SessionCommands(submits=submits))
    await until_ended(call, 1)
    (free,) = echo.here
    echo.may_compile.set()
    await call.write(worker_pb2.SessionCommands(submits=[submits[2]]))
    await until_ended(call, 1)
    _, compiled = echo.here
    assert (free.id, compiled.id) == ("free", "compiled")
    assert compiled.arrival < free.arrival
    assert compiled.queued_at > free.queued_at
    assert compiled.deadline is not None
    assert free.deadline is not None
    assert compiled.deadline <= free.deadline
