"""The endpoint pool with a clock: places the requests of all streams."""

import asyncio
import itertools
import time
import uuid
from collections import Counter
from collections.abc import Collection, Sequence

from endpoint_picker.core.endpoint_pool import POOL, EndpointPool, EndpointReport, Pick
from endpoint_picker.core.picker_queue import BACKGROUND
from endpoint_picker.request_body import Prompt
from global_scheduler.core.policies import RouteRequest
from serving.blocks import Link

PLACED = "placed"


class Picker:
    """Places requests in `pool`; the only part of the process that reads a clock.

    The picker does not see the tokens of an answer. Where neither Envoy nor an adapter reports their number, an answer
    with a known length counts one token for four bytes, and a streamed one `output_rate` tokens for each second of its
    duration; none counts more tokens than its request allowed.
    """

    def __init__(self, pool: EndpointPool, output_rate: float) -> None:
        self.pool = pool
        self.outcomes: Counter[str] = Counter()  # requests that were placed, or refused, by reason
        self.outputs: Counter[str] = Counter()  # outputs whose tokens were told, or estimated
        self._output_rate = output_rate
        self._instance = uuid.uuid4().hex[:16]
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[RouteRequest, asyncio.Future[Pick]]] = {}  # by request id

    @property
    def waiting(self) -> int:
        """The requests that wait for room."""
        return len(self._waiting)

    def set_endpoints(self, addresses: Collection[str]) -> None:
        """Make `addresses` the endpoints of the pool; a request that waits for others is refused."""
        self.pool.set_endpoints(addresses, time.monotonic())
        for request, waiting in self._waiting.values():
            if not waiting.done() and not self.pool.has_endpoint(request):
                self.pool.drop(request)
                waiting.set_exception(no_endpoint("no endpoint is left"))
        self._release()

    def observed(self, address: str, report: EndpointReport, placed: int) -> None:
        """Record what an engine reports, which had `placed` requests of the pool before it was asked."""
        self.pool.observed(address, report, placed, time.monotonic())
        self._release()

    def cache_changed(self, address: str, stored: Sequence[Link], evicted: Sequence[int]) -> None:
        """Record the blocks that an endpoint reports as stored, or the digests of those that it evicted, ends first."""
        self.pool.cache_changed(address, stored, evicted)
        self._release()

    async def place(self, client: str, weight: int, prompt: Prompt, subset: Collection[str] | None) -> Pick:
        """Choose an endpoint, of `subset` if that is given, as soon as one has room.

        Raises Refused if there is none, or if too many requests of the client wait.
        """
        request = RouteRequest(
            request_id=f"{self._instance}-{next(self._numbers)}",
            attempt=0,
            client=client,
            model=POOL,
            digests=await prompt.digests(self.pool.block_tokens),
            prompt_tokens=prompt.tokens,
            weight=weight,
            excluded=() if subset is None else self.pool.others(subset),
        )
        try:
            if not self.pool.has_endpoint(request):
                raise no_endpoint("no endpoint is ready" if subset is None else "no endpoint of the subset is ready")
            pick = self.pool.place(request, time.monotonic()) or await self._wait(request)
        except Refused as refused:
            self.outcomes[refused.reason] += 1
            raise
        self.outcomes[PLACED] += 1
        return pick

    async def _wait(self, request: RouteRequest) -> Pick:
        if not self.pool.hold(request):
            client = request.client.removeprefix(BACKGROUND)
            raise Refused(429, "queue-full", f"as many requests of {client!r} wait as may wait of a client")
        waiting: asyncio.Future[Pick] = asyncio.get_running_loop().create_future()
        self._waiting[request.request_id] = request, waiting
        self._release()
        try:
            return await waiting
        except asyncio.CancelledError:
            self.pool.drop(request)
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self.refused(waiting.result())
            raise
        finally:
            del self._waiting[request.request_id]

    def _release(self) -> None:
        """Let requests go on that have waited, while there is room for them."""
        while (pick := self.pool.release(time.monotonic())) is not None:
            _, waiting = self._waiting[pick.request.request_id]
            if waiting.cancelled():
                self.pool.rolled_back(pick)
            else:
                waiting.set_result(pick)

    def refused(self, pick: Pick) -> None:
        """Record that a request was not answered, and give back its charge."""
        self.pool.rolled_back(pick)
        self._release()

    def entered(self, address: str, request: RouteRequest, cached_tokens: int) -> Pick | None:
        """Record a request that another process gave to an endpoint; return None if that is unknown."""
        return self.pool.placed_elsewhere(address, request, cached_tokens, time.monotonic())

    def measured(self, pick: Pick, output_tokens: int) -> None:
        """Record the end of a request of whose output the tokens are known."""
        self.outputs["told"] += 1
        self.pool.completed(pick, output_tokens)
        self._release()

    def waits_outside_engine(self, address: str, requests: int) -> None:
        """Record how many requests that have entered wait beside the engine."""
        self.pool.waits_outside_engine(address, requests)
        self._release()

    def served(self, pick: Pick, address: str) -> float:
        """Record that an answer begins; return the time, in seconds of the clock."""
        now = time.monotonic()
        self.pool.answered_by(pick, address, now)
        self._release()
        return now

    def ended(self, pick: Pick, began: float, announced: int | None, most_output: int | None) -> None:
        """Record the end of an answer that `began` then, announced so many bytes, and might have so many tokens."""
        self.outputs["estimated"] += 1
        tokens = (time.monotonic() - began) * self._output_rate if announced is None else announced / 4
        self.pool.completed(pick, round(tokens if most_output is None else min(tokens, most_output)))
        self._release()


class Refused(Exception):
    """A request is answered with the HTTP `status` and the word `reason`, in place of being sent to an engine."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


def no_endpoint(message: str) -> Refused:
    """Return the refusal of a request for which there is no endpoint."""
    return Refused(503, "no-endpoint", message)
