"""The gateway's links to workers: one multiplexed Session stream and one tokenizer stub each."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

import grpc

from fairlead.errors import DeadlineExceeded, TooLong, Unavailable
from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.rpc.channel import MAX_MESSAGE_BYTES
from fairlead.rpc.status import from_call
from fairlead.v1 import scheduler_pb2, worker_pb2, worker_pb2_grpc
from gateway.core.call_events import Event, Lost
from gateway.core.hedge import HEDGE_SECONDS, Hedge
from gateway.core.suspects import Suspects
from gateway.upstream.attempt import Attempt, AttemptKey, route
from serving.rpc.channel import open_channel, secret_metadata
from serving.rpc.coalescing_writer import CoalescingWriter
from serving.rpc.mutual_tls import MutualTls

log = logging.getLogger(__name__)
SHORT_PROMPT = 16 * 1024  # bytes; the answer to a longer one would delay those behind it
Batches = AsyncIterator[worker_pb2.ShortPrompts]
Open = Callable[[Batches], grpc.aio.StreamStreamCall[worker_pb2.ShortPrompts, worker_pb2.EncodedPrompts]]
Answer = asyncio.Future[worker_pb2.EncodeResponse | None]


class ShortPrompts:
    """The prompts that one worker is tokenizing over one stream, which is opened when there is one to send.

    An exchange over it costs the gateway a fifth of a call of its own.
    """

    def __init__(self, open_stream: Open) -> None:
        self._open = open_stream
        self._numbers = count()
        self.answers: dict[int, Answer] = {}  # those that are awaited
        self._writer: CoalescingWriter[worker_pb2.ShortPrompts] | None = None
        self._reader: asyncio.Task[None] | None = None

    def encode(self, request: worker_pb2.EncodeRequest) -> Answer:
        """Tokenize a prompt; the result is None if the stream cannot answer: Encode then answers or raises the reason.

        A caller that no longer needs the result cancels it.
        """
        answer: Answer = asyncio.get_running_loop().create_future()
        if self._writer is None:
            self._writer = CoalescingWriter(worker_pb2.ShortPrompts)
            self._reader = asyncio.create_task(self._read(self._writer, self.answers))
        number, answers = next(self._numbers), self.answers
        answers[number] = answer
        answer.add_done_callback(lambda _: answers.pop(number, None))
        self._writer.pending.prompts.add(number=number, request=request)
        self._writer.flush()
        return answer

    async def close(self) -> None:
        """Close the stream; what it has not answered is not answered."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _read(self, writer: CoalescingWriter[worker_pb2.ShortPrompts], answers: Mapping[int, Answer]) -> None:
        call = self._open(writer.messages())
        try:
            async for batch in call:
                for encoded in batch.encoded:
                    _answer(answers.get(encoded.number), encoded.response if encoded.HasField("response") else None)
        except grpc.aio.AioRpcError:
            reraise_cancellation()
        finally:
            call.cancel()
            writer.close()
            self._writer, self.answers = None, {}
            for answer in answers.values():
                _answer(answer, None)


def _answer(waiting: Answer | None, response: worker_pb2.EncodeResponse | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(response)


log = logging.getLogger(__name__)
CLOSE_SECONDS = 5.0  # time in which prompts that are being tokenized may finish
# A worker that is no longer a member and sends nothing for this time is lost. A worker that still sends events has only
# lost its scheduler and may finish its requests.
SILENT_SECONDS = 1.0
ENCODE_SECONDS = 30.0  # limit for tokenizing one prompt
COMPARED = 8  # workers of which the least loaded one tokenizes a prompt: to sort a thousand would cost more than that

Reply = TypeVar("Reply")
P = TypeVar("P")
T = TypeVar("T")
WorkerKey = tuple[str, str]  # address and instance of a worker


class WorkerLink:
    """The link to one worker process. A submission opens its Session stream if there is none.

    `has_stalled` returns whether this process stalled recently, so that a lost stream does not mean a failed worker.
    """

    def __init__(
        self, address: str, secret: str, has_stalled: Callable[[], bool], mutual_tls: MutualTls | None = None
    ) -> None:
        self.address = address
        self._has_stalled = has_stalled
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.encoding = 0  # number of prompts that the worker now tokenizes, beside the short ones
        self.received = 0  # number of received messages
        self._metadata = secret_metadata(secret)
        self._channel = open_channel(address, mutual_tls)
        self.short_prompts = ShortPrompts(
            lambda prompts: worker_pb2_grpc.TokenizerStub(self._channel).EncodeShort(prompts, metadata=self._metadata)
        )
        self._writer: CoalescingWriter[worker_pb2.SessionCommands] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def connected(self) -> bool:
        """Whether the Session stream is open; keepalive closes that of a dead or stopped worker within 6 seconds."""
        return self._writer is not None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    def submit(self, submit: worker_pb2.Submit, receive: Callable[[Event], None]) -> Attempt:
        """Send `submit` together with the other commands of this loop tick."""
        if self._writer is None:
            self._writer = CoalescingWriter(worker_pb2.SessionCommands)
            self._reader = asyncio.create_task(self._session(self._writer))
        attempt = Attempt.of(submit, receive, self.abort)
        self.attempts[attempt.key] = attempt
        self._writer.pending.submits.append(submit)
        self._writer.flush()
        return attempt

    def abort(self, attempt: Attempt) -> None:
        if self.attempts.pop(attempt.key, None) is not None and self._writer is not None:
            self._writer.pending.aborts.add(request_id=attempt.key[0], attempt=attempt.key[1])
            self._writer.flush()

    async def encode(self, request: worker_pb2.EncodeRequest, timeout: float) -> worker_pb2.EncodeResponse:
        """Return the prompt as token ids and digests within `timeout` seconds; raise the worker's FairleadError."""
        return await self._tokenizer(worker_pb2_grpc.TokenizerStub(self._channel).Encode, request, timeout)

    async def decode(self, request: worker_pb2.DecodeRequest, timeout: float) -> worker_pb2.DecodeResponse:
        """Return the text of tokens; raise the worker's FairleadError."""
        return await self._tokenizer(worker_pb2_grpc.TokenizerStub(self._channel).Decode, request, timeout)

    async def _tokenizer(self, ask: Callable[..., Awaitable[Reply]], request: object, timeout: float) -> Reply:
        self.encoding += 1
        try:
            return await ask(request, timeout=timeout, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            reraise_cancellation()
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise TooLong(f"its tokens exceed an internal message's {MAX_MESSAGE_BYTES} bytes", "prompt") from error
            raise from_call(error) from error
        finally:
            self.encoding -= 1

    async def close(self) -> None:
        """Close the link; the worker aborts the attempts of its Session stream."""
        self._closing = True
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        await self.short_prompts.close()
        await self._channel.close(grace=CLOSE_SECONDS)

    async def _session(self, writer: CoalescingWriter[worker_pb2.SessionCommands]) -> None:
        call = worker_pb2_grpc.WorkerStub(self._channel).Session(writer.messages(), metadata=self._metadata)
        reason = "the worker ended the session"
        try:
            async for events in call:
                self.received += 1
                route(events, self.attempts)
        except grpc.aio.AioRpcError as error:
            reraise_cancellation()
            reason = f"{error.code().name}: {error.details()}"
        except asyncio.CancelledError:
            reason = "the gateway closed it"
            raise
        finally:
            call.cancel()
            writer.close()
            self._writer = None
            lost, self.attempts = self.attempts, {}
            level = logging.INFO if self._closing and not lost else logging.WARNING
            log.log(level, "worker session ended", extra={"worker": self.address, "reason": reason, "lost": len(lost)})
            event = Lost(self._has_stalled())
            for attempt in lost.values():
                attempt.receive(event)


class WorkerLinks:
    """The links to all workers, by address and instance, because a restarted worker needs a new link."""

    def __init__(
        self,
        secret: str,
        has_stalled: Callable[[], bool],
        mutual_tls: MutualTls | None = None,
        silent_seconds: float = SILENT_SECONDS,
        encode_seconds: float = ENCODE_SECONDS,
    ) -> None:
        self._secret = secret
        self._has_stalled = has_stalled
        self._encode_seconds = encode_seconds
        self._mutual_tls = mutual_tls
        self._links: dict[WorkerKey, WorkerLink] = {}
        self._members: set[WorkerKey] = set()
        self._suspects: Suspects[WorkerKey] = Suspects(silent_seconds)
        self._timer: asyncio.TimerHandle | None = None  # for the next deadline of the suspects
        self._closing: list[asyncio.Task[None]] = []
        self._next_compared = 0  # index of a member

    def link(self, address: str, instance: str) -> WorkerLink:
        """Return the link to one worker process; create it if necessary."""
        key = (address, instance)
        if key not in self._links:
            self._links[key] = WorkerLink(address, self._secret, self._has_stalled, self._mutual_tls)
        return self._links[key]

    def load(self, member: scheduler_pb2.Member) -> int:
        """Return the number of this gateway's requests at the worker, with those whose prompts it tokenizes."""
        link = self._links.get((member.address, member.instance))
        return len(link.attempts) + link.encoding + len(link.short_prompts.answers) if link else 0

    def connected(self, member: scheduler_pb2.Member) -> bool:
        """Return whether a Session stream to the worker is open."""
        link = self._links.get((member.address, member.instance))
        return link is not None and link.connected

    async def encode(
        self, members: Sequence[scheduler_pb2.Member], request: worker_pb2.EncodeRequest, deadline: float | None
    ) -> worker_pb2.EncodeResponse:
        """Tokenize at the first member that answers, beginning with one of little load; raise its FairleadError.

        `deadline` is the caller's, in loop time. Raise Unavailable after `encode_seconds` without an answer.
        """
        if request.ByteSize() <= SHORT_PROMPT:
            encoded = await self._any(members, lambda link, _: link.short_prompts.encode(request), deadline)
            if encoded is not None:
                return encoded
        return await self._any(members, lambda link, timeout: link.encode(request, timeout), deadline)

    async def decode(
        self, members: Sequence[scheduler_pb2.Member], request: worker_pb2.DecodeRequest
    ) -> worker_pb2.DecodeResponse:
        """Return the text of tokens as `encode` returns tokens, within the time that one prompt may take."""
        return await self._any(members, lambda link, timeout: link.decode(request, timeout), None)

    async def _any(
        self,
        members: Sequence[scheduler_pb2.Member],
        ask: Callable[[WorkerLink, float], Awaitable[Reply]],
        deadline: float | None,
    ) -> Reply:
        limit = asyncio.get_running_loop().time() + self._encode_seconds
        end = limit if deadline is None else min(deadline, limit)
        try:
            return await hedged(self._ordered(members), partial(self._ask, ask, end), HEDGE_SECONDS, end)
        except (DeadlineExceeded, TimeoutError) as error:
            if end < limit:
                raise DeadlineExceeded("the worker did not tokenize the prompt in time") from error
            raise Unavailable(f"no worker tokenized the prompt within {self._encode_seconds:g} s") from error

    def _ordered(self, members: Sequence[scheduler_pb2.Member]) -> Sequence[scheduler_pb2.Member]:
        """Return the members in the order to ask them: first those that this call compares, the least loaded first."""
        begin = self._next_compared % max(1, len(members))
        self._next_compared = begin + COMPARED
        rotated = [*members[begin:], *members[:begin]]
        return sorted(rotated[:COMPARED], key=self.load) + rotated[COMPARED:]

    def _ask(
        self, ask: Callable[[WorkerLink, float], Awaitable[Reply]], end: float, member: scheduler_pb2.Member
    ) -> Awaitable[Reply]:
        return ask(self.link(member.address, member.instance), end - asyncio.get_running_loop().time())

    def keep(self, members: Collection[scheduler_pb2.Member]) -> None:
        """Close the links to workers that are no longer members: idle ones at once, others when they become silent."""
        self._members = {(member.address, member.instance) for member in members}
        self._closing = [task for task in self._closing if not task.done()]
        self._close_lost()

    def _close_lost(self) -> None:
        loop = asyncio.get_running_loop()
        for key in self._suspects.lost(self._links, self._members, loop.time()):
            self._closing.append(asyncio.create_task(self._links.pop(key).close()))
        if self._timer is not None:
            self._timer.cancel()
        due = self._suspects.next_deadline()
        self._timer = None if due is None else loop.call_at(due, self._close_lost)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*self._closing, *(link.close() for link in self._links.values()))


async def hedged(peers: Sequence[P], ask: Callable[[P], Awaitable[T]], patience: float, end: float) -> T:
    """Return the first result of `ask` for one of `peers`, in their order; at most two calls run at a time.

    The next call begins when one raises Unavailable, or when the only running call has taken `patience` seconds. Raise
    the first exception other than Unavailable, the last Unavailable if all calls raise it, or TimeoutError at `end`, in
    loop time.
    """
    failure: Unavailable | None = None
    clock, hedge, running = asyncio.get_running_loop().time, Hedge(len(peers), patience), list[asyncio.Future[T]]()
    peer = hedge.ask(clock())
    try:
        while not hedge.exhausted:
            if peer is not None:
                running.append(asyncio.ensure_future(ask(peers[peer])))
            due = hedge.next_deadline()
            done = await _first_done(running, end if due is None else min(due, end))
            if done is None:
                if clock() >= end:
                    raise TimeoutError
                peer = hedge.tick(clock())
                continue
            running.remove(done)
            try:
                return done.result()
            except Unavailable as error:
                failure, peer = error, hedge.failed(clock())
        raise failure or Unavailable("there is no worker to ask")
    finally:
        if running:
            for future in running:
                future.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _first_done(futures: Sequence[asyncio.Future[T]], due: float) -> asyncio.Future[T] | None:
    """Return a future that is done as soon as there is one, or None at `due`; it costs a third of asyncio.wait."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = loop.call_at(due, wake)
    for future in futures:
        future.add_done_callback(wake)
    try:
        await woken
    finally:
        timer.cancel()
        for future in futures:
            future.remove_done_callback(wake)
    for future in futures:
        if future.done():
            return future
    return None
