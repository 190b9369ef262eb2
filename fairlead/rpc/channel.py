"""Channels to a gateway, and the options that they share with channels between services."""

import json
from collections.abc import Sequence

import grpc

TLS_SCHEME = "https://"
# A prompt of 128k tokens takes half a megabyte packed, and several times as much as a chat; a step's tokens for
# hundreds of sequences take tens of kilobytes. 16 MiB bounds the memory that one message can make a process allocate.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


def ping_timeout(seconds: float) -> list[tuple[str, int]]:
    """Return the options that end a connection whose peer does not answer a ping within `seconds`."""
    milliseconds = round(1000 * seconds)
    return [
        ("grpc.keepalive_timeout_ms", milliseconds),
        # For pings that measure bandwidth, during which no keepalive is sent.
        ("grpc.http2.ping_timeout_ms", milliseconds),
    ]


# Between an application and a gateway. A busy machine can leave a process without processor time for several seconds,
# and the calls on a connection are lost with it. This is gRPC's default.
PING_SECONDS = 20.0

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Keepalive detects a broken network path or a stopped process; TCP alone would take minutes.
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
]
# A gateway that stops ends calls that it received but has not started to handle with CANCELLED, before any metadata
# (grpc/grpc#41785). gRPC repeats such a call, at most three times, at the gateway to which it then connects; on a busy
# machine that can be the stopping one again. A call that a gateway has started to handle ends with another status and
# is not repeated.
SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": "fairlead.v1.Inference"}],
            "retryPolicy": {
                "maxAttempts": 4,
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
    *ping_timeout(PING_SECONDS),
    # Each channel has its own connection, so that a stalled stream does not share flow control with other channels.
    ("grpc.use_local_subchannel_pool", 1),
    # Pauses between attempts to connect are short. An attempt itself may take as long as a TLS handshake with a distant
    # or busy peer; gRPC ends it after the value that it calls the minimum backoff.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.min_reconnect_backoff_ms", 10_000),
    # A peer that returns with another address is found at once; by default gRPC resolves names only every 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ("grpc.per_rpc_retry_buffer_size", MAX_MESSAGE_BYTES),  # of a call that can be repeated; by default 256 KiB
]


def open_channel(address: str, options: Sequence[tuple[str, int | str]] = ()) -> grpc.aio.Channel:
    """Open a channel to `address`: host:port in plain text, https://host:port with TLS.

    `options` of gRPC are used in place of those that all channels have.
    Certificates are checked against gRPC's own roots, or those in the file GRPC_DEFAULT_SSL_ROOTS_FILE_PATH.
    """
    if address.startswith(TLS_SCHEME):
        target, credentials = address.removeprefix(TLS_SCHEME), grpc.ssl_channel_credentials()
        return grpc.aio.secure_channel(target, credentials, options=[*options, *CHANNEL_OPTIONS])
    return grpc.aio.insecure_channel(address, options=[*options, *CHANNEL_OPTIONS])


def open_sync_channel(address: str) -> grpc.Channel:
    """Open a blocking channel; see `open_channel`."""
    if address.startswith(TLS_SCHEME):
        target, credentials = address.removeprefix(TLS_SCHEME), grpc.ssl_channel_credentials()
        return grpc.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
