"""Who may call which method: decided by the metadata alone, before anything of a message is read."""

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc

from fairlead.errors import Unauthenticated
from fairlead.rpc.channel import SECRET_METADATA
from fairlead.rpc.incoming import incoming
from fairlead.rpc.status import to_status

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]
REFUSAL = to_status(
    Unauthenticated(f"metadata {SECRET_METADATA}: missing or wrong; this call carries the cluster's or admin's secret")
)


def is_secret(metadata: Iterable[tuple[str, str | bytes]], secret: str) -> bool:
    """Whether a call carries `secret`; compared in constant time."""
    given = dict(metadata).get(SECRET_METADATA, "")
    return isinstance(given, str) and hmac.compare_digest(given.encode(), secret.encode())


async def _read(context: grpc.aio.ServicerContext) -> Any:
    return await context.read()


async def _refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
    await context.abort_with_status(REFUSAL)


REFUSE = grpc.stream_stream_rpc_method_handler(_refuse)


class Door(grpc.aio.ServerInterceptor):
    """Refuses who does not carry the secret of the service that is called. `secrets`: by the service's full name.

    Services without a secret ask for themselves who calls, or are open to everybody.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets

    async def intercept_service(
        self, continuation: Continuation, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """Runs once per call."""
        handler = await continuation(details)
        if handler is None:
            return None
        secret = self._secrets.get(service_of(details.method))
        if secret is None:
            return handler
        return incoming(handler, _read) if is_secret(details.invocation_metadata, secret) else REFUSE


def service_of(method: str) -> str:
    """The full name of the service in a method's path: /package.Service/Method."""
    return method.rpartition("/")[0].removeprefix("/")
