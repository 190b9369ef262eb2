"""Channels between services, and the options both ends share."""

import grpc

from fairlead.rpc.mutual import MEMBER, Membership

TLS_SCHEME = "https://"
SECRET_METADATA = "x-fairlead-secret"
# A 128k-token prompt is half a megabyte packed, a chat of it several times that; a step's tokens for
# hundreds of sequences are tens of kilobytes. 16 MiB bounds what one message can make a process allocate.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
# What an application may send: a long document in one prompt, not a file server.
MAX_REQUEST_BYTES = 4 * 1024 * 1024

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A cut network path, or a process that stands still, is noticed within six seconds, not at TCP's leisure.
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),  # of pings that measure bandwidth, during which no keepalive is sent
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
]
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
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *OPTIONS,
    # Own connection per channel, so that a stalled peer stream never shares flow control with others.
    ("grpc.use_local_subchannel_pool", 1),
    # Pauses between attempts to connect are short; an attempt itself, which gRPC ends after what it calls the least
    # backoff, may take as long as TLS with a distant or busy peer does.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.min_reconnect_backoff_ms", 10_000),
    # A peer that has come back under another address is found at once; gRPC would ask for it every 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
]

MEMBER_OPTIONS: list[tuple[str, int | str]] = [*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", MEMBER)]


def open_channel(address: str, member: Membership | None = None) -> grpc.aio.Channel:
    """To `address`: host:port in plain text, https://host:port with TLS; among members, with mutual TLS.

    Public certificates are checked against gRPC's own roots, or those in the file GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.
    """
    if member is not None:
        return grpc.aio.secure_channel(address, member.channel(), options=MEMBER_OPTIONS)
    if address.startswith(TLS_SCHEME):
        target, credentials = address.removeprefix(TLS_SCHEME), grpc.ssl_channel_credentials()
        return grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def open_sync_channel(address: str, member: Membership | None = None) -> grpc.Channel:
    """`open_channel`, blocking."""
    if member is not None:
        return grpc.secure_channel(address, member.channel(), options=MEMBER_OPTIONS)
    if address.startswith(TLS_SCHEME):
        target, credentials = address.removeprefix(TLS_SCHEME), grpc.ssl_channel_credentials()
        return grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)


def secret_metadata(secret: str) -> tuple[tuple[str, str], ...]:
    """The metadata that every internal call carries."""
    return ((SECRET_METADATA, secret),)
