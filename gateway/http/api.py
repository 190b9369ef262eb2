"""What an API is to the exchange of one HTTP request: how its bodies are read, and how its answers are written.

Chat completions and completions are two; another one is a file beside them and a line in `application.py`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fairlead.errors import FairleadError
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.coalescer import OutputChunk
from gateway.core.session_tree import Session


class Generation(NamedTuple):
    """One call that a body asks for."""

    prompt: common_pb2.Prompt
    sampling: common_pb2.SamplingParams


class Answer(Protocol):
    """Writes what the calls of one request generate. `index` counts the request's calls from 0.

    What is streamed are whole server-sent events.
    """

    def chunk(self, index: int, chunk: OutputChunk) -> bytes:
        """Return some of a call's output."""

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """Return the end of a call's output, which begins with what is left of it."""

    def closing(self, calls: Sequence[Call]) -> bytes:
        """Return what ends a stream, once every call has completed."""

    def error(self, error: FairleadError) -> bytes:
        """Return what ends a stream that has begun and cannot go on."""

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """Return the body for a caller that does not stream, with each call's whole output."""


class Asked(Protocol):
    """A body that has been read, and can be obeyed."""

    @property
    def model(self) -> str:
        """Name the model; empty stands for the only one that is served."""

    @property
    def named_user(self) -> str:
        """Whom the request is for; empty where it does not say."""

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is a stream of events."""

    def session(self, headers: Mapping[str, str]) -> Session | None:
        """Return the session that the request is of, as its headers or its body name it; None where nothing does."""

    def generations(self) -> Sequence[Generation]:
        """Return the calls to make, at least one; raises InvalidRequest."""

    def answer(self, call: Call) -> Answer:
        """Return what writes the answer; `call` is the first one, under way."""


class Api(Protocol):
    """Reads the bodies that are posted to one path."""

    def __call__(self, body: bytes) -> Asked:
        """Return what `body` asks for; raises InvalidRequest."""
