"""Envoy's rate limit service: the throttler's decision about each descriptor of a call.

The end of a call is not told here, so each admitted call counts as ended with the answer. Only what it used of limits
in tokens is told later, by another request at the end of its stream.
"""

import base64
import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc

from fairlead.errors import InvalidRequest
from fairlead.rpc.status import to_status
from serving import interaction_header
from serving.envoy import ratelimit_pb2
from serving.names import MAX_NAME
from serving.wire import parsed
from throttler.core.budgets import HEADER
from throttler.core.decider import Arrival, Permit
from throttler.core.profiles import Profiles
from throttler.core.throttle import Rejected, tightest
from throttler.core.windows import LimitStatus
from throttler.descriptors import Booking, InvalidValue, Question, read
from throttler.metrics import RateLimitMetrics
from throttler.open_reservations import OpenReservations, ReservationKey
from throttler.throttler import Throttler

log = logging.getLogger(__name__)
NAME = "envoy.service.ratelimit.v3.RateLimitService"
MOST_COMPLAINTS = 100
OK, OVER_LIMIT = ratelimit_pb2.RateLimitResponse.OK, ratelimit_pb2.RateLimitResponse.OVER_LIMIT
MINUTE = ratelimit_pb2.RateLimitResponse.RateLimit.MINUTE
TOKEN = "x-fairlead-interaction-token"  # carries the token of an interaction's next call to the upstream
REASON = "x-fairlead-reason"
RETRY_AFTER = "retry-after"
ADMITTED = "admitted"
SETTLED = "settled"  # the call had reserved
BOOKED = "booked"  # the call had not reserved at this instance
INVALID = "invalid"
MISCONFIGURED = "misconfigured"


class Refusal(NamedTuple):
    """Why a descriptor is over its limit; without `limit` it is refused whatever the limits are."""

    message: str
    retry_after: float = 0.0  # seconds
    limit: int = 0


class RateLimitService:
    """Decides about calls of `domains`, and about calls of other domains as `admits_unknown_domains` says.

    `overloaded` returns whether the pool of a model is overloaded, or any pool for an empty name.
    """

    def __init__(
        self,
        throttler: Throttler,
        profiles: Profiles,
        overloaded: Callable[[str], bool],
        metrics: RateLimitMetrics,
        *,
        domains: frozenset[str],
        admits_unknown_domains: bool,
    ) -> None:
        self._throttler = throttler
        self._profiles = profiles
        self._overloaded = overloaded
        self._metrics = metrics
        self._domains = domains
        self._admits_unknown_domains = admits_unknown_domains
        self._complaints: set[str] = set()  # that are logged; never iterated: its order is not deterministic
        self._reservations = OpenReservations()

    def configure(self, profiles: Profiles) -> None:
        """Apply new profiles from now on."""
        self._profiles = profiles

    async def ShouldRateLimit(
        self, request: bytes, context: grpc.aio.ServicerContext
    ) -> ratelimit_pb2.RateLimitResponse:
        """Answer one request; it ends with INVALID_ARGUMENT where Envoy's configuration is wrong."""
        try:
            return await self._answer(parsed(ratelimit_pb2.RateLimitRequest.FromString, request))
        except InvalidRequest as error:
            problem = error
        self._complain(problem.message)
        await context.abort_with_status(to_status(problem))
        raise AssertionError("abort_with_status raises")

    async def _answer(self, request: ratelimit_pb2.RateLimitRequest) -> ratelimit_pb2.RateLimitResponse:
        if request.domain not in self._domains:
            if self._admits_unknown_domains:
                return ratelimit_pb2.RateLimitResponse(overall_code=OK)
            known, given = ", ".join(sorted(self._domains)), request.domain[:MAX_NAME]
            refusal = Refusal(f"domain: must be one of {known}, got {given!r}")
            self._complain(refusal.message)
            return _refused([_refused_status(refusal) for _ in request.descriptors], [refusal])
        if not request.descriptors:
            raise InvalidRequest("must not be empty", "descriptors")
        questions = [self._read(request, number) for number in range(len(request.descriptors))]
        self._book([each for each in questions if isinstance(each, Booking)])
        results = await self._decide_all(questions)
        refusals = [each for each in results if isinstance(each, Refusal)]
        permits = [each for each in results if isinstance(each, Permit)]
        # Statuses are made of what every descriptor of the call has left of its limit.
        statuses = [self._status(each) for each in results]
        for permit in permits:
            if refusals:
                self._throttler.withdrawn(permit)
            else:
                self._throttler.ended(permit)
        if refusals:
            return _refused(statuses, refusals)
        for question, result in zip(questions, results, strict=True):
            if isinstance(question, Question) and isinstance(result, Permit):
                self._reservations.add((question.caller, question.request), result.reservation)
        response = _admitted(statuses, permits)
        for permit in permits:
            for warning in self._throttler.warnings(permit.arrival.caller, permit.key):
                response.response_headers_to_add.add(key=HEADER, value=warning)
        in_tokens = (self._throttler.token_status(permit.arrival.caller) for permit in permits)
        _add_token_headers(response, tightest(status for status in in_tokens if status is not None))
        return response

    def _book(self, bookings: Sequence[Booking]) -> None:
        """Settle what calls reserved with what they used; of calls that reserved nothing here, book all."""
        ended: dict[ReservationKey, list[Booking]] = {}
        for booking in bookings:
            ended.setdefault((booking.caller, booking.request), []).append(booking)
        for key, parts in ended.items():
            prompt_tokens, output_tokens = sum(part.input for part in parts), sum(part.output for part in parts)
            if not (prompt_tokens or output_tokens):
                continue  # Envoy has not learned it: what was reserved stays booked
            cached_tokens = min(prompt_tokens, sum(part.cached for part in parts))
            used = self._throttler.budgets.measured(
                prompt_tokens, output_tokens, cached_tokens=cached_tokens, model=parts[0].model
            )
            caller = key[0]
            reservation = self._reservations.take(key)
            if reservation is not None:
                self._throttler.settle(reservation, used)
            else:
                self._throttler.book(caller, used)
            self._metrics.decided(caller.app, BOOKED if reservation is None else SETTLED)

    def _read(self, request: ratelimit_pb2.RateLimitRequest, number: int) -> Question | Booking | Refusal:
        path = f"descriptors[{number}]"
        try:
            return read(request.descriptors[number], path, self._profiles.apps, request.hits_addend)
        except InvalidValue as error:
            self._metrics.decided("", INVALID)
            return Refusal(f"{path}: {error}")

    async def _decide_all(self, questions: Sequence[Question | Booking | Refusal]) -> list[Permit | Booking | Refusal]:
        """Return the results in the order of the questions; if Envoy gives up meanwhile, withdraw what was admitted."""
        results: list[Permit | Booking | Refusal] = []
        try:
            for question in questions:
                result = await self._decide(question) if isinstance(question, Question) else question
                results.append(result)
        except BaseException:
            for permit in results:
                if isinstance(permit, Permit):
                    self._throttler.withdrawn(permit)
            raise
        return results

    async def _decide(self, question: Question) -> Permit | Refusal:
        caller, interaction = question.caller, question.interaction
        arrival = Arrival(
            caller,
            interaction.id,
            interaction.token,
            last=interaction.end,
            overloaded=self._overloaded(question.model),
            prompt_tokens=question.prompt_tokens,
            stage=question.stage,
            model=question.model,
            background=question.background,
        )
        decision = await self._throttler.decide(arrival)
        if isinstance(decision, Rejected):
            self._metrics.decided(caller.app, decision.outcome.name)
            return Refusal(decision.message, decision.retry_after, decision.limit)
        self._metrics.decided(caller.app, ADMITTED)
        return decision

    def _status(self, result: Permit | Booking | Refusal) -> ratelimit_pb2.RateLimitResponse.DescriptorStatus:
        """Return what is left of the tightest limit: in calls, or in tokens at the end of a stream."""
        if isinstance(result, Refusal):
            return _refused_status(result)
        if isinstance(result, Booking):
            return _limit(OK, self._throttler.token_status(result.caller))
        return _limit(OK, self._throttler.limit_status(result.arrival.caller))

    def _complain(self, message: str) -> None:
        """Count a mistake in Envoy's configuration, and log it once; at most MOST_COMPLAINTS are logged."""
        self._metrics.decided("", MISCONFIGURED)
        if message not in self._complaints and len(self._complaints) < MOST_COMPLAINTS:
            self._complaints.add(message)
            log.error("Envoy's rate limit configuration is wrong", extra={"reason": message})


def _add_token_headers(response: ratelimit_pb2.RateLimitResponse, status: LimitStatus | None) -> None:
    """Add the headers by which clients of OpenAI's API see what is left of their limit in tokens."""
    if status is not None:
        for figure, value in (
            ("limit", status.limit),
            ("remaining", status.remaining),
            ("reset", f"{status.reset:.3f}s"),
        ):
            response.response_headers_to_add.add(key=f"x-ratelimit-{figure}-tokens", value=str(value))


def add_rate_limits_to_server(service: RateLimitService, server: grpc.aio.Server) -> None:
    """Register the service like the generated function, but with requests as bytes, which it parses itself.

    gRPC would answer bytes that are not a message with UNKNOWN, and log a traceback.
    """
    handler = grpc.unary_unary_rpc_method_handler(
        service.ShouldRateLimit,
        request_deserializer=bytes,
        response_serializer=ratelimit_pb2.RateLimitResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, {"ShouldRateLimit": handler}),))


def _limit(code: int, limit: LimitStatus | None) -> ratelimit_pb2.RateLimitResponse.DescriptorStatus:
    status = ratelimit_pb2.RateLimitResponse.DescriptorStatus(code=code)  # type: ignore[arg-type]
    if limit is not None:
        status.current_limit.requests_per_unit, status.current_limit.unit = limit.limit, MINUTE
        status.limit_remaining = limit.remaining
        status.duration_until_reset.FromNanoseconds(round(limit.reset * 1e9))
    return status


def _refused_status(refusal: Refusal) -> ratelimit_pb2.RateLimitResponse.DescriptorStatus:
    return _limit(OVER_LIMIT, LimitStatus(refusal.limit, 0, refusal.retry_after) if refusal.limit else None)


def _admitted(
    statuses: Sequence[ratelimit_pb2.RateLimitResponse.DescriptorStatus], permits: Sequence[Permit]
) -> ratelimit_pb2.RateLimitResponse:
    response = ratelimit_pb2.RateLimitResponse(overall_code=OK, statuses=statuses)
    for permit in permits:
        if permit.key is not None:
            name, value = interaction_header.header_of(permit.key.id, permit.token)
            response.response_headers_to_add.add(key=name.decode(), value=value.decode())
            token = base64.urlsafe_b64encode(permit.token).rstrip(b"=").decode()
            response.request_headers_to_add.add(key=TOKEN, value=token)
    return response


def _refused(
    statuses: Sequence[ratelimit_pb2.RateLimitResponse.DescriptorStatus], refusals: Sequence[Refusal]
) -> ratelimit_pb2.RateLimitResponse:
    reason = "; ".join(dict.fromkeys(refusal.message for refusal in refusals))
    response = ratelimit_pb2.RateLimitResponse(overall_code=OVER_LIMIT, statuses=statuses, raw_body=reason.encode())
    response.response_headers_to_add.add(key=REASON, value=reason.encode("ascii", "backslashreplace").decode())
    if wait := max(refusal.retry_after for refusal in refusals):
        response.response_headers_to_add.add(key=RETRY_AFTER, value=str(math.ceil(wait)))
    return response
