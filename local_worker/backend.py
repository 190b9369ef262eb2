"""The port between a worker's services and the backend that computes the requests."""

from typing import Protocol

from local_worker.core.request import Request
from local_worker.prompt import EncodedPrompt, PromptToEncode
from local_worker.prompt_encoder import PromptEncoder
from serving.constraint import Constraint


class Encoder(Protocol):
    """The part of a backend that has the tokenizer."""

    def encode(self, prompt: PromptToEncode) -> EncodedPrompt:
        """Return a prompt's token ids and block digests; called on a separate thread, one call at a time.

        Raises InvalidRequest with the name of the field, TooLong for a prompt that cannot fit, Unavailable for a model
        that is not served here.
        """

    def decode(self, token_ids: bytes, model: str) -> str:
        """Return the text of packed token ids; called as `encode` is.

        Raises InvalidRequest for ids that are not in the vocabulary, Unavailable for a model that is not served here.
        """


class Backend(Encoder, Protocol):
    """The component that tokenizes prompts, schedules requests and computes them.

    It delivers its results as WorkerUpdates, in order. Each submitted request ends with exactly one
    RequestEnded. Commands return at once.
    """

    @property
    def prompts(self) -> PromptEncoder:
        """The encoder of the worker's models."""

    def is_known(self, constraint: Constraint) -> bool:
        """Return whether `check` has nothing to find out for a constraint."""

    async def check(self, constraint: Constraint) -> None:
        """Raise InvalidRequest with the name of the field for a constraint that cannot be obeyed here.

        If it is cancelled, its work ends.
        """

    def start(self) -> None:
        """Start to compute and to deliver events."""

    def stop(self) -> None:
        """Finish the steps in flight and return; no events are delivered afterwards."""

    def submit(self, request: Request) -> None:
        """Accept a request. Raises InvalidRequest or Unavailable, and changes nothing then."""

    def abort(self, request: Request) -> None:
        """End a submitted request as CANCELLED within one step; do nothing if it has ended."""

    def flush_cache(self) -> None:
        """Evict the blocks of the prefix cache that no request uses."""

    @property
    def stepping_since(self) -> float | None:
        """The start of the step in flight in seconds of the monotonic clock; None between steps."""
