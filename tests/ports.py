"""Ports for programs that must be told theirs, and that bind them seconds later."""

import random
import socket
from contextlib import ExitStack

# Below those that Linux gives to whoever asks for any port: tests beside this one take these all the time.
PORTS = range(20_000, 32_000)
_dice = random.SystemRandom()  # forks of one process draw different numbers from it


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now, and that the kernel gives to nobody."""
    with ExitStack() as closing:
        free: list[int] = []
        while len(free) < count:
            taken = closing.enter_context(socket.socket())
            try:
                taken.bind(("", _dice.choice(PORTS)))
            except OSError:
                continue
            free.append(taken.getsockname()[1])
        return free
