"""Ports for programs that must be told theirs: they bind them seconds later, or again after a restart."""

import contextlib
import random
import socket
import threading

# Below those that Linux gives to whoever asks for any port: tests beside this one take these all the time.
PORTS = range(20_000, 32_000)
BLOCK = 100  # of which a process is the only one that gives any to tests
_dice = random.SystemRandom()  # forks of one process draw different numbers from it
_one_at_a_time = threading.Lock()
_own: list[int] = []  # those that this process has not given yet
_marks: list[socket.socket] = []  # of its blocks: others cannot have these until it ends


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, and that nobody else is given: not by the kernel, nor by other tests."""
    with _one_at_a_time:
        return [_free_port() for _ in range(count)]


def own_address() -> str:
    """Return an address of this machine at which a service can listen again after it has ended."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def _free_port() -> int:
    while True:
        while not _own:
            _take_block()
        port = _own.pop()
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("", port))
            return port


def _take_block() -> None:
    first = _dice.choice(PORTS[::BLOCK])
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0fairlead-tests-ports-{first}")  # of no file: it lasts until this process ends
    except OSError:
        mark.close()
    else:
        _marks.append(mark)
        _own.extend(range(first, first + BLOCK))
