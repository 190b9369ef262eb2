"""Ports for programs that must be told theirs: they bind them seconds later, or again after a restart."""

import random
import socket

# Below those that Linux gives to whoever asks for any port: tests beside this one take these all the time.
PORTS = range(20_000, 32_000)
_dice = random.SystemRandom()  # forks of one process draw different numbers from it
_marks: list[socket.socket] = []  # of the ports that this process has given to tests


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, and that nobody else is given: not by the kernel, nor by other tests."""
    return [_free_port() for _ in range(count)]


def own_address() -> str:
    """Return an address of this machine at which a service can listen again after it has ended."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def _free_port() -> int:
    while True:
        port = _dice.choice(PORTS)
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0fairlead-tests-port-{port}")  # of no file: it lasts until this process ends
            with socket.socket() as taken:
                taken.bind(("", port))
        except OSError:
            mark.close()
            continue
        _marks.append(mark)
        return port
