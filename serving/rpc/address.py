"""Addresses to listen on: whether one can be used, and who can reach it where."""

import ipaddress
import socket


def listening_hosts(address: str) -> list[str] | None:
    """Return the hosts on which to listen for `address`, host:port; None stands for all interfaces.

    `[::]` means every address of both families, as gRPC understands it.
    """
    host = address.rpartition(":")[0].strip("[]")
    if host == "::":
        return ["0.0.0.0", "::"]
    return [host] if host else None


def reached_at(listen: str, port: int) -> str:
    """Return where this machine reaches a service that listens on `port` of the host in `listen`, host:port."""
    host = listen.rpartition(":")[0]
    return f"{'127.0.0.1' if host in ('', '0.0.0.0', '[::]') else host}:{port}"


def bracketed(address: str) -> str:
    """Return `address`, host:port, with an IPv6 host in brackets, which a pod's address lacks."""
    host, _, port = address.rpartition(":")
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else address


def check_free(address: str) -> None:
    """Raise OSError if no socket address to which `address`, host:port, resolves can be bound now."""
    port = int(address.rpartition(":")[2])
    failures = []
    for host in listening_hosts(address) or [""]:
        for family, kind, protocol, _, found in socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
