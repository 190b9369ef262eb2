"""The links to workers, against a real gRPC server that says whatever a test wants it to say."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from fairlead.errors import DeadlineExceeded, InvalidRequest, Unavailable
from fairlead.outcomes import FinishReason, Outcome
from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from gateway.core.call_events import Completed, Ended, Event, Lost, OutputChunk
from gateway.upstream.workers import COMPARED, WorkerLinks
from tests.unit.gateway.scripted_worker import SECRET, ScriptedWorker


@pytest.fixture
async def workers() -> AsyncIterator[WorkerLinks]:
    workers = WorkerLinks(SECRET, lambda: False)
    yield workers
    await workers.close()


class Submitted:
    """An attempt, and what was said about it."""

    def __init__(self, workers: WorkerLinks, worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self._attempt = workers.link(worker.address, "").submit(submit, self.events.put_nowait)
        self.abort = self._attempt.abort


def submit(workers: WorkerLinks, worker: ScriptedWorker, request_id: str, attempt: int = 1) -> Submitted:
    return Submitted(workers, worker, worker_pb2.Submit(request_id=request_id, attempt=attempt))


def tokens(request_id: str, attempt: int, text: str) -> worker_pb2.Tokens:
    return worker_pb2.Tokens(request_id=request_id, attempt=attempt, text=text)


def said(text: str) -> OutputChunk:
    """The event that such a message is for its attempt."""
    return OutputChunk(b"", text)


async def test_events_of_one_tick_are_one_message(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    submit(workers, worker, "first").abort()
    submit(workers, worker, "second")
    message = await worker.commands.get()
    assert [item.request_id for item in message.submits] == ["first", "second"]
    assert [item.request_id for item in message.aborts] == ["first"]


async def test_events_too_large_for_one_message_go_in_several(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    link, mib = workers.link(worker.address, ""), 1024 * 1024
    attempts = [
        link.submit(worker_pb2.Submit(request_id=str(number), attempt=1, token_ids=bytes(size * mib)), print)
        for number, size in enumerate([*[1] * 20, 6])
    ]
    attempts[0].abort()
    messages: list[worker_pb2.SessionCommands] = []
    async with asyncio.timeout(20):
        while not messages or not messages[-1].aborts:
            messages.append(await worker.commands.get())
    assert [item.request_id for message in messages for item in message.submits] == [str(n) for n in range(21)]
    assert all(message.ByteSize() <= 6.1 * mib for message in messages)
    assert len(link.attempts) == 20, "none was lost"


async def test_events_reach_their_attempt_and_no_other(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    old, new, other = (submit(workers, worker, *key) for key in (("r", 1), ("r", 2), ("s", 1)))
    old.abort()
    worker.events.put_nowait(
        worker_pb2.StepEvents(tokens=[tokens("r", 1, "old"), tokens("s", 1, "s"), tokens("r", 2, "new")])
    )
    worker.events.put_nowait(worker_pb2.StepEvents(ended=[worker_pb2.Ended(request_id="r", attempt=2)]))
    worker.events.put_nowait(worker_pb2.StepEvents(tokens=[tokens("r", 2, "after the end"), tokens("s", 1, "t")]))
    assert [await other.events.get(), await other.events.get()] == [said("s"), said("t")]
    assert await new.events.get() == said("new")
    assert isinstance(await new.events.get(), Ended)
    assert new.events.empty()
    assert old.events.empty()


async def test_the_last_tokens_of_a_completed_attempt_come_with_its_end(
    workers: WorkerLinks, worker: ScriptedWorker
) -> None:
    completed, failed = submit(workers, worker, "c"), submit(workers, worker, "f")
    ends = [
        worker_pb2.Ended(
            request_id="c",
            attempt=1,
            outcome=common_pb2.OUTCOME_COMPLETED,
            finish_reason=common_pb2.FINISH_REASON_STOP,
            stop_string="!",
            usage=common_pb2.Usage(service=3),
            timings=common_pb2.Timings(finished=5),
            text="held back",
        ),
        worker_pb2.Ended(request_id="f", attempt=1, outcome=common_pb2.OUTCOME_INTERNAL, message="why", field="x"),
    ]
    messages = [tokens("c", 1, "1"), tokens("f", 1, "1"), tokens("c", 1, "2"), tokens("c", 1, "3"), tokens("f", 1, "2")]
    worker.events.put_nowait(worker_pb2.StepEvents(tokens=messages, ended=ends))
    came = [await completed.events.get() for _ in range(3)]
    last = OutputChunk(b"", "3held back", (), ())
    assert came == [said("1"), said("2"), Completed(FinishReason.STOP, 3, last, "!", common_pb2.Timings(finished=5))]
    failure = Ended(Outcome.INTERNAL, "why", 0.0, "x", common_pb2.Timings())
    assert [await failed.events.get() for _ in range(3)] == [said("1"), said("2"), failure]


async def test_an_end_that_only_a_newer_worker_knows_ends_one_attempt_and_not_the_session(
    workers: WorkerLinks, worker: ScriptedWorker
) -> None:
    strange, other = submit(workers, worker, "r"), submit(workers, worker, "s")
    unknown = worker_pb2.Ended(request_id="r", attempt=1, outcome=cast("common_pb2.Outcome", 999))
    worker.events.put_nowait(worker_pb2.StepEvents(ended=[unknown]))
    worker.events.put_nowait(worker_pb2.StepEvents(tokens=[tokens("s", 1, "goes on")]))
    end = await strange.events.get()
    assert isinstance(end, Ended)
    assert (end.outcome, "999" in end.message) == (Outcome.INTERNAL, True)
    assert await other.events.get() == said("goes on")


@pytest.mark.parametrize(
    ("per_message", "sampling", "texts"),
    [
        (4, common_pb2.SamplingParams(), ["abc"]),
        (1, common_pb2.SamplingParams(), ["a", "b", "c"]),
        (4, common_pb2.SamplingParams(logprobs=0), ["a", "b", "c"]),
        (4, common_pb2.SamplingParams(prompt_logprobs=0), ["a", "b", "c"]),
    ],
)
async def test_tokens_of_one_message_are_joined_unless_the_caller_wants_each_or_their_log_probabilities(
    workers: WorkerLinks,
    worker: ScriptedWorker,
    per_message: int,
    sampling: common_pb2.SamplingParams,
    texts: list[str],
) -> None:
    submission = worker_pb2.Submit(request_id="r", attempt=1, tokens_per_message=per_message, sampling=sampling)
    submitted, other = Submitted(workers, worker, submission), submit(workers, worker, "s")
    steps = [
        worker_pb2.Tokens(request_id="r", attempt=1, text=text, token_ids=text.encode() * 4, service=service)
        for service, text in enumerate("abc")
    ]
    worker.events.put_nowait(worker_pb2.StepEvents(tokens=[steps[0], tokens("s", 1, "other"), *steps[1:]]))
    worker.events.put_nowait(worker_pb2.StepEvents(ended=[worker_pb2.Ended(request_id="r", attempt=1)]))
    came = [await submitted.events.get() for _ in texts]
    assert [(each.text, each.token_ids) for each in came if isinstance(each, OutputChunk)] == [
        (text, b"".join(letter.encode() * 4 for letter in text)) for text in texts
    ]
    assert isinstance(came[-1], OutputChunk)
    assert came[-1].service == 2
    assert isinstance(await submitted.events.get(), Ended)
    assert await other.events.get() == said("other")


async def test_a_receiver_may_abort_in_the_middle_of_a_message(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    came: list[Event] = []

    def receive(event: Event) -> None:
        came.append(event)
        aborted.abort()

    aborted = workers.link(worker.address, "").submit(worker_pb2.Submit(request_id="r", attempt=1), receive)
    other = submit(workers, worker, "s")
    end = worker_pb2.Ended(request_id="r", attempt=1, outcome=common_pb2.OUTCOME_COMPLETED)
    messages = [tokens("r", 1, "1"), tokens("r", 1, "2"), tokens("s", 1, "other")]
    worker.events.put_nowait(worker_pb2.StepEvents(tokens=messages, ended=[end]))
    assert await other.events.get() == said("other")
    assert came == [said("1")]


async def test_a_broken_stream_is_told_to_each_of_its_requests_and_then_replaced(
    workers: WorkerLinks, worker: ScriptedWorker
) -> None:
    attempts = [submit(workers, worker, request_id) for request_id in "abc"]
    await worker.commands.get()
    await worker.server.stop(0)
    assert [await attempt.events.get() for attempt in attempts] == [Lost()] * 3
    again = submit(workers, worker, "d")
    assert await again.events.get() == Lost()


async def test_a_prompt_is_tokenized_by_whoever_is_alive(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    dead = scheduler_pb2.Member(worker="a", address="127.0.0.1:1")
    alive = scheduler_pb2.Member(worker="b", address=worker.address)
    request = worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(text="good"))
    assert (await workers.encode([dead, alive], request, None)).token_ids == b"1234"
    with pytest.raises(Unavailable):
        await workers.encode([dead], request, None)
    with pytest.raises(Unavailable):
        await workers.encode([], request, None)
    request.prompt.text = "bad"
    with pytest.raises(InvalidRequest) as caught:
        await workers.encode([dead, alive], request, None)
    assert caught.value.field == "prompt.text"


async def test_of_many_workers_a_few_are_compared_and_all_take_turns(workers: WorkerLinks) -> None:
    members = [scheduler_pb2.Member(worker=str(number), address=f"127.0.0.1:{number}") for number in range(20)]
    workers.link(members[8].address, "").encoding = 1
    orders = [[member.worker for member in workers._ordered(members)] for _ in range(3)]
    assert [order[0] for order in orders] == ["0", "9", "16"]
    assert orders[1][COMPARED - 1] == "8", "the one with load is the last of those that are compared"
    assert all(sorted(order, key=int) == [member.worker for member in members] for order in orders)
    assert workers._ordered([]) == []


async def test_prompts_that_are_tokenized_count_as_load(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    member = scheduler_pb2.Member(worker="a", address=worker.address)
    request = worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(text="good"))
    encodes = [asyncio.create_task(workers.encode([member], request, None)) for _ in range(3)]
    async with asyncio.timeout(20):
        while workers.load(member) < 3:  # noqa: ASYNC110 - until they have begun, which nothing tells
            await asyncio.sleep(0)
    await asyncio.gather(*encodes)
    assert workers.load(member) == 0


async def test_a_worker_that_does_not_answer_is_not_waited_for(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    frozen, impatient = ScriptedWorker(), WorkerLinks(SECRET, lambda: False, encode_seconds=1.0)
    frozen.is_frozen = True
    await frozen.server.start()
    members = [scheduler_pb2.Member(worker=name, address=frozen.address) for name in "ab"]
    request = worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(text="good"))
    alive = scheduler_pb2.Member(worker="c", address=worker.address)
    assert (await workers.encode([members[0], alive], request, None)).token_ids == b"1234"
    with pytest.raises(Unavailable, match="within 1 s"):
        await impatient.encode(members, request, None)
    with pytest.raises(DeadlineExceeded):
        await impatient.encode(members, request, asyncio.get_running_loop().time() + 0.1)
    await impatient.close()
    await frozen.server.stop(0)


async def test_links_to_former_members_are_closed_when_idle(workers: WorkerLinks, worker: ScriptedWorker) -> None:
    member = scheduler_pb2.Member(worker="a", address=worker.address)
    attempt = submit(workers, worker, "r")
    await worker.commands.get()
    workers.keep([])
    assert workers.load(member) == 1
    attempt.abort()
    workers.keep([member])
    link = workers.link(worker.address, "")
    workers.keep([])
    assert workers.link(worker.address, "") is not link


async def test_a_former_member_is_lost_when_it_falls_silent(worker: ScriptedWorker) -> None:
    workers = WorkerLinks(SECRET, lambda: False, silent_seconds=2.0)
    attempt = submit(workers, worker, "r")
    await worker.commands.get()
    workers.keep([])
    for number in range(4):
        worker.events.put_nowait(worker_pb2.StepEvents(tokens=[tokens("r", 1, str(number))]))
        event = await attempt.events.get()
        assert isinstance(event, OutputChunk), "as long as it speaks it goes on"
    assert isinstance(await attempt.events.get(), Lost)
    await workers.close()


async def test_a_member_that_was_away_for_a_moment_keeps_its_requests(worker: ScriptedWorker) -> None:
    workers = WorkerLinks(SECRET, lambda: False, silent_seconds=0.1)
    gone = ScriptedWorker()
    await gone.server.start()
    member = scheduler_pb2.Member(worker="a", address=worker.address)
    kept, lost = submit(workers, worker, "r"), submit(workers, gone, "s")
    workers.keep([])
    workers.keep([member])
    assert isinstance(await lost.events.get(), Lost), "the time is over"
    worker.events.put_nowait(worker_pb2.StepEvents(tokens=[tokens("r", 1, "here")]))
    assert isinstance(await kept.events.get(), OutputChunk)
    await gone.server.stop(0)
    await workers.close()
