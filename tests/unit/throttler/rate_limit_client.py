"""A caller of the rate limit service, as Envoy calls it, without Envoy."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from serving.envoy import ratelimit_pb2, ratelimit_pb2_grpc
from tests.services import Process

OK = ratelimit_pb2.RateLimitResponse.OK
OVER_LIMIT = ratelimit_pb2.RateLimitResponse.OVER_LIMIT


class RateLimitClient:
    """Asks one service; an answer that is an error raises grpc.RpcError."""

    def __init__(self, channel: grpc.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._stub = ratelimit_pb2_grpc.RateLimitServiceStub(channel)
        self._metadata = metadata

    def ask(self, *descriptors: dict[str, str], domain: str = "fairlead") -> ratelimit_pb2.RateLimitResponse:
        """Return the answer about a call with these descriptors."""
        return self.send(
            ratelimit_pb2.RateLimitRequest(domain=domain, descriptors=[descriptor(each) for each in descriptors])
        )

    def send(self, request: ratelimit_pb2.RateLimitRequest) -> ratelimit_pb2.RateLimitResponse:
        """Return the answer to `request`."""
        answer: ratelimit_pb2.RateLimitResponse = self._stub.ShouldRateLimit(
            request, metadata=self._metadata, timeout=60, wait_for_ready=True
        )
        return answer

    def book(self, input_tokens: int, output_tokens: int, **entries: str) -> int:
        """Tell the end of a stream as Envoy does; return the tokens that remain of its user's limit."""
        parts = [
            descriptor({**entries, "book": kind}, hits)
            for kind, hits in (("input", input_tokens), ("output", output_tokens))
        ]
        answer = self.send(ratelimit_pb2.RateLimitRequest(domain="fairlead", descriptors=parts))
        assert answer.overall_code == OK
        return answer.statuses[1].limit_remaining

    def admits(self, **entries: str) -> bool:
        """Return whether a call with one descriptor of these entries is admitted."""
        return self.ask(entries).overall_code == OK


def descriptor(entries: dict[str, str], hits: int = 0) -> ratelimit_pb2.RateLimitDescriptor:
    """Return the descriptor with these entries, and with `hits` as its hits_addend unless they are 0."""
    made = ratelimit_pb2.RateLimitDescriptor()
    if hits:
        made.hits_addend.value = hits
    for key, value in entries.items():
        made.entries.add(key=key, value=value.encode(errors="surrogateescape"))
    return made


@contextmanager
def client_of(service: Process, *metadata: tuple[str, str]) -> Iterator[RateLimitClient]:
    """Yield a client of `service`, whose calls carry `metadata`."""
    with grpc.insecure_channel(service.address) as channel:
        yield RateLimitClient(channel, metadata)


def response_headers(answer: ratelimit_pb2.RateLimitResponse) -> dict[str, str]:
    """Return the headers for the caller."""
    return {header.key: header.value for header in answer.response_headers_to_add}
