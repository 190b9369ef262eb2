"""The backend over an engine that serves: what waits, waits here; what fits, goes to the engine."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from engine_adapter.engine_api import EngineAway, EngineInfo, EngineRefused, OutputPiece
from engine_adapter.engine_claims import OutputClaims, check_counts, check_info
from engine_adapter.output_stream import OutputStream
from engine_adapter.vllm_api import VllmApi
from fairlead.errors import InvalidRequest, Unavailable
from fairlead.outcomes import Outcome
from local_worker.core.events import WorkerUpdate
from local_worker.core.external import ExternalBatch
from local_worker.core.machine import (
    AbortRequest,
    RequestsAdmitted,
    RequestsAdvanced,
    RequestsFailed,
    SubmitRequest,
    TimePassed,
    WorkerMachine,
)
from local_worker.core.request import Request
from local_worker.prompt_encoder import PromptEncoder
from serving.constraint import Constraint
from serving.kv_events.core.block_rehash import BlockRehash
from serving.kv_events.messages import AllRemoved, KvEvent, RemovedBlocks, StoredBlocks

if TYPE_CHECKING:  # pyzmq is installed only where events are followed
    from serving.kv_events.follower import KvFollower

log = logging.getLogger(__name__)
PROBE_SECONDS = 1.0
# It is given two functions: the first takes events, the second forgets all blocks.
FollowerFactory = Callable[[Callable[[list[KvEvent]], None], Callable[[], None]], "KvFollower"]


class EngineChanged(Exception):
    """The engine came back as another one: the adapter has to start again."""


class AdapterBackend:
    """A backend without threads: every method belongs to the event loop. See Backend.

    While the engine is away, requests are refused as UNAVAILABLE, so that gateways place them elsewhere, and events say
    that the worker is not healthy. `died` is called if the engine comes back as another one.
    """

    def __init__(
        self,
        api: VllmApi,
        info: EngineInfo,
        make_follower: FollowerFactory | None,
        prompts: PromptEncoder,
        batch: ExternalBatch,
        deliver: Callable[[WorkerUpdate], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self._api = api
        self._info = info
        self.prompts = prompts
        self._batch = batch
        self._deliver = deliver
        self._died = died
        self._machine = WorkerMachine(batch.queue)
        self._outputs: dict[Request, OutputStream] = {}  # of every request that has not ended
        self._streams: dict[Request, asyncio.Task[None]] = {}  # of those at the engine
        self._blocks = BlockRehash(info.block_tokens, lambda scope: prompts.chain(b"", info.model, scope, 0).seed)
        self._follower = make_follower(self._follow, self._forget_blocks) if make_follower else None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_here = True
        self._stream_failed = asyncio.Event()  # whether a stream has failed since the engine last answered
        self._turn_due: asyncio.Handle | None = None
        self._deadline_due: asyncio.TimerHandle | None = None
        self._heard_at = 0.0  # monotonic time of the engine's latest sign of life

    def start(self) -> None:
        self._start_task(self._watch())
        if self._follower is not None:
            self._start_task(self._follower.run())
        self._soon()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` as long as the backend, which dies of its errors."""
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._died(error)

    def stop(self) -> None:
        for task in (*self._tasks, *self._streams.values()):
            task.cancel()
        for due in (self._turn_due, self._deadline_due):
            if due is not None:
                due.cancel()

    def is_known(self, constraint: Constraint) -> bool:
        """See Backend. The engine compiles the constraint, and refuses the request if it cannot."""
        return True

    async def check(self, constraint: Constraint) -> None:
        if constraint.kind not in self._info.constraints:
            raise InvalidRequest(f"is not supported by the engine, {self._info.engine}", constraint.field)

    def submit(self, request: Request) -> None:
        if not self._is_here:
            raise Unavailable("the engine is away")
        if request.sampling.constraint is not None and request.seed_position:
            raise Unavailable("a constrained output cannot go on here: the engine would begin the constraint anew")
        if request.sampling.prompt_logprobs is not None:
            raise InvalidRequest("is not supported by a worker beside an engine", "sampling.prompt_logprobs")
        output = OutputStream(self._api, request, self._info.model)
        request.text = output.text
        self._machine.handle(SubmitRequest(request), time.monotonic())
        if request.ended_at is None:  # otherwise it was refused
            self._outputs[request] = output
        self._soon()

    def abort(self, request: Request) -> None:
        self._machine.handle(AbortRequest(request), time.monotonic())
        self._soon()

    def flush_cache(self) -> None:
        """See Backend; vLLM offers it only in its development mode."""
        self._tasks.append(asyncio.create_task(self._reset_prefix_cache()))

    @property
    def stepping_since(self) -> float | None:
        """The time at which the engine last sent something, while it has requests of ours."""
        return self._heard_at if self._batch.queue.running else None

    def _soon(self) -> None:
        """Take a turn once everything that has arrived by now is known."""
        if self._turn_due is None:
            self._turn_due = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_due = None
        now = time.monotonic()
        self._machine.handle(TimePassed(), now)
        if self._is_here and not self._stream_failed.is_set():
            self._hand_over(now)
        for request in self._batch.queue.take_left():
            self._streams.pop(request).cancel()
        update = self._machine.take_update(now, is_healthy=self._is_here)
        update.slower = self._blocks.take_slower()
        for ended in update.events.ended:
            self._outputs.pop(ended.request, None)
        self._expect_deadline(now)
        self._deliver(update)

    def _hand_over(self, now: float) -> None:
        if not self._batch.queue.running:
            self._heard_at = now
        requests = self._batch.hand_over(now)
        self._machine.handle(RequestsAdmitted(requests), now)
        for request in requests:
            self._streams[request] = asyncio.create_task(self._compute(request, self._outputs[request]))

    def _expect_deadline(self, now: float) -> None:
        if self._deadline_due is not None:
            self._deadline_due.cancel()
        deadline = self._machine.next_deadline()
        loop = asyncio.get_running_loop()
        self._deadline_due = None if deadline is None else loop.call_later(max(0.0, deadline - now), self._soon)

    async def _compute(self, request: Request, output: OutputStream) -> None:
        """Let the engine compute `request`, until it ends or the task is cancelled because it left."""
        heard_at, claims = 0.0, OutputClaims(request.sampling.max_tokens)
        try:
            await self._compute_links(request)
            async for piece in output.pieces():
                claims.check(piece)
                now = time.monotonic()
                self._receive(request, piece, heard_at, now)
                heard_at = now
        except EngineRefused as error:
            self._end(request, Outcome.REJECTED_INVALID, f"the engine refuses the request: {error}")
        except EngineAway as error:
            self._stream_failed.set()
            self._end(request, Outcome.UNAVAILABLE, str(error))
        except Exception:
            log.exception("an output could not be read")
            self._end(request, Outcome.INTERNAL, "the engine's output could not be read")

    async def _compute_links(self, request: Request) -> None:
        """Let the engine compute the prompt of `request` link by link, as far as the batch says."""
        while (stop := self._batch.queue.next_link(request)) is not None:
            await self._api.compute_prefix(request, stop, self._info.model)
            self._heard_at = time.monotonic()
            self._batch.queue.linked(request, stop)
            self._soon()

    def _receive(self, request: Request, piece: OutputPiece, heard_at: float, now: float) -> None:
        if request.output_tokens and piece.tokens:
            self._machine.measured_step(now - heard_at)
        if piece.tokens or piece.finish is not None:
            self._heard_at = now
            advances = self._batch.received(request, piece.tokens, piece.finish, piece.logprobs)
            self._machine.handle(RequestsAdvanced(advances), now)
            self._soon()

    def _end(self, request: Request, outcome: Outcome, message: str) -> None:
        if request.ended_at is None:  # otherwise it has been aborted meanwhile
            self._machine.handle(RequestsFailed([request], outcome, message), time.monotonic())
            self._soon()

    async def _watch(self) -> None:
        """Ask the engine once a second, and at once when a stream has failed, whether it can compute."""
        while True:
            try:
                await (self._observe() if self._is_here else self._return())
            except EngineAway as error:
                self._lose(str(error))
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._stream_failed.wait()
            except TimeoutError:
                continue

    async def _observe(self) -> None:
        before = len(self._batch.queue.running)
        counts = await self._api.counts()
        check_counts(counts)
        self._stream_failed.clear()
        cache = self._batch.queue.cache
        # Requests of ours come and go while the engine counts: what may be ours is not another's.
        others = max(0, counts.requests - max(before, len(self._batch.queue.running)))
        pages = max(0, int(min(counts.pages_used, 1.0) * cache.pages) - cache.tokens_used // cache.block_tokens)
        self._batch.observe_others(others, pages if others else 0)
        if self._batch.queue.waiting:
            self._soon()

    async def _return(self) -> None:
        info = await self._api.describe()
        check_info(info)
        if info != self._info:
            raise EngineChanged(f"the engine was {self._info} and is {info}")
        log.info("the engine is back")
        self._is_here = True
        self._stream_failed.clear()
        self._soon()

    def _lose(self, reason: str) -> None:
        """End every request: what the engine has computed of it goes on elsewhere. Say again that nothing can run."""
        if self._is_here:
            log.warning("the engine is away", extra={"error": reason})
        self._is_here = False
        self._stream_failed.clear()
        requests = [*self._batch.queue.running, *self._batch.queue.waiting]
        failed = RequestsFailed(requests, Outcome.UNAVAILABLE, f"the engine is away: {reason}")
        self._machine.handle(failed, time.monotonic())
        if self._follower is not None:
            self._follower.restart()
        self._soon()

    def _follow(self, events: list[KvEvent]) -> None:
        cache = self._batch.queue.cache
        for event in events:
            match event:
                case StoredBlocks():
                    cache.cached(self._blocks.stored(*event))
                case RemovedBlocks():
                    cache.evicted(self._blocks.removed(*event))
                case AllRemoved():
                    cache.evicted(self._blocks.cleared())
        self._soon()

    def _forget_blocks(self) -> None:
        self._follow([AllRemoved()])

    async def _reset_prefix_cache(self) -> None:
        try:
            await self._api.reset_prefix_cache()
        except (EngineAway, EngineRefused) as error:
            log.warning("the engine did not flush its prefix cache", extra={"error": str(error)})
