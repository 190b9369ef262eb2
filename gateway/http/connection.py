"""One HTTP connection, within bounds that uvicorn does not have."""

import asyncio

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from fairlead.errors import FairleadError, InvalidRequest, QueueFull, Unavailable
from gateway.core.connection_table import ConnectionTable
from gateway.http.dialect import refusal
from gateway.http.errors import RequestTimeout
from gateway.http.framing import HTTP_1_0, BoundedProtocol, HttpCycle, begin_of_head, complete_scope
from gateway.http.transport import GatheringTransport, ReaderLimit, address_of

WRITING_SECONDS = 0.01
MAX_PIPELINED = 64  # requests of a connection that wait for the one before them
PROBE_SECONDS, LONGEST_PROBE_SECONDS = 0.05, 1.0  # between looks at a caller that sends no more
REUSE_SECONDS = 1  # of an idle connection at a server that stops: a request may be on its way


class HttpConnection(BoundedProtocol):
    """Bounds how large the head of a request is and how long it may take; `table` bounds all connections together.

    Of a request that is refused before it has arrived the rest is thrown away as it comes.

    A caller may send its end after its requests, and still gets the answers. One that is gone has sent the same: its
    machine resets the connection at what is written then, and the next write meets that.

    A connection ends when its caller sends many requests at once, and when the caller reads nothing for
    `reader_seconds` of what waits to be sent. The last answer of a connection says that it is the last.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        table: "ConnectionTable[HttpConnection]",
        *,
        seconds: float,
        reader_seconds: float,
    ) -> None:
        super().__init__(config, state)
        self._table = table
        self._seconds = seconds
        self._reader_seconds = reader_seconds
        self._limit: asyncio.TimerHandle  # of the time for a request to arrive; cancelled while none is awaited
        self._answering: HttpCycle | None = None  # `cycle` is the last request, which may wait for this one
        self._refusal: FairleadError | None = None  # the last answer; nothing more is read
        self._probe: asyncio.TimerHandle | None = None  # of a caller that sends no more
        self._is_draining = False
        self._is_known = False
        self.address = ""  # by which connections are counted, once there is one
        self.lost: asyncio.Future[None] = self.loop.create_future()  # done when the connection is gone

    @property
    def is_writable(self) -> bool:
        """Whether the network has taken what was written before; a connection that ends takes everything."""
        return not self.flow.write_paused or self.transport.is_closing()

    @property
    def has_arrived(self) -> bool:
        """Whether the request that is being answered is here to its end."""
        return self._answering is not None and not self._answering.more_body

    async def taken(self) -> None:
        """Return when the network has taken what was written but for a little, or the connection is gone."""
        while self.transport.get_write_buffer_size() > HIGH_WATER_LIMIT and not self.lost.done():
            await asyncio.sleep(WRITING_SECONDS)  # until the transport has noticed
            await self.flow.drain()

    def write_chunk(self, data: bytes) -> None:
        """Write a part of an answer whose head is written and names no length, without the steps of ASGI."""
        assert self._answering is not None
        self.transport.write(self._answering.framed(data))

    def break_off(self, data: bytes) -> None:
        """End an answer whose head is written with `data`, and the connection, though its caller reads slowly."""
        if self._answering is not None and not self.transport.is_closing():
            self._answering.keep_alive = False
            self._answering.write_body(data, has_more=False)

    def trust(self) -> None:
        """Note that a key was shown: of idle connections, those of strangers give way first."""
        self._is_known = True

    def give_way(self) -> None:
        """End, because others need the place."""
        error = QueueFull("too many connections, or too much unread input", 1.0)
        for cycle, _ in self.pipeline:
            assert isinstance(cycle, HttpCycle)
            cycle.end_body(error)
        if self._is_answering or self.head:
            self._refuse(error)
        else:
            self.abort()

    def abort(self) -> None:
        """Break the connection."""
        self.transport.abort()

    def drain(self) -> None:
        """Serve what has been asked, and a request that may be on its way; the next answer that begins is the last."""
        self._is_draining = True
        self.timeout_keep_alive = REUSE_SECONDS
        if self._is_idle and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(REUSE_SECONDS, self.timeout_keep_alive_handler)

    def end(self, error: Unavailable) -> None:
        """Refuse with `error` what has not been answered yet, and close an idle connection."""
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            if not cycle.response_started:
                cycle.refuse(error)
        elif self._is_idle:
            self.transport.close()
        else:
            self._refuse(error)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self.transport = GatheringTransport(transport, self.loop)
        self._reader_limit = ReaderLimit(self.transport, self.loop, self._reader_seconds)
        self._limit = self.loop.call_later(self._seconds, self._give_up)
        self.address = address_of(self.client)
        victim = self._table.add(self, self.address)
        if victim is not None:
            victim.give_way()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._limit.cancel()
        self._stop_probing()
        self._reader_limit.stop()
        self._table.remove(self)
        self.lost.set_result(None)
        if self._answering is not None:
            self._answering.disconnected = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol; `data` are at most MAX_HEAD bytes. A body waits outside until it is asked for."""
        if self._refusal is not None or self.transport.is_closing():
            return
        if self._limit.cancelled() and not self._is_answering:
            self._await_head()
        self._unset_keepalive_if_required()
        try:
            self.parse(data)
        except InvalidRequest as error:
            self._refuse(error)
        if self._is_answering and self.cycle.more_body and self.cycle.message_event.is_set():
            self.flow.pause_reading()
        self._note_held()

    def eof_received(self) -> bool:  # type: ignore[override]
        """See asyncio.Protocol: whether the connection stays open, for whole requests alone.

        It does not with TLS, which asyncio ends then, nor with HTTP/1.0, in which nothing stands before an answer.
        """
        assert isinstance(self.transport, GatheringTransport)
        is_asked = self._is_answering and not self.cycle.more_body and not self.transport.is_closing()
        if not is_asked or self.scheme == "https" or self.cycle.scope["http_version"] == HTTP_1_0:
            self.transport.flush()
            return False
        self.transport.set_patience(self._reader_seconds)
        self.drain()
        self._stop_probing()
        self._probe = self.loop.call_later(PROBE_SECONDS, self._probe_caller, PROBE_SECONDS)
        return True

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self._reader_limit.start()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._reader_limit.stop()

    def on_message_begin(self) -> None:
        """See httptools; raises InvalidRequest."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise InvalidRequest(f"at most {MAX_PIPELINED} requests may wait for the one before them")
        super().on_message_begin()
        self.scope["state"].update(connection=self)
        self._await_head()

    def begin_request(self) -> None:
        """See BoundedProtocol."""
        self._limit.cancel()
        cycle, is_waiting = self._new_cycle(), self._is_answering
        self.cycle = cycle
        self._table.use(self)
        if is_waiting:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
        else:
            self._start_asgi_task(cycle, self.app)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._limit.cancel()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn: an answer is written."""
        super().on_response_complete()
        if not self._is_answering and not self.lost.done():
            self._table.rest(self, is_known=self._is_known)
        if self.transport.is_closing():
            self._reader_limit.start()
        elif self._refusal is not None and not self._is_answering:
            self._refuse(self._refusal)
        elif self.cycle.more_body:
            self._await_head()

    def timeout_keep_alive_handler(self) -> None:
        """See uvicorn: the connection is idle."""
        super().timeout_keep_alive_handler()
        self._reader_limit.start()

    def _probe_caller(self, seconds: float) -> None:
        if self._answering is not None and self._is_answering:
            self._answering.write_nothing()
            seconds = min(2 * seconds, LONGEST_PROBE_SECONDS)
            self._probe = self.loop.call_later(seconds, self._probe_caller, seconds)

    def _stop_probing(self) -> None:
        if self._probe is not None:
            self._probe.cancel()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        assert isinstance(cycle, HttpCycle)
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is asked, and no part of a request has come."""
        return not self._is_answering and not self.head and (self.cycle is None or not self.cycle.more_body)

    def _new_cycle(self) -> HttpCycle:
        version = self.parser.get_http_version()
        complete_scope(self.scope, self.parser.get_method(), self.url, version)
        return HttpCycle(
            is_last=self._is_last,
            has_read=self._note_held,
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and version != HTTP_1_0,
            keep_alive=self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def _is_last(self) -> bool:
        return self._is_draining and not self.pipeline and self._refusal is None

    def _note_held(self) -> None:
        """Count what has been received and not been read yet."""
        if self.lost.done():
            return
        held = self.head + (0 if self._answering is None else len(self._answering.body))
        for cycle, _ in self.pipeline:
            held += len(cycle.body)
        for victim in self._table.hold(self, held):
            victim.give_way()

    def _await_head(self) -> None:
        self._limit.cancel()
        self._limit = self.loop.call_later(self._seconds, self._give_up)

    def _give_up(self) -> None:
        self._refuse(RequestTimeout(f"the request did not arrive within {self._seconds:g} s"))

    def _refuse(self, error: FairleadError) -> None:
        """Read nothing more; answer with `error` after what is being answered, and end the connection."""
        self._refusal = error
        self.forget()
        self._limit.cancel()
        cycle = self.cycle
        if self._is_answering:
            if cycle.more_body:
                assert isinstance(cycle, HttpCycle)
                cycle.end_body(error)
            return
        if cycle is None or not cycle.more_body:  # otherwise it is the rest of a body that nobody wants
            self._write_refusal(error)
        self.transport.close()
        self._reader_limit.start()

    def _write_refusal(self, error: FairleadError) -> None:
        answer = refusal(error, self.url.decode("latin-1").partition("?")[0])
        fields = [b"%b: %b\r\n" % header for header in [*answer.headers, (b"connection", b"close")]]
        self.transport.write(b"".join([begin_of_head(answer.status), *fields, b"\r\n", answer.body]))
