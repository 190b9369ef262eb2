"""Whose prompts are tokenized when, against a real gRPC server in the worker's place."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable

import grpc
import pytest
from opentelemetry.metrics import get_meter

from fairlead.errors import InvalidRequest, TooLong, Unavailable
from fairlead.prompt import as_chat, as_prompt
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc, scheduler_pb2, worker_pb2, worker_pb2_grpc
from gateway.admission import Admission
from gateway.call import Call
from gateway.call_log import CallLog
from gateway.core.client_limits import HeldBytesLimiter
from gateway.driver import CallDrivers
from gateway.http.api import ParsedRequest
from gateway.http.chat_completions import chat_completions
from gateway.http.completions import completions
from gateway.metrics import CallMetrics
from gateway.prompt_encoding import PromptEncoding
from gateway.service import InferenceService, add_inference_to_server
from gateway.tenants import Credentials
from gateway.upstream.cluster import LONG_PROMPT, Cluster
from serving.rpc.server import Server
from serving.telemetry.traces import Traces
from serving.watched_cluster import WatchedCluster
from tests.unit.gateway.open_admission import open_admission
from tests.unit.gateway.scripted_worker import SECRET

LONG, SHORT = "x" * LONG_PROMPT, "x"
LONGEST_TOKEN = 20  # characters


class HeldTokenizer(worker_pb2_grpc.TokenizerServicer):
    """Tokenizes when it is told to: `asked` is which client waits for it."""

    def __init__(self) -> None:
        self.server = Server("127.0.0.1:0")
        self.server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, self, "fairlead.v1.Tokenizer", SECRET)
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.allowed = asyncio.Semaphore(0)

    async def Encode(
        self, request: worker_pb2.EncodeRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.EncodeResponse:
        self.asked.put_nowait(request.client)
        async with self.allowed:
            self.allowed.release()
            return worker_pb2.EncodeResponse(token_ids=b"1234")


@pytest.fixture
async def tokenizer() -> AsyncIterator[HeldTokenizer]:
    tokenizer = HeldTokenizer()
    await tokenizer.server.start()
    yield tokenizer
    await tokenizer.server.stop(0)


@pytest.fixture
async def admission(tokenizer: HeldTokenizer) -> AsyncIterator[Admission]:
    cluster = Cluster(["127.0.0.1:1"], SECRET, lambda: None)
    model = scheduler_pb2.ModelInfo(
        name="m",
        vocab_size=10,
        max_prompt_tokens=1000,
        max_model_tokens=10_000,
        kv_tokens=10_000,
        longest_token=LONGEST_TOKEN,
    )
    member = scheduler_pb2.Member(worker="a", address=f"127.0.0.1:{tokenizer.server.port}", models=[model])
    reported = WatchedCluster()
    reported.apply(scheduler_pb2.ClusterState(members=[member]))
    cluster.members.update(reported)
    yield open_admission(cluster)
    await cluster.close()


def admitted(
    admission: Admission,
    user: str,
    prompt: str | common_pb2.Prompt,
    interaction: inference_pb2.Interaction | None = None,
    encoding: PromptEncoding | None = None,
) -> asyncio.Task[worker_pb2.Submit]:
    request = inference_pb2.GenerateRequest(
        prompt=as_prompt(prompt) if isinstance(prompt, str) else prompt, interaction=interaction
    )
    call = Call(request_id=user, deadline=None, encoding=encoding)

    async def receive() -> inference_pb2.GenerateRequest:
        return request

    async def work() -> worker_pb2.Submit:
        await admission.admit(call, receive, Credentials(user=user))
        await admission.prepare(call)
        return call.submit

    return asyncio.create_task(work())


async def test_a_clients_long_prompts_are_tokenized_one_after_the_other(
    admission: Admission, tokenizer: HeldTokenizer
) -> None:
    many = [admitted(admission, "many", LONG) for _ in range(5)]
    short, other = admitted(admission, "many", SHORT), admitted(admission, "other", LONG)
    asked = sorted([await tokenizer.asked.get() for _ in range(3)])
    assert asked == ["default/many", "default/many", "default/other"], "one long and one short of many's"
    tokenizer.allowed.release()
    await asyncio.gather(*many, short, other)
    assert [tokenizer.asked.get_nowait() for _ in range(tokenizer.asked.qsize())] == ["default/many"] * 4


async def test_a_prompt_of_several_calls_is_tokenized_once(admission: Admission, tokenizer: HeldTokenizer) -> None:
    encoding = PromptEncoding()
    calls = [admitted(admission, "many", LONG, encoding=encoding) for _ in range(5)]
    await tokenizer.asked.get()
    calls[0].cancel()  # the others need what it has begun
    tokenizer.allowed.release()
    assert [(await call).token_ids for call in calls[1:]] == [b"1234"] * 4
    assert (await admitted(admission, "many", LONG, encoding=encoding)).token_ids == b"1234"
    assert tokenizer.asked.empty()


async def test_a_prompt_is_not_tokenized_for_nobody(admission: Admission, tokenizer: HeldTokenizer) -> None:
    encoding = PromptEncoding()
    calls = [admitted(admission, "many", LONG, encoding=encoding) for _ in range(2)]
    await tokenizer.asked.get()
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    other, later = admitted(admission, "many", LONG), admitted(admission, "many", LONG, encoding=encoding)
    tokenizer.allowed.release()
    assert [(await call).token_ids for call in (other, later)] == [b"1234"] * 2


async def test_all_calls_learn_that_their_prompt_cannot_be_tokenized(
    admission: Admission, tokenizer: HeldTokenizer
) -> None:
    encoding = PromptEncoding()
    calls = [admitted(admission, "many", LONG, encoding=encoding) for _ in range(2)]
    await tokenizer.asked.get()
    await tokenizer.server.stop(0)
    for call in calls:
        with pytest.raises(Unavailable):
            await call


@pytest.mark.parametrize(
    ("read", "body", "prompts"),
    [
        (chat_completions, {"messages": [{"role": "user", "content": "x"}], "n": 3}, [0, 0, 0]),
        (completions, {"prompt": ["x", "y"], "n": 2}, [0, 0, 1, 1]),
        (completions, {"prompt": ["x", "y"]}, [0, 1]),
    ],
)
def test_the_choices_of_a_prompt_share_its_tokens(
    read: Callable[[bytes], ParsedRequest], body: dict[str, object], prompts: list[int]
) -> None:
    shared = [call.encoding or call for call in read(json.dumps(body).encode()).generations()]
    assert [list(dict.fromkeys(map(id, shared))).index(id(each)) for each in shared] == prompts


@pytest.mark.parametrize("end", [False, True])
async def test_a_worker_is_told_which_call_is_the_last_of_its_interaction(
    admission: Admission, tokenizer: HeldTokenizer, end: bool
) -> None:
    tokenizer.allowed.release()
    submit = await admitted(admission, "u", SHORT, inference_pb2.Interaction(id="i", end=end))
    assert (submit.interaction, submit.ends_interaction) == ("i", end)


async def test_who_waits_for_his_turn_and_leaves_holds_nobody(admission: Admission, tokenizer: HeldTokenizer) -> None:
    first, second, third = (admitted(admission, "many", LONG) for _ in range(3))
    await tokenizer.asked.get()
    for gone in (second, first):
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    tokenizer.allowed.release()
    assert (await third).token_ids == b"1234"


@pytest.mark.parametrize(
    ("prompt", "got"),
    [
        (as_prompt([4_000_000_000] * 1001), "got 1001"),  # counted before any of them is looked at
        (as_chat([("user", "x")] * 1001, {})[0], "of 1001 messages"),
        (as_prompt("x" * (1000 * LONGEST_TOKEN + 1)), "got 20001"),
        (
            as_chat([("user", "x" * 500 * LONGEST_TOKEN), ("user", "x" * 500 * LONGEST_TOKEN), ("user", "x")], {})[0],
            "got 20001",
        ),
    ],
    ids=["token ids", "messages", "text", "contents"],
)
async def test_a_prompt_that_can_never_be_served_is_refused_before_any_worker_sees_it(
    admission: Admission, tokenizer: HeldTokenizer, prompt: common_pb2.Prompt, got: str
) -> None:
    tokenizer.allowed.release()
    with pytest.raises(TooLong, match=f"at most 1000 prompt tokens.* {got}"):
        await admitted(admission, "u", prompt)
    assert tokenizer.asked.empty()


@pytest.mark.parametrize(
    "prompt", [as_prompt([5] * 1000), as_chat([("user", "x")] * 1000, {})[0], as_prompt("x" * 20_000)]
)
async def test_the_longest_prompts_are_tokenized(
    admission: Admission, tokenizer: HeldTokenizer, prompt: common_pb2.Prompt
) -> None:
    tokenizer.allowed.release()
    assert (await admitted(admission, "u", prompt)).token_ids == b"1234"


async def test_a_refused_request_is_forgotten_at_once(admission: Admission) -> None:
    journal = CallLog(Traces(), CallMetrics(get_meter("test")))
    cluster = Cluster(["127.0.0.1:1"], SECRET, lambda: None)
    drivers = CallDrivers(admission, cluster, journal, HeldBytesLimiter(1000, "outputs"), 60.0)
    server = Server("127.0.0.1:0")
    server.add(
        add_inference_to_server,
        InferenceService(cluster, admission, drivers, server.bodies),
        "fairlead.v1.Inference",
    )
    await server.start()
    gc.collect()
    gc.disable()
    before = {id(error) for error in refusals()}  # of other tests
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = inference_pb2_grpc.InferenceStub(channel).Generate(inference_pb2.GenerateRequest())
            with pytest.raises(grpc.aio.AioRpcError):
                await call.read()
        await server.stop(0)
        kept = [error for error in refusals() if id(error) not in before]
    finally:
        gc.enable()
    assert kept == [], "it would keep what is in its frames, until the next collection of cycles"


def refusals() -> list[InvalidRequest]:
    """Those that are in memory. By type: some libraries' objects warn when they are asked for their class."""
    return [found for found in gc.get_objects() if type(found) is InvalidRequest]
