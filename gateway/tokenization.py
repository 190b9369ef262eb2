"""Tokenization and detokenization for callers that need no generated output."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from fairlead.token_ids import unpack_ids
from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from gateway.call import Receive
from gateway.core.client_limits import HeldBytesLimiter, OpenCallLimiter
from gateway.tenants import CallerIdentity, Credentials
from gateway.upstream.cluster import Cluster
from gateway.validation import check_prompt


class Tokenization:
    """Tokenization for the callers that `identify` authenticates; each use counts as an open call of its client.

    All methods raise Unauthenticated or PermissionDenied before they receive a request. Afterwards they raise the
    errors of `receive`, InvalidRequest, TooLong, ClientLimit, QueueFull or Unavailable.
    """

    def __init__(
        self,
        cluster: Cluster,
        identify: Callable[[Credentials], CallerIdentity],
        open_calls: OpenCallLimiter,
        waiting_prompts: HeldBytesLimiter,
    ) -> None:
        self._cluster = cluster
        self._identify = identify
        self._open_calls = open_calls
        self._waiting_prompts = waiting_prompts

    async def encode(
        self, receive: Receive[worker_pb2.EncodeRequest], credentials: Credentials
    ) -> tuple[list[int], scheduler_pb2.ModelInfo]:
        """Receive a prompt; return its token ids, and the model whose tokenizer made them."""
        client = self._identify(credentials).client
        request = await receive()
        model = self._cluster.members.resolve(request.model)
        check_prompt(request.prompt, model)
        request.client, request.model = client, model.name
        with self._counted(client, request.ByteSize()):
            encoded = await self._cluster.encode(request, None)
            return unpack_ids(encoded.token_ids), model

    async def decode(self, receive: Receive[worker_pb2.DecodeRequest], credentials: Credentials) -> str:
        """Receive token ids; return their text."""
        client = self._identify(credentials).client
        request = await receive()
        model = self._cluster.members.resolve(request.model)
        check_prompt(common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=request.token_ids)), model)
        request.client, request.model = client, model.name
        with self._counted(client, request.ByteSize()):
            return (await self._cluster.decode(request)).text

    @contextmanager
    def _counted(self, client: str, size: int) -> Iterator[None]:
        """Count an open call and its `size` in bytes; raise ClientLimit or QueueFull."""
        with ExitStack() as counted:
            self._open_calls.open(client, protected=False)
            counted.callback(self._open_calls.close, client)
            self._waiting_prompts.add(client, size)
            counted.callback(self._waiting_prompts.remove, client, size)
            yield
