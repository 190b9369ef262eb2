"""The process in which everything is done that callers' constraints make llguidance do, in forks of it.

The kernel ends a fork beyond its limits, whatever the library does. The process imports little, so that it starts in a
fraction of a second and a fork takes milliseconds. The worker starts it with a Setup as standard input and the
descriptor of a socket as argument. Each connection that comes through this socket has a fork of its own, which answers
the requests on it.
"""

import fcntl
import os
import pickle
import resource
import select
import signal
import socket
import sys
from multiprocessing.connection import Connection
from typing import NamedTuple

from local_worker.engine.followed_output import FollowedOutput
from local_worker.engine.grammars import Grammars
from local_worker.vocabulary import Vocabulary
from serving.constraint import Constraint


class Setup(NamedTuple):
    """The vocabulary, and the limits of a fork; `niceness` is added to the process's own."""

    vocabulary: Vocabulary
    cpu_seconds: float  # of one compilation; a mask, for which may be compiled, has twice as much
    memory_bytes: int  # of the address space
    niceness: int


class MaskRequest(NamedTuple):
    """A request for the mask of the next token of an output, to which `tokens` are appended.

    The fork begins with the output if it does not know it, and forgets the outputs in `ended`.
    """

    output: int
    constraint: Constraint
    tokens: tuple[int, ...]
    ended: tuple[int, ...]


class Mask(NamedTuple):
    """The tokens that may come next (see Matcher.allowed); None if the output cannot go on, and `failure` says why."""

    allowed: bytes | None
    failure: str = ""


def main() -> None:
    """Serve what comes through the socket until the worker closes it."""
    setup = Setup(*pickle.load(sys.stdin.buffer))
    commands = socket.socket(fileno=int(sys.argv[1]))
    vocabulary = setup.vocabulary.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no fork is waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker drains first
    os.nice(setup.niceness)
    while descriptors := socket.recv_fds(commands, 1, 1)[1]:
        with Connection(descriptors[0]) as connection:
            if os.fork() == 0:
                try:
                    commands.close()
                    _limit(setup)
                    Answers(connection, Grammars(lambda: vocabulary), setup.cpu_seconds).run()
                finally:
                    os._exit(0)


def _limit(setup: Setup) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # a caller's constraint may end the process
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, setup.memory_bytes)):
        resource.setrlimit(kind, (limit, limit))


class Answers:
    """The answers to the requests on one connection: a Mask, or for a Constraint the error that it has."""

    def __init__(self, connection: Connection, grammars: Grammars, cpu_seconds: float) -> None:
        self._connection = connection
        self._grammars = grammars
        self._cpu_seconds = cpu_seconds
        self._outputs: dict[int, FollowedOutput] = {}
        fcntl.fcntl(connection.fileno(), fcntl.F_SETOWN, os.getpid())

    def run(self) -> None:
        """Answer until the connection ends."""
        try:
            while True:
                request = self._connection.recv()
                self._begin(self._cpu_seconds * (2 if isinstance(request, MaskRequest) else 1))
                answer = self._mask(request) if isinstance(request, MaskRequest) else self._error(request)
                self._end()
                self._connection.send(answer)
        except (EOFError, OSError):
            return

    def _begin(self, cpu_seconds: float) -> None:
        """Let the kernel end this process beyond the limit (SIGPROF), and with the connection (SIGIO)."""
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        self._signal(os.O_ASYNC)
        poll = select.poll()
        poll.register(self._connection.fileno(), 0)
        if any(events & select.POLLHUP for _, events in poll.poll(0)):  # before the signal was asked for
            raise EOFError

    def _end(self) -> None:
        self._signal(0)
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _signal(self, flag: int) -> None:
        flags = fcntl.fcntl(self._connection.fileno(), fcntl.F_GETFL) & ~os.O_ASYNC
        fcntl.fcntl(self._connection.fileno(), fcntl.F_SETFL, flags | flag)

    def _error(self, constraint: Constraint) -> str:
        return self._grammars.error(constraint)

    def _mask(self, request: MaskRequest) -> Mask:
        for ended in request.ended:
            self._outputs.pop(ended, None)
        known = self._outputs.get(request.output)
        if known is None:
            known = self._outputs[request.output] = FollowedOutput(request.constraint, self._grammars, request.tokens)
        else:
            known.accept(request.tokens)
        return Mask(known.allowed(), known.failure)
