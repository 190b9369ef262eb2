"""What an address to listen on means: whether it is free, and who can reach it."""

import ipaddress
import socket


def check_free(address: str) -> None:
    """Raise OSError if no socket address to which `address`, host:port, resolves can be bound now."""
    host, _, port = address.rpartition(":")
    failures = []
    for family, kind, protocol, _, found in socket.getaddrinfo(
        host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(found)
            return
        except OSError as error:
            failures.append(error)
    raise failures[0]


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach `address`, host:port."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
