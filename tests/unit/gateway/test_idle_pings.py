"""A gRPC client may ping on a connection without calls, as clients behind load balancers do to keep it."""

import socket
import time

from tests.services import Stack
from tests.system.attacks.http2 import ACK, PING, PREFACE, SETTINGS, frame

PAUSE_SECONDS = 1.5  # between two pings; gRPC's servers count those within a second as abuse
PINGS = 5  # after the third without a call, a server would say ENHANCE_YOUR_CALM, "too_many_pings"
GOAWAY = 7


def frames(connection: socket.socket, last: bytes) -> list[int]:
    """The kinds of frames that come until the answer to the ping `last`, or a GOAWAY."""
    kinds: list[int] = []
    with connection.makefile("rb") as received:
        while True:
            head = received.read(9)
            if not head:
                return [*kinds, GOAWAY]
            payload = received.read(int.from_bytes(head[:3], "big"))
            kinds.append(head[3])
            if head[3] == GOAWAY or (head[3], head[4] & ACK, payload) == (PING, ACK, last):
                return kinds


def test_an_idle_client_that_pings_is_kept(stack: Stack) -> None:
    gateway = stack.start("gateway", scheduler=stack.addresses)
    host, _, port = gateway.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        for number in range(PINGS):
            time.sleep(PAUSE_SECONDS)  # not to wait for anything: this is how often the client pings
            ping = b"ping%4d" % number
            connection.sendall(frame(PING, 0, 0, ping))
            assert GOAWAY not in frames(connection, ping), f"after {number + 1} pings"
