"""Channels between services: mutual TLS if it is configured, and the metadata with the cluster secret."""

from collections.abc import Sequence

import grpc

from fairlead.rpc import channel
from fairlead.rpc.channel import CHANNEL_OPTIONS, OPTIONS, ping_timeout
from serving.rpc.mutual_tls import INTERNAL_NAME, MutualTls

SECRET_METADATA = "x-fairlead-secret"
# Largest request of an application: room for a long document in one prompt.
MAX_REQUEST_BYTES = 4 * 1024 * 1024

# Between services. A call whose connection is lost is placed again, so a peer that stopped is given up after 6 seconds.
INTERNAL_PING_SECONDS = 3.0

MAX_CONNECTIONS = 8192  # of a server; further ones are closed at once

SERVER_OPTIONS: list[tuple[str, int]] = [
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    # Clients may ping without calls, too. Otherwise gRPC ends their connections with "too_many_pings".
    ("grpc.keepalive_permit_without_calls", 1),
    # Calls that wait for the event loop: gRPC drops some at random above the first limit and all above the second, and
    # their callers receive CANCELLED. 10,000 waiting calls take 110 MB; by default some are dropped from 1,000 on.
    ("grpc.server.max_pending_requests", 10_000),
    ("grpc.server.max_pending_requests_hard_limit", 10_000),
    # Seconds that they wait at most, where their own deadlines allow more; by default gRPC drops them after 30.
    ("grpc.server_max_unrequested_time_in_server", 300),
    # One connection may have a tenth of them. Its further calls wait in the client.
    ("grpc.max_concurrent_streams", 1_000),
    # Strangers can open connections: each takes some 20 kB, 40 kB with TLS. A handshake has a few round trips.
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", 20_000),
    # Bytes of a message that gRPC accepts before the message is read. Without the first option gRPC raises the second
    # to hundreds of megabytes for fast connections. A message that is being read is accepted whole.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 16 * 1024),
]
INTERNAL_OPTIONS = ping_timeout(INTERNAL_PING_SECONDS)
TLS_OPTIONS: list[tuple[str, int | str]] = [
    *INTERNAL_OPTIONS,
    *CHANNEL_OPTIONS,
    ("grpc.ssl_target_name_override", INTERNAL_NAME),
]


def open_channel(
    address: str, mutual_tls: MutualTls | None = None, options: Sequence[tuple[str, int | str]] = ()
) -> grpc.aio.Channel:
    """Open a channel to a service: with `mutual_tls` if it is given, otherwise as applications do to a gateway.

    `options` of gRPC are used in place of those that all channels have.
    """
    if mutual_tls is None:
        return channel.open_channel(address, [*options, *INTERNAL_OPTIONS])
    return grpc.aio.secure_channel(address, mutual_tls.channel(), options=[*options, *TLS_OPTIONS])


def open_sync_channel(address: str, mutual_tls: MutualTls | None = None) -> grpc.Channel:
    """Open a blocking channel; see `open_channel`."""
    if mutual_tls is None:
        return channel.open_sync_channel(address)
    return grpc.secure_channel(address, mutual_tls.channel(), options=TLS_OPTIONS)


def secret_metadata(secret: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that every internal call carries."""
    return ((SECRET_METADATA, secret),)
