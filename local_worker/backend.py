"""What computes requests behind a worker's gRPC side."""

from typing import Protocol

from local_worker.attempt import Submission
from local_worker.prompt import EncodedPrompt, PromptToEncode
from local_worker.step_events import Sink


class Encoder(Protocol):
    """Has the tokenizer, and encodes prompts for every model."""

    def encode(self, prompt: PromptToEncode) -> EncodedPrompt:
        """Return a prompt's token ids and block digests; called on a thread of its own, one call at a time.

        Raises InvalidRequest naming the field, TooLong for what can never be short enough, Unavailable for a model that
        is not served here.
        """


class Backend(Encoder, Protocol):
    """Tokenizes prompts, schedules requests and computes them.

    Whatever happens it hands over as StepEvents, in order: events of the requests by the sink that submitted them, the
    load, cached and evicted blocks, accounts. A request that was submitted ends with exactly one AttemptEnded. Commands
    return at once.
    """

    def start(self) -> None:
        """Begin to compute and to hand over."""

    def stop(self) -> None:
        """Finish the steps under way and return; nothing is handed over afterwards."""

    def submit(self, sink: Sink, submission: Submission) -> None:
        """Take on a request, whose events go to `sink`.

        Raises InvalidRequest, or Unavailable for a model that is not served here, and then has changed nothing.
        """

    def abort(self, sink: Sink, request_id: str, attempt: int) -> None:
        """End a request of `sink` as CANCELLED, within one step; does nothing for one that is unknown or has ended."""

    def abort_all(self, sink: Sink) -> None:
        """End every request of `sink` as CANCELLED: its stream broke."""

    def flush_cache(self) -> None:
        """Empty the prefix cache of what no request uses."""

    @property
    def stepping_since(self) -> float | None:
        """When the step under way began, on the monotonic clock; None between steps."""
