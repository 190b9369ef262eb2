"""The process in which constraints are compiled on trial: each in a fork that the kernel ends beyond its limits.

It imports llguidance and little else, so that it starts in a fraction of a second and a fork takes milliseconds. The
worker starts it as a module, with a Setup as standard input and the descriptor of a socket as argument. Through this
socket it gets one connection for each constraint, on which it reads the grammar and writes the library's error.
"""

import fcntl
import os
import pickle
import resource
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

COMPILED = b"compiled\n"  # begins every answer: a fork that was ended has given none


class Setup(NamedTuple):
    """The vocabulary and the limits with which every constraint is compiled; a worker and its sandbox share them.

    `tokens[k]` are the bytes of token k. `niceness` is added to the process's own.
    """

    tokens: Sequence[bytes]
    special_token_ids: Sequence[int]
    eos_token_ids: Sequence[int]
    limits: Mapping[str, Any]  # of the library
    cpu_seconds: float  # of one compilation
    memory_bytes: int  # of the address space of one compilation
    niceness: int


def main() -> None:
    """Compile what comes through the socket until the worker closes it."""
    from local_worker.vocabulary import vocabulary_of

    setup = Setup(*pickle.load(sys.stdin.buffer))
    commands = socket.socket(fileno=int(sys.argv[1]))
    vocabulary = vocabulary_of(setup.tokens, setup.eos_token_ids, setup.special_token_ids)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no fork is waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker drains first
    os.nice(setup.niceness)
    while descriptors := socket.recv_fds(commands, 1, 1)[1]:
        with socket.socket(fileno=descriptors[0]) as connection:
            if os.fork() == 0:
                try:
                    commands.close()
                    _compile(connection, setup, vocabulary)
                finally:
                    os._exit(0)


def _compile(connection: socket.socket, setup: Setup, vocabulary: Any) -> None:
    from llguidance import LLMatcher, LLParserLimits

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, setup.memory_bytes)):
        resource.setrlimit(kind, (limit, limit))
    signal.setitimer(signal.ITIMER_PROF, setup.cpu_seconds)  # SIGPROF ends the process, also within the library
    with connection.makefile("rb") as file:
        source = file.read().decode()
    # The end of the connection ends the process (SIGIO): nobody waits for the answer any more.
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    if _is_closed(connection):  # before that could end the process
        return
    matcher = LLMatcher(vocabulary, source, log_level=0, limits=LLParserLimits(**setup.limits))
    connection.sendall(COMPILED + (matcher.get_error() if matcher.is_error() else "").encode())


def _is_closed(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


if __name__ == "__main__":
    main()
