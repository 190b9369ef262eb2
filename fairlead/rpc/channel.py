"""Channels: to a gateway, and the options that they share with those between services."""

import json

import grpc

TLS_SCHEME = "https://"
# A 128k-token prompt is half a megabyte packed, a chat of it several times that; a step's tokens for
# hundreds of sequences are tens of kilobytes. 16 MiB bounds what one message can make a process allocate.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024

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
# A gateway that stops ends calls that reached it and that it has not looked at as CANCELLED, before any metadata
# (grpc/grpc#41785); gRPC makes such a call once more, at the gateway that it finds next. One that a gateway looked at
# ends otherwise, and is not repeated.
SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": "fairlead.v1.Inference"}],
            "retryPolicy": {
                "maxAttempts": 2,
                "initialBackoff": "0.1s",
                "maxBackoff": "0.1s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["CANCELLED"],
            },
        }
    ]
}
CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
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
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ("grpc.per_rpc_retry_buffer_size", MAX_MESSAGE_BYTES),  # of which a call that can be made again has 256 KiB else
]


def open_channel(address: str) -> grpc.aio.Channel:
    """To `address`: host:port in plain text, https://host:port with TLS.

    Certificates are checked against gRPC's own roots, or those in the file GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.
    """
    if address.startswith(TLS_SCHEME):
        target, credentials = address.removeprefix(TLS_SCHEME), grpc.ssl_channel_credentials()
        return grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def open_sync_channel(address: str) -> grpc.Channel:
    """`open_channel`, blocking."""
    if address.startswith(TLS_SCHEME):
        target, credentials = address.removeprefix(TLS_SCHEME), grpc.ssl_channel_credentials()
        return grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
