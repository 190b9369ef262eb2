"""The ends of answers and their tokens, which Envoy reports by its rate limit protocol.

A picker never sees answers. Envoy's filters read what they say of their tokens, and its rate limit filter can tell that
to a service when a stream has ended. Nothing is limited here.
"""

from collections.abc import Mapping
from typing import Any

from endpoint_picker.open_request import OpenRequest
from serving.envoy import ratelimit_pb2, ratelimit_pb2_grpc

NAME = "envoy.service.ratelimit.v3.RateLimitService"
KEY = "pick"  # of the descriptor's entry whose value is the picker's id of the request
OK = ratelimit_pb2.RateLimitResponse(overall_code=ratelimit_pb2.RateLimitResponse.OK)


class UsageReports(ratelimit_pb2_grpc.RateLimitServiceServicer):
    """Tells the requests that were `placed`, by their ids, that they are over, and the tokens of their outputs."""

    def __init__(self, placed: Mapping[str, OpenRequest]) -> None:
        self._by_id = placed

    async def ShouldRateLimit(
        self, request: ratelimit_pb2.RateLimitRequest, context: Any
    ) -> ratelimit_pb2.RateLimitResponse:
        """Take note of each descriptor; its hits are tokens, or 0 where Envoy has not learned them."""
        for descriptor in request.descriptors:
            named = next((entry.value for entry in descriptor.entries if entry.key == KEY), b"")
            placed = self._by_id.get(named.decode(errors="replace"))
            if placed is not None:
                placed.done(descriptor.hits_addend.value)
        return OK
