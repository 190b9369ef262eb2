"""The port between an HTTP API and the exchange of one request: an API parses bodies and writes answers.

Chat completions and completions are two; another one is a file beside them and a line in `application.py`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from fairlead.errors import FairleadError
from fairlead.v1 import common_pb2
from gateway.call import Call
from gateway.core.call_events import OutputChunk
from gateway.http.common_fields import Sender, Wish
from gateway.prompt_encoding import PromptEncoding


class Generation(NamedTuple):
    """One call that a body asks for."""

    prompt: common_pb2.Prompt
    sampling: common_pb2.SamplingParams
    encoding: PromptEncoding | None = None  # of the prompt, if other calls have the same


class Answer(Protocol):
    """The writer of one request's answer. `index` counts the request's calls from 0.

    The methods for streams return whole server-sent events.
    """

    def chunk(self, index: int, call: Call, chunk: OutputChunk) -> bytes:
        """Return the bytes of a part of a call's output."""

    def finished(self, index: int, call: Call, last: OutputChunk | None) -> bytes:
        """Return the end of a call's output; `last` is the part that is not written yet."""

    def closing(self, calls: Sequence[Call]) -> bytes:
        """Return the end of a stream, once every call has completed."""

    def error(self, error: FairleadError) -> bytes:
        """Return the end of a stream that an error interrupts."""

    def compact(self, index: int, chunk: OutputChunk) -> OutputChunk:
        """Return a part of a call's output, the next one, as it is held for `whole`."""

    def whole(self, calls: Sequence[Call], outputs: Sequence[OutputChunk]) -> bytes:
        """Return the body for a caller that does not stream, with each call's whole output, joined of compact parts."""


class ParsedRequest(Protocol):
    """A request body that is parsed and valid."""

    @property
    def model(self) -> str | None:
        """The name of the model; empty or None: the only one that is served."""

    @property
    def named_tier(self) -> str:
        """The service tier that the body names; empty if it names none."""

    @property
    def stored_bytes(self) -> int:
        """The bytes of what is stored and is made into objects with the body."""

    @property
    def stream(self) -> bool | None:
        """Whether the answer is a stream of events."""

    @property
    def counts_tokens(self) -> bool:
        """Whether each event of a stream is to have the usage so far; then each token has an event."""

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """Return who sends the request, by the headers and the body; raises InvalidRequest."""

    @property
    def body_type(self) -> type[msgspec.Struct]:
        """The type of the body; fields that it does not have are left out."""

    @property
    def names(self) -> Mapping[str, str]:
        """The names in the body of fields of the typed request that it names otherwise than its API usually does."""

    def generations(self) -> Sequence[Generation]:
        """Return the calls to make, at least one; raises InvalidRequest."""

    def wishes(self) -> Sequence[Wish]:
        """Return what the body wishes for."""

    def left_out(self) -> Sequence[str]:
        """Return the known fields that have no effect, beside those of wishes."""

    def forget(self) -> None:
        """Free what `answer` does not need: the calls go on for minutes, and a body may take many MiB."""

    def answer(self, call: Call) -> Answer:
        """Return the writer of the answer; `call` is the first one, which has begun."""


class Api(Protocol):
    """The parser of the bodies that are posted to one path."""

    def __call__(self, body: bytes) -> ParsedRequest:
        """Parse `body`; raises InvalidRequest."""
