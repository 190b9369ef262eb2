"""A check whether an address is free to listen on."""

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
