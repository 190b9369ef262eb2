"""The process in which everything is done that callers' constraints make llguidance do, in forks of it.

The kernel ends a fork beyond its limits, whatever the library does. The process imports little, so that it starts in a
fraction of a second and a fork takes milliseconds. The worker starts it with a Setup as standard input and the
descriptor of a socket as argument. Each pair of connections that comes through this socket has a fork of its own, which
answers the requests on the first, and ends with the second.
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
    while descriptors := socket.recv_fds(commands, 1, 2)[1]:
        with Connection(descriptors[0]) as connection, Connection(descriptors[1]) as life:
            if os.fork() == 0:
                try:
                    commands.close()
                    _limit(setup)
                    _end_with(life)
                    Answers(connection, Grammars(lambda: vocabulary), setup.cpu_seconds).run()
                finally:
                    os._exit(0)


def _limit(setup: Setup) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # a caller's constraint may end the process
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, setup.memory_bytes)):
        resource.setrlimit(kind, (limit, limit))


def _end_with(life: Connection) -> None:
    """Let the kernel end this process when the other end of `life` is closed (SIGIO), whatever the library does.

    Nothing is ever sent on it: the kernel may signal what was sent after it has been read.
    """
    fcntl.fcntl(life.fileno(), fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life.fileno(), fcntl.F_SETFL, fcntl.fcntl(life.fileno(), fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(life.fileno(), 0)
    if poll.poll(0):  # it was closed before
        os._exit(0)


class Answers:
    """The answers to the requests on one connection: a Mask, or for a Constraint the error that it has."""

    def __init__(self, connection: Connection, grammars: Grammars, cpu_seconds: float) -> None:
        self._connection = connection
        self._grammars = grammars
        self._cpu_seconds = cpu_seconds
        self._outputs: dict[int, FollowedOutput] = {}

    def run(self) -> None:
        """Answer one request after the other until the worker closes the connection, or a limit ends this process."""
        try:
            while True:
                request = self._connection.recv()
                is_mask = isinstance(request, MaskRequest)
                # The kernel ends this process beyond the limit (SIGPROF).
                signal.setitimer(signal.ITIMER_PROF, self._cpu_seconds * (2 if is_mask else 1))
                answer = self._mask(request) if is_mask else self._error(request)
                signal.setitimer(signal.ITIMER_PROF, 0)
                self._connection.send(answer)
        except (EOFError, OSError):
            return

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
