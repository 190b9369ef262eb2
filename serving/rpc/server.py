"""The gRPC server of every service: health, reflection, message limits, and secrets of internal services."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fairlead.rpc.channel import MAX_MESSAGE_BYTES, ping_timeout
from serving.config import ConfigError
from serving.rpc.address import check_free
from serving.rpc.channel import INTERNAL_PING_SECONDS, SERVER_OPTIONS
from serving.rpc.interceptors import ArrivalGate, SecretInterceptor
from serving.rpc.message_body_limiter import SECONDS, MessageBodyLimiter

# The health service answers SERVING for this name while the process runs, ready or not; it is for liveness probes.
LIVENESS = "live"
ARRIVING = 32  # messages that arrive at a time; at the largest request size they take 128 MiB
PATIENCE = 1.0  # seconds; see MessageBodyLimiter


class Server:
    """A gRPC server with health and reflection, which need no secret.

    `bodies` limits the arriving messages of services without a secret; each must arrive within `request_seconds`. With
    `credentials` the listener uses TLS. With `connection_seconds` above 0 a client is asked to connect anew after about
    that time, and calls in progress continue. A client that does not answer a ping within `ping_seconds` is
    disconnected. `health_listen`, an address, answers health checks in plain text for probes that do not support TLS.
    """

    def __init__(
        self,
        listen: str,
        *,
        max_request_bytes: int = MAX_MESSAGE_BYTES,
        request_seconds: float = SECONDS,
        connection_seconds: float = 0.0,
        ping_seconds: float = INTERNAL_PING_SECONDS,
        credentials: grpc.ServerCredentials | None = None,
        health_listen: str = "",
    ) -> None:
        # gRPC uses the first value of an option that is given twice.
        options = [
            ("grpc.max_receive_message_length", max_request_bytes),
            *ping_timeout(ping_seconds),
            *SERVER_OPTIONS,
        ]
        if connection_seconds:
            options.append(("grpc.max_connection_age_ms", math.ceil(connection_seconds * 1000)))
        self.bodies = MessageBodyLimiter(ARRIVING, request_seconds, PATIENCE)
        self._secrets: dict[str, list[str]] = {}
        self._gate = ArrivalGate()
        interceptors = [self._gate, SecretInterceptor(self._secrets)]
        self.grpc = grpc.aio.server(options=options, interceptors=interceptors)
        self._servers = [self.grpc]
        self.port = _bind(self.grpc, "listen", listen, credentials)
        self.health_port: int | None = None
        if health_listen:
            self._servers.append(grpc.aio.server(options=options, interceptors=interceptors))
            self.health_port = _bind(self._servers[-1], "health_listen", health_listen, None)
        self._health = health.aio.HealthServicer()
        self._names: list[str] = []

    def add(self, register: Callable[[Any, Any], None], servicer: object, name: str, *secrets: str) -> None:
        """Serve `servicer`; `register` is the generated add_…_to_server, `name` the full service name.

        Calls must carry one of `secrets`, of which empty ones do not count; without any the service authenticates its
        callers itself.
        """
        register(servicer, self.grpc)
        if accepted := [secret for secret in secrets if secret]:
            self._secrets[name] = accepted
        self._names.append(name)

    async def start(self) -> None:
        """Listen; the health service answers NOT_SERVING until `set_ready(True)`."""
        for server in self._servers:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self.grpc)
        await self.set_ready(False)
        await self._health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
        await asyncio.gather(*(server.start() for server in self._servers))

    async def set_ready(self, ready: bool) -> None:
        """Set the health that probes and load balancers see, for every service and for the whole server."""
        for name in ("", *self._names):
            await self.set_health(name, ready)

    async def set_health(self, name: str, healthy: bool) -> None:
        """Set the answer of the health service for `name`."""
        kind = health_pb2.HealthCheckResponse
        await self._health.set(name, kind.SERVING if healthy else kind.NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Stop accepting calls at once; cancel the calls that still run after `grace` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._gate.close()
        stopping = asyncio.gather(*(server.stop(grace) for server in self._servers))
        self._gate.open()
        await stopping


def _bind(server: grpc.aio.Server, option: str, address: str, credentials: grpc.ServerCredentials | None) -> int:
    """Bind `server` to `address`, the value of `option`, and return the port; raise ConfigError if that fails."""
    try:
        # gRPC gives no reason when it cannot listen, and writes lines of its own to standard error.
        check_free(address)
        address = f"[::]{address}" if address.startswith(":") else address  # gRPC needs a name for every host
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except (OSError, UnicodeError, RuntimeError) as error:
        raise ConfigError(f"{option}: cannot listen on {address}: {error}") from error
    return int(port)
