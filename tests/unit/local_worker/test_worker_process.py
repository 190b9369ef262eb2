"""The worker as gateways and schedulers see it: a real process with the fake engine, and real gRPC."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from fairlead.errors import TooLong
from fairlead.outcomes import FinishReason, Outcome
from fairlead.prompt import as_prompt
from fairlead.rpc.status import from_call
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, scheduler_pb2, scheduler_pb2_grpc, worker_pb2, worker_pb2_grpc
from serving.constraint import Constraint
from serving.rpc.channel import open_channel, secret_metadata
from serving.sampling_params import SamplingParams
from serving.wire import sampling_to_proto
from tests.services import SECRET, StartService

METADATA = secret_metadata(SECRET)
PROMPT = list(b"a line that runs true, without chafing, at sea")


def submit(
    request_id: str, *, prompt: list[int] = PROMPT, generated: int = 0, attempt: int = 1, **sampling: object
) -> worker_pb2.Submit:
    return worker_pb2.Submit(
        request_id=request_id,
        attempt=attempt,
        client="ann",
        token_ids=pack_ids(prompt),
        generated_tokens=generated,
        sampling=sampling_to_proto(SamplingParams(**sampling)),  # type: ignore[arg-type]
        weight=1.0,
    )


class Gateway:
    """The other end of a session."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = worker_pb2_grpc.WorkerStub(channel)
        self.call = self.stub.Session(metadata=METADATA)

    async def send(self, *submits: worker_pb2.Submit, aborts: tuple[worker_pb2.Abort, ...] = ()) -> None:
        await self.call.write(worker_pb2.SessionCommands(submits=submits, aborts=aborts))

    async def events(self) -> AsyncIterator[worker_pb2.StepEvents]:
        while (message := await self.call.read()) is not grpc.aio.EOF:
            yield message

    async def until_ended(self, *ids: str) -> dict[str, tuple[list[int], str, worker_pb2.Ended]]:
        """Tokens, text and end of each request."""
        tokens: dict[str, list[int]] = {key: [] for key in ids}
        texts = dict.fromkeys(ids, "")
        ends: dict[str, worker_pb2.Ended] = {}
        async for message in self.events():
            for event in message.tokens:
                tokens[event.request_id].append(int.from_bytes(event.token_ids, "little"))
                texts[event.request_id] += event.text
            for ended in message.ended:
                texts[ended.request_id] += ended.text
                ends[ended.request_id] = ended
            if len(ends) == len(ids):
                break
        return {key: (tokens[key], texts[key], ends[key]) for key in ids}


@pytest.fixture
def worker_address(start_service: StartService) -> str:
    return start_service("local_worker", engine="fake", scheduler="127.0.0.1:1").address


@pytest.fixture
async def gateway(worker_address: str) -> AsyncIterator[Gateway]:
    async with open_channel(worker_address) as channel:
        yield Gateway(channel)


async def test_many_requests_share_one_stream_and_each_ends_once(gateway: Gateway) -> None:
    ids = [f"r{number}" for number in range(20)]
    await gateway.send(*(submit(key, prompt=[*PROMPT, *key.encode()], max_tokens=7, ignore_eos=True) for key in ids))
    results = await gateway.until_ended(*ids)
    for tokens, text, ended in results.values():
        assert len(tokens) == 7
        assert text
        assert (ended.outcome, ended.finish_reason) == (Outcome.COMPLETED, FinishReason.LENGTH)
        assert ended.usage.output_tokens == 7
        times = ended.timings
        assert 0 < times.queued <= times.scheduled <= times.first_token <= times.finished


async def test_a_continued_request_goes_on_where_the_first_attempt_stopped(gateway: Gateway) -> None:
    await gateway.send(submit("whole", max_tokens=12, ignore_eos=True))
    tokens, text, _ = (await gateway.until_ended("whole"))["whole"]
    head = tokens[:5]
    await gateway.send(submit("rest", prompt=[*PROMPT, *head], generated=5, max_tokens=7, ignore_eos=True))
    rest, rest_text, _ = (await gateway.until_ended("rest"))["rest"]
    assert head + rest == tokens
    assert text.endswith(rest_text)


async def test_a_stop_string_ends_the_output_before_it(gateway: Gateway) -> None:
    await gateway.send(submit("plain", max_tokens=30, ignore_eos=True))
    _, text, _ = (await gateway.until_ended("plain"))["plain"]
    stop = text[10:13]
    await gateway.send(submit("stopped", max_tokens=30, ignore_eos=True, stop=(stop,)))
    _, stopped, ended = (await gateway.until_ended("stopped"))["stopped"]
    assert stopped == text[: text.index(stop)]
    assert ended.finish_reason == FinishReason.STOP


async def test_an_aborted_request_ends_cancelled(start_service: StartService) -> None:
    slow = start_service("local_worker", scheduler="127.0.0.1:1", engine="fake:0.02")
    async with open_channel(slow.address) as channel:
        gateway = Gateway(channel)
        await gateway.send(submit("long", max_tokens=4000, ignore_eos=True))  # 80 s, if nothing ends it
        async for message in gateway.events():
            if message.tokens:
                break
        await gateway.send(aborts=(worker_pb2.Abort(request_id="long", attempt=1),))
        async for message in gateway.events():
            if message.ended:
                assert message.ended[0].outcome == Outcome.CANCELLED
                return
    raise AssertionError("the stream ended without an end for the request")


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (worker_pb2.Submit(request_id="bad", weight=1.0), "token_ids"),
        (worker_pb2.Submit(request_id="bad", weight=1.0, token_ids=b"abc"), "token_ids"),
        (worker_pb2.Submit(request_id="bad", weight=1.0, token_ids=pack_ids([2**31])), "token_ids"),
        (worker_pb2.Submit(request_id="bad", weight=1.0, token_ids=pack_ids([1]), generated_tokens=1), "generated"),
        (worker_pb2.Submit(request_id="bad", weight=0.0, token_ids=pack_ids([1])), "weight"),
        (submit("bad", prompt=[65] * 8190), "8190"),
        (submit("bad", prompt=[65] * 4000, prompt_logprobs=20), "got 4000 tokens with 20 alternatives each"),
        (submit("bad", max_tokens=9000), "9046"),
    ],
)
async def test_bad_submissions_end_with_a_message_and_affect_no_other_request(
    gateway: Gateway, bad: worker_pb2.Submit, field: str
) -> None:
    await gateway.send(bad)
    _, _, ended = (await gateway.until_ended("bad"))["bad"]
    assert ended.outcome in (Outcome.REJECTED_INVALID, Outcome.REJECTED_TOO_LONG)
    assert field in ended.message
    await gateway.send(submit("good", max_tokens=3, ignore_eos=True))
    assert (await gateway.until_ended("good"))["good"][2].outcome == Outcome.COMPLETED


async def test_a_model_that_is_not_served_is_refused_by_name(start_service: StartService) -> None:
    """As unavailable: another worker may serve it. No name means the first."""
    address = start_service("local_worker", engine="fake", model="m,n", scheduler="127.0.0.1:1").address
    problem = "model: 'gpt' is not served by this worker, which serves m, n"
    async with open_channel(address) as channel:
        tokenizer = worker_pb2_grpc.TokenizerStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match=problem) as error:
            await tokenizer.Encode(worker_pb2.EncodeRequest(prompt=as_prompt("hello"), model="gpt"), metadata=METADATA)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        gateway = Gateway(channel)
        asked = {model: submit(model or "none", max_tokens=9, ignore_eos=True) for model in ("m", "n", "gpt", "")}
        for model, message in asked.items():
            message.model = model
        await gateway.send(*asked.values())
        ended = await gateway.until_ended(*(message.request_id for message in asked.values()))
        assert (ended["gpt"][2].outcome, ended["gpt"][2].message) == (Outcome.UNAVAILABLE, problem)
        assert ended["m"][0] == ended["none"][0] != ended["n"][0]


async def test_a_call_without_the_secret_is_refused(worker_address: str) -> None:
    async with open_channel(worker_address) as channel:
        stub = worker_pb2_grpc.TokenizerStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.Encode(worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(text="hello")))
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_encode_gives_ids_and_the_digests_of_full_blocks(worker_address: str) -> None:
    async with open_channel(worker_address) as channel:
        stub = worker_pb2_grpc.TokenizerStub(channel)

        async def encode(text: str, scope: str) -> worker_pb2.EncodeResponse:
            request = worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(text=text), cache_scope=scope)
            return await stub.Encode(request, metadata=METADATA)

        short, long = await encode("x" * 40, "one"), await encode("x" * 40 + "y" * 40, "one")
        other = await encode("x" * 40, "two")
        assert len(short.digests) == 8 * (len(short.token_ids) // 4 // 16)
        assert long.digests.startswith(short.digests)
        assert not long.digests.startswith(other.digests)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.Encode(worker_pb2.EncodeRequest(), metadata=METADATA)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_tokens_that_no_message_can_carry_are_refused_without_a_traceback(start_service: StartService) -> None:
    worker = start_service("local_worker", engine="fake", scheduler="127.0.0.1:1")
    call = common_pb2.ToolCall(id="x", name="f")
    messages = [
        common_pb2.ChatMessage(role="assistant", tool_calls=[call]),
        common_pb2.ChatMessage(role="tool", tool_call_id="call_" * 1_000_000, content="y"),
    ]
    request = worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(chat=common_pb2.Chat(messages=messages)))
    async with open_channel(worker.address) as channel:
        tokenizer = worker_pb2_grpc.TokenizerStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match=r"prompt: .* at most 16777216 bytes, got ") as error:
            await tokenizer.Encode(request, metadata=METADATA)
        assert isinstance(from_call(error.value), TooLong)
    assert "Traceback" not in worker.log


class Scheduler(scheduler_pb2_grpc.SchedulerServicer):
    """A minimal scheduler: it keeps the worker's reports in order."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[scheduler_pb2.WorkerReport] = asyncio.Queue()

    async def Attach(
        self, request_iterator: AsyncIterator[scheduler_pb2.WorkerReport], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[scheduler_pb2.WorkerCommand]:
        yield scheduler_pb2.WorkerCommand(attached=scheduler_pb2.Attached())
        async for report in request_iterator:
            await self.reports.put(report)

    async def next(self, kind: str) -> scheduler_pb2.WorkerReport:
        while True:
            report = await self.reports.get()
            if report.WhichOneof("kind") == kind:
                return report


async def test_the_scheduler_learns_identity_load_blocks_and_ends(start_service: StartService) -> None:
    server, scheduler = grpc.aio.server(), Scheduler()
    scheduler_pb2_grpc.add_SchedulerServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    settings = {"engine": "fake", "model": "base,adapter", "scheduler": f"127.0.0.1:{port}"}
    service = start_service("local_worker", name="w0", **settings)
    hello = (await scheduler.next("hello")).hello
    address = await asyncio.to_thread(lambda: service.address)
    assert (hello.worker, hello.address, hello.model.policy) == ("w0", address, "dlpm")
    assert [model.name for model in hello.models] == ["base", "adapter"]
    assert hello.model == hello.models[0], "for schedulers that know of one model only"
    while not (await scheduler.next("load")).load.fairness_bound:
        pass  # the loop has not delivered any events yet
    async with open_channel(address) as channel:
        gateway = Gateway(channel)
        asked = submit("one", max_tokens=20, ignore_eos=True)
        asked.model = "adapter"
        await gateway.send(asked)
        await gateway.until_ended("one")
        services: dict[str, float] = {}
        accepted: list[scheduler_pb2.AcceptedRequest] = []
        cached, ended = b"", list[scheduler_pb2.RequestEnd]()
        # Two service units per output token, one per prompt token.
        while not ended or services.get("ann") != len(PROMPT) + 40:
            report = await scheduler.reports.get()
            services.update({service.client: service.service for service in report.load.services})
            accepted += report.progress.accepted
            cached += b"".join(run.digests for run in report.progress.cached)
            ended += report.progress.ended
    assert [(key.request_id, key.model) for key in accepted] == [("one", "adapter")]
    assert len(cached) == 8 * ((len(PROMPT) + 19) // 16)
    assert (ended[0].request_id, ended[0].started, ended[0].output_tokens) == ("one", True, 20)
    assert await asyncio.to_thread(service.terminate) == 0
    await server.stop(None)


async def test_min_tokens_hold_for_stop_strings_and_an_output_cut_within_a_character_leaves_it_out(
    gateway: Gateway,
) -> None:
    await gateway.send(submit("free", max_tokens=12, ignore_eos=True))
    _, text, _ = (await gateway.until_ended("free"))["free"]
    await gateway.send(
        submit("least", max_tokens=12, min_tokens=10, stop=tuple({*text}), ignore_eos=True),
        submit("cut", max_tokens=4, constraint=Constraint("regex", ("\u65e5\u672c",))),
    )
    ended = await gateway.until_ended("least", "cut")
    assert ended["least"][1] == text[:10]
    assert FinishReason(ended["least"][2].finish_reason) is FinishReason.STOP
    assert ended["cut"][1] == "\u65e5"
    await gateway.send(submit("half", max_tokens=2, constraint=Constraint("regex", ("\u65e5\u672c",))))
    assert (await gateway.until_ended("half"))["half"][1] == ""
