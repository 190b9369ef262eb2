"""Tokens for callers who want nothing generated: of a prompt, and back to its text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlead.token_ids import unpack_ids
from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from gateway.admission import Receive
from gateway.core.open_call_limiter import OpenCallLimiter
from gateway.credentials import Credentials
from gateway.tenants import CallerIdentity
from gateway.upstream.cluster import Cluster
from gateway.validation import check_prompt


class Tokenization:
    """Tokenize for whoever `identify` knows. While that lasts it counts among the client's open calls.

    All methods raise Unauthenticated or PermissionDenied before a request is received, then what `receive` raises,
    InvalidRequest, TooLong, ClientLimit, QueueFull and Unavailable.
    """

    def __init__(
        self, cluster: Cluster, identify: Callable[[Credentials], CallerIdentity], open_calls: OpenCallLimiter
    ) -> None:
        self._cluster = cluster
        self._identify = identify
        self._open_calls = open_calls

    async def encode(
        self, receive: Receive[worker_pb2.EncodeRequest], credentials: Credentials
    ) -> tuple[list[int], scheduler_pb2.ModelInfo]:
        """Return the token ids of the prompt that is received, and the model whose they are."""
        client = self._identify(credentials).client
        request = await receive()
        model = self._cluster.members.resolve(request.model)
        check_prompt(request.prompt, model)
        request.client, request.model = client, model.name
        with self._counted(client):
            return unpack_ids((await self._cluster.encode(request, None)).token_ids), model

    async def decode(self, receive: Receive[worker_pb2.DecodeRequest], credentials: Credentials) -> str:
        """Return the text of the tokens that are received."""
        client = self._identify(credentials).client
        request = await receive()
        model = self._cluster.members.resolve(request.model)
        check_prompt(common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=request.token_ids)), model)
        request.client, request.model = client, model.name
        with self._counted(client):
            return (await self._cluster.decode(request)).text

    @contextmanager
    def _counted(self, client: str) -> Iterator[None]:
        self._open_calls.open(client, protected=False)
        try:
            yield
        finally:
            self._open_calls.close(client)
