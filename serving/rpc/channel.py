"""Channels between services: with mutual TLS among members, and with the cluster secret."""

import grpc

from fairlead.rpc import channel
from fairlead.rpc.channel import CHANNEL_OPTIONS, OPTIONS
from serving.rpc.mutual_tls import MEMBER, MutualTls

SECRET_METADATA = "x-fairlead-secret"
# What an application may send: a long document in one prompt, not a file server.
MAX_REQUEST_BYTES = 4 * 1024 * 1024

SERVER_OPTIONS: list[tuple[str, int]] = [
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    # Calls that wait for the event loop: gRPC drops some at random above the first limit and all above the second, and
    # their callers see CANCELLED. 10,000 of them take 110 MB; by default some are dropped from 1,000 on.
    ("grpc.server.max_pending_requests", 10_000),
    ("grpc.server.max_pending_requests_hard_limit", 10_000),
    # A connection may make a tenth of them wait. A client makes its further calls wait on its own side.
    ("grpc.max_concurrent_streams", 1_000),
    # What may come of a message before it is read. Without the first, gRPC raises the second for fast connections, to
    # hundreds of megabytes; a message that is being read may come as a whole.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 16 * 1024),
]
MEMBER_OPTIONS: list[tuple[str, int | str]] = [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", MEMBER)]


def open_channel(address: str, mutual_tls: MutualTls | None = None) -> grpc.aio.Channel:
    """To a service: among members with mutual TLS, otherwise as applications reach a gateway."""
    if mutual_tls is None:
        return channel.open_channel(address)
    return grpc.aio.secure_channel(address, mutual_tls.channel(), options=MEMBER_OPTIONS)


def open_sync_channel(address: str, mutual_tls: MutualTls | None = None) -> grpc.Channel:
    """`open_channel`, blocking."""
    if mutual_tls is None:
        return channel.open_sync_channel(address)
    return grpc.secure_channel(address, mutual_tls.channel(), options=MEMBER_OPTIONS)


def secret_metadata(secret: str) -> tuple[tuple[str, str], ...]:
    """The metadata that every internal call carries."""
    return ((SECRET_METADATA, secret),)
