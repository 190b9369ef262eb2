"""One HTTP request that generates: its calls, from the first byte that is read to the last that is written."""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import cast

import msgspec

from fairlead.errors import Cancelled, ClientLimit, FairleadError, InvalidRequest
from fairlead.v1 import inference_pb2
from gateway.admission import Admission
from gateway.call import Call, Receive, new_call, predicted_wait
from gateway.core.call_commands import Accepted, Finished, Message
from gateway.core.call_events import OutputChunk
from gateway.core.client_limits import HeldBytesLimiter
from gateway.driver import CallDriver, CallerPort
from gateway.http.api import Answer, Api, Generation, ParsedRequest
from gateway.http.asgi import Headers
from gateway.http.common_fields import Sender, Wish, without_effect
from gateway.http.decoding import unknown_fields
from gateway.http.event_stream import EventStream
from gateway.http.logprobs import TextToken
from gateway.http.request import HttpRequest
from gateway.tenants import Credentials
from serving import interaction_header, service_tiers
from serving.rpc.message_body_limiter import MessageBodyLimiter
from throttler.core.budgets import HEADER
from throttler.core.windows import LimitStatus

TEXT = 64  # bytes that a text takes beside its characters
TOKEN = 128  # bytes that the log-probabilities of a token take beside their JSON


class CollectedOutput:
    """Keeps the texts and the log-probabilities of chunks that an answer has made compact."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._logprobs: list[object] = []
        self._prompt_logprobs: list[object] = []

    def add(self, chunk: OutputChunk) -> int:
        """Keep the next chunk, and return the bytes that are kept of it."""
        self._texts.append(chunk.text)
        self._logprobs += chunk.logprobs
        self._prompt_logprobs += chunk.prompt_logprobs
        return TEXT + len(chunk.text) + _size((*chunk.logprobs, *chunk.prompt_logprobs))

    def whole(self) -> OutputChunk:
        """Return what is kept as one chunk, without token ids."""
        return OutputChunk(b"", "".join(self._texts), self._logprobs, self._prompt_logprobs)


def _size(logprobs: Iterable[object]) -> int:
    size = 0
    for token in cast("Iterable[msgspec.Raw | TextToken]", logprobs):
        text = token if isinstance(token, msgspec.Raw) else token.top
        size += TOKEN + (0 if text is None else memoryview(text).nbytes)
    return size


class HttpCaller:
    """The caller of one call; `pass_on` writes a chunk or returns False, `break_off` ends the answer as it is."""

    def __init__(
        self,
        credentials: Credentials,
        receive: Receive[inference_pb2.GenerateRequest],
        pass_on: Callable[[OutputChunk], bool],
        break_off: Callable[[FairleadError], None],
    ) -> None:
        self.credentials = credentials
        self.receive = receive
        self.error: FairleadError | None = None  # with which the call is to end
        self._pass_on = pass_on
        self._break_off = break_off

    def write(self, message: Message) -> bool:
        """See CallerPort. HTTP has no message that says that a call is accepted."""
        match message:
            case OutputChunk():
                return self._pass_on(message)
            case Accepted():
                return True
            case Finished():
                return False

    def refuse(self, error: FairleadError) -> None:
        """See CallerPort."""
        self.error = error

    def hang_up(self, error: FairleadError) -> None:
        """See CallerPort."""
        self.error = error
        self._break_off(error)


IGNORED = b"x-fairlead-ignored"
MOST_IGNORED = 1024  # bytes of the header's value, but for the last mark
_PLAIN = re.compile(r"[\w.\[\]-]{1,64}", re.ASCII)
APP = "x-fairlead-app"
STREAMING = "x-fairlead-streaming"
TIMEOUT = "x-fairlead-timeout"
DEADLINE = "x-fairlead-deadline"
EACH_TOKEN = "each_token"
PING_SECONDS = 10.0
DriverFactory = Callable[[CallerPort, Call], CallDriver]


class GenerationHandler:
    """Answer one request with its calls. Each choice is a call of its own, and the first one's id names the request.

    The body is read by the first call, once the caller is authenticated. The status is decided when there is output, or
    when the caller has waited so long that it is sent a comment; an error that comes later is an event of the stream.
    """

    def __init__(
        self,
        api: Api,
        request: HttpRequest,
        admission: Admission,
        drive: DriverFactory,
        bodies: MessageBodyLimiter,
        held_outputs: HeldBytesLimiter,
    ) -> None:
        self._api = api
        self._request = request
        self._admission = admission
        self._drive = drive
        self._bodies = bodies
        self._held_outputs = held_outputs
        self._calls = [new_call(_deadline(request))]
        self._drivers: list[CallDriver] = []
        self._group = asyncio.TaskGroup()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._pinging: asyncio.Task[None] | None = None
        self._asked: ParsedRequest | None = None
        self._user_field = ""  # of the body
        self._stream: EventStream | None = None  # None: the answer is written as a whole
        self._wishes: Sequence[Wish] = ()  # of the body
        self._left_out: Sequence[str] = ()  # fields of the body
        self._answer: Answer | None = None
        self._waiting: dict[int, Generation] = {}  # by index: calls whose requests are not made yet
        self._outputs = [CollectedOutput()]  # one for each of the calls
        self._held = 0  # bytes of outputs

    async def run(self) -> None:
        """Make the calls and write the answer; return when it is written, or the caller is gone."""
        error: FairleadError | None = None
        self._request.connection.lost.add_done_callback(self._gone)
        try:
            async with self._group:
                await self._generate(0, self._receive)
        except* FairleadError as failed:
            error = _first(failed)
        finally:
            self._request.connection.lost.remove_done_callback(self._gone)
            for pending in (self._timer, self._pinging):
                if pending is not None:
                    pending.cancel()
        if self._calls[0].client:
            self._request.connection.trust()
        try:
            await (self._complete() if error is None else self._refuse(error))
            # The calls' drivers lead back to this object, so that only the garbage collector will free it.
            self._asked, self._answer, self._outputs = None, None, []
            await self._request.connection.taken()
        finally:
            if self._held:
                self._held_outputs.remove(self._calls[0].client, self._held)

    async def _generate(self, index: int, receive: Receive[inference_pb2.GenerateRequest]) -> None:
        """Make one call; raises the FairleadError that it ends with, and then the others are cancelled."""
        call, credentials = self._calls[index], self._request.credentials
        if index and not credentials.request_id:  # so that the answer's id leads to all its calls in logs
            credentials = replace(credentials, request_id=self._calls[0].request_id)
        caller = HttpCaller(credentials, receive, partial(self._pass_on, index), self._break_off)
        driver = self._drive(caller, call)
        self._drivers.append(driver)
        try:
            async for message in driver.messages():
                if isinstance(message, OutputChunk):
                    assert self._stream is not None, "an answer that is written as a whole takes all chunks at once"
                    await self._stream.write(self._writer().chunk(index, call, message))
                elif isinstance(message, Finished):
                    await self._finish(index, message.last)
        finally:
            driver.gone()
        if caller.error is not None:
            raise caller.error

    async def _receive(self) -> inference_pb2.GenerateRequest:
        """Read the request, and begin the calls that it asks for beside the first."""
        body = await self._request.body(self._bodies)
        self._calls[0].body_bytes = len(body)
        asked = self._asked = self._api(body)
        self._wishes, self._left_out = asked.wishes(), asked.left_out()[:MOST_IGNORED]
        if asked.stored_bytes:
            self._calls[0].body_bytes += asked.stored_bytes
            await self._bodies.turns.turn(self._request.payer, asked.stored_bytes)
        first, *others = asked.generations()
        self._waiting = dict(enumerate(others, 1))
        sender = asked.sender(self._request.headers)
        self._user_field = sender.field
        request = self._typed(self._calls[0], asked, first, sender)
        self._left_out = [*self._left_out, *islice(unknown_fields(body, asked.body_type), MOST_IGNORED)]
        if asked.stream:
            self._stream = EventStream(self._request, self._headers)
            self._timer = self._loop.call_later(PING_SECONDS, self._ping, self._stream)
        if others:
            self._group.create_task(self._begin_others(list(self._waiting), asked, sender))
        asked.forget()
        return request

    async def _begin_others(self, indexes: Sequence[int], asked: ParsedRequest, sender: Sender) -> None:
        """Begin the further calls, one in each turn of the event loop: other requests have theirs between them, and no
        more are begun once one is refused."""
        for index in indexes:
            self._begin(index, asked, sender)
            await asyncio.sleep(0)

    def _begin(self, index: int, asked: ParsedRequest, sender: Sender) -> None:
        """Begin a further call. Its request is made when it is asked for: of a long prompt not all copies at once."""
        call = new_call(self._calls[0].deadline)
        self._calls.append(call)
        self._outputs.append(CollectedOutput())

        async def receive() -> inference_pb2.GenerateRequest:
            return self._typed(call, asked, self._waiting.pop(index), sender)

        self._group.create_task(self._generate(index, receive))

    def _typed(
        self, call: Call, asked: ParsedRequest, generation: Generation, sender: Sender
    ) -> inference_pb2.GenerateRequest:
        """Return the request of a call as it is over gRPC, and set what such a request does not say."""
        headers = self._request.headers
        each_token = asked.stream and (asked.counts_tokens or headers.get(STREAMING) == EACH_TOKEN)
        message = inference_pb2.GenerateRequest(
            model=asked.model,
            prompt=generation.prompt,
            sampling=generation.sampling,
            app=headers.get(APP, ""),
            service_tier=headers.get(service_tiers.HEADER, "") or asked.named_tier,
            streaming=inference_pb2.STREAMING_EACH_TOKEN if each_token else inference_pb2.STREAMING_COALESCED,
        )
        if interaction_header.HEADER in headers:
            message.interaction.CopyFrom(interaction_header.parse(headers[interaction_header.HEADER]))
        call.user, call.session = sender.user, sender.session
        call.encoding = generation.encoding
        call.repeats_tool_calls = call.fills_context = True
        return message

    def _pass_on(self, index: int, chunk: OutputChunk) -> bool:
        """Keep a chunk, or write it from where it arrived; return False if only the call's task can write it."""
        if self._stream is None:
            self._hold(index, chunk)
            return True
        if self._stream.is_open:
            self._stream.write_now(self._writer().chunk(index, self._calls[index], chunk))
            return True
        return False

    def _hold(self, index: int, chunk: OutputChunk) -> None:
        """Keep a chunk until all are here; where the client's outputs leave too little memory, end all calls."""
        added = self._outputs[index].add(self._writer().compact(index, chunk))
        try:
            self._held_outputs.add(self._calls[0].client, added)
        except ClientLimit as error:
            for driver in self._drivers:
                self._loop.call_soon(driver.fail, error)  # not within the step of one
        else:
            self._held += added

    def _break_off(self, error: FairleadError) -> None:
        """End the answer of a caller that reads slowly, or break the connection of one that reads nothing."""
        if self._stream is None or isinstance(error, Cancelled):
            self._request.connection.abort()
        else:
            self._stream.break_off(self._writer().error(error))

    async def _finish(self, index: int, last: OutputChunk | None) -> None:
        if self._stream is not None:
            await self._stream.write(self._writer().finished(index, self._calls[index], last))
        elif last is not None:
            self._hold(index, last)

    def _writer(self) -> Answer:
        if self._answer is None:
            assert self._asked is not None
            self._answer = self._asked.answer(self._calls[0])
        return self._answer

    async def _complete(self) -> None:
        if self._stream is not None:
            await self._stream.close(self._writer().closing(self._calls))
        else:
            body = self._writer().whole(self._calls, [output.whole() for output in self._outputs])
            await self._request.respond(200, body, self._headers())

    async def _refuse(self, error: FairleadError) -> None:
        if self._stream is not None and self._request.has_begun:
            await self._stream.close(self._writer().error(error))
            return
        if self._asked is not None:
            users = {"metadata.x-fairlead-user": self._user_field} if self._user_field else {}
            self._request.dialect = self._request.dialect.renamed({**users, **self._asked.names})
        await self._request.refuse(error, self._calls[0].request_id, self._headers())

    def _headers(self) -> Headers:
        call = self._calls[0]
        headers = self._request.dialect.naming(call.request_id)
        headers += left_out_header([*without_effect(self._wishes, call.granted), *self._left_out])
        if call.interaction_token:
            headers.append(interaction_header.header_of(call.interaction, call.interaction_token))
        if call.client:
            in_calls, in_tokens = self._admission.limits(call)
            headers += [*limit_headers(b"requests", in_calls), *limit_headers(b"tokens", in_tokens)]
            for name, value in predicted_wait(call):
                headers.append((name.encode(), value.encode()))
            if call.background:
                headers.append((service_tiers.HEADER.encode(), service_tiers.FLEX.encode()))
            for warning in self._admission.budget_warnings(call):
                headers.append((HEADER.encode(), warning.encode()))
        return headers

    def _ping(self, stream: EventStream) -> None:
        self._timer = self._loop.call_later(PING_SECONDS, self._ping, stream)
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(stream.ping())

    def _gone(self, _: asyncio.Future[None]) -> None:
        for driver in self._drivers:
            driver.gone()


def _first(errors: BaseExceptionGroup[FairleadError]) -> FairleadError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _deadline(request: HttpRequest) -> float | None:
    """Return when the caller stops to wait, in seconds of the loop's clock; raises InvalidRequest.

    TIMEOUT is in seconds from now, DEADLINE in Unix seconds; the earlier one counts.
    """
    left = [_number(request, TIMEOUT)] if TIMEOUT in request.headers else []
    if DEADLINE in request.headers:
        left.append(max(0.0, _number(request, DEADLINE) - time.time()))
    return asyncio.get_running_loop().time() + min(left) if left else None


def _number(request: HttpRequest, header: str) -> float:
    try:
        seconds = float(request.headers[header])
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidRequest(f"expected a number of seconds above 0, got {request.headers[header][:32]!a}", header)
    return seconds


def left_out_header(fields: Iterable[str]) -> Headers:
    """Return the header that lists `fields`, none if there are none; a name that is no plain text is shown as `?`."""
    value = ""
    for field in fields:
        shown = field if _PLAIN.fullmatch(field) else "?"
        value += f", {shown}" if value else shown
        if len(value) > MOST_IGNORED:
            value = f"{value[:MOST_IGNORED].rpartition(', ')[0]}, ..."
            break
    return [(IGNORED, value.encode())] if value else []


def limit_headers(unit: bytes, status: LimitStatus | None) -> Headers:
    """Return the limit in `unit` (requests or tokens), what remains of it, and the seconds until all of it does.

    There are no headers without a limit.
    """
    if status is None:
        return []
    return [
        (b"x-ratelimit-limit-" + unit, b"%d" % status.limit),
        (b"x-ratelimit-remaining-" + unit, b"%d" % status.remaining),
        (b"x-ratelimit-reset-" + unit, b"%.3fs" % status.reset),
    ]
