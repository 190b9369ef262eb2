"""One way to serve: health, reflection, message limits, and the cluster secret on internal methods."""

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fairlead.config import ConfigError
from fairlead.errors import Unauthenticated
from fairlead.rpc.address import check_free
from fairlead.rpc.channel import MAX_MESSAGE_BYTES, SECRET_METADATA, SERVER_OPTIONS
from fairlead.rpc.status import to_status

log = logging.getLogger(__name__)
INTERNAL_PREFIX = "/fairlead.v1."
ADMIN_PREFIX = "/fairlead.v1.Admin/"
# The health service's name that says SERVING while the process runs, ready or not: what liveness probes ask.
LIVENESS = "live"
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]]


def is_secret(metadata: Iterable[tuple[str, str | bytes]], secret: str) -> bool:
    """Whether a call carries `secret`; compared in constant time."""
    given = dict(metadata).get(SECRET_METADATA, "")
    return isinstance(given, str) and hmac.compare_digest(given.encode(), secret.encode())


class SecretInterceptor(grpc.aio.ServerInterceptor):
    """Refuses Fairlead methods without the cluster secret, and operators' without theirs; health and reflection stay
    open."""

    def __init__(self, secret: str, admin_secret: str) -> None:
        self._secret = secret
        self._admin_secret = admin_secret

        async def refuse(_request: Any, context: grpc.aio.ServicerContext) -> None:
            message = f"metadata {SECRET_METADATA}: missing or wrong; this call carries the cluster's or admin's secret"
            await context.abort_with_status(to_status(Unauthenticated(message)))

        self._refuse = grpc.unary_unary_rpc_method_handler(refuse)

    async def intercept_service(
        self, continuation: Continuation, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler:
        """Runs once per call; internal calls are few and long, so the cost does not show."""
        if details.method.startswith(INTERNAL_PREFIX):
            needed = self._admin_secret if details.method.startswith(ADMIN_PREFIX) else self._secret
            if not is_secret(details.invocation_metadata, needed):
                return self._refuse
        return await continuation(details)


class Server:
    """A gRPC server with health and reflection. `secret` empty = a public listener, without the secret's check.

    `admin_secret` is what operators' calls carry; empty = the same. With `credentials` the listener speaks TLS, and
    `health_listen`, an address, answers health checks in plain text, for probes that speak none.
    """

    def __init__(
        self,
        listen: str,
        *,
        secret: str = "",
        admin_secret: str = "",
        max_request_bytes: int = MAX_MESSAGE_BYTES,
        credentials: grpc.ServerCredentials | None = None,
        health_listen: str = "",
    ) -> None:
        # Of an option given twice, gRPC takes the first.
        options = [("grpc.max_receive_message_length", max_request_bytes), *SERVER_OPTIONS]
        interceptors = [SecretInterceptor(secret, admin_secret or secret)] if secret else []
        self.grpc = grpc.aio.server(options=options, interceptors=interceptors)
        self._servers = [self.grpc]
        self.port = _bind(self.grpc, "listen", listen, credentials)
        self.health_port: int | None = None
        if health_listen:
            self._servers.append(grpc.aio.server(options=options))
            self.health_port = _bind(self._servers[-1], "health_listen", health_listen, None)
        self._health = health.aio.HealthServicer()
        self._names: list[str] = []

    def add(self, register: Callable[[Any, Any], None], servicer: object, name: str) -> None:
        """Serve `servicer`; `register` is the generated add_…_to_server, `name` the full service name."""
        register(servicer, self.grpc)
        self._names.append(name)

    async def start(self) -> None:
        """Listen; health says NOT_SERVING until `set_ready(True)`."""
        for server in self._servers:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self.grpc)
        await self.set_ready(False)
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await asyncio.gather(*(server.start() for server in self._servers))

    async def set_ready(self, ready: bool) -> None:
        """What probes and load balancers see, for every service and for the server as a whole."""
        for name in ("", *self._names):
            await self.set_health(name, ready)

    async def set_health(self, name: str, healthy: bool) -> None:
        """What the health service says of `name`."""
        kind = health_pb2.HealthCheckResponse
        await self._health.set(name, kind.SERVING if healthy else kind.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Stop accepting at once; cancel what still runs after `grace` seconds."""
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(*(server.stop(grace) for server in self._servers))


def _bind(server: grpc.aio.Server, option: str, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Listen on `address`, which `option` names; returns the port. Raises ConfigError."""
    try:
        # gRPC does not say why it cannot listen, and writes lines of its own to standard error.
        check_free(address)
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except (OSError, UnicodeError, RuntimeError) as error:
        raise ConfigError(f"{option}: cannot listen on {address}: {error}") from error
    return int(port)
