"""A request on its way through one worker: the core's record, and how its tokens become the caller's text."""

from dataclasses import dataclass

from fairlead.v1 import common_pb2
from local_worker.core.request import Request
from local_worker.stop_strings import StopStrings
from local_worker.tokenizer import Decoder
from serving.cost import MICRO


@dataclass(slots=True, eq=False)
class Job:
    """Owned by the engine loop's thread from submission to its Ended event."""

    request: Request
    attempt: int
    decoder: Decoder
    stops: StopStrings
    queued_unix_ns: int
    started: bool = False
    scheduled_unix_ns: int = 0
    first_token_unix_ns: int = 0

    def prime(self, generated: list[int]) -> None:
        """Replay the tokens of earlier attempts: their text was sent already, what they held back was not."""
        for token in generated:
            self.stops.push(self.decoder.push(token))

    def text_of(self, token: int) -> tuple[str, bool]:
        """The text that `token` releases, and whether a stop string ends the output there."""
        return self.stops.push(self.decoder.push(token))

    def rest(self) -> str:
        """Text still held back at the end of an output that no stop string ended."""
        text, hit = self.stops.push(self.decoder.flush())
        return text if hit else text + self.stops.flush()

    @property
    def service(self) -> float:
        """Charged to this attempt so far, in cost units."""
        return self.request.service / MICRO

    def usage(self) -> common_pb2.Usage:
        """Tokens of this attempt."""
        request = self.request
        return common_pb2.Usage(
            prompt_tokens=request.prompt_tokens,
            cached_tokens=request.cached,
            output_tokens=request.output_tokens,
            service=self.service,
        )

    def timings(self, finished_unix_ns: int) -> common_pb2.Timings:
        """The worker's part of the call's timings."""
        return common_pb2.Timings(
            queued=self.queued_unix_ns,
            scheduled=self.scheduled_unix_ns,
            first_token=self.first_token_unix_ns,
            finished=finished_unix_ns,
        )
