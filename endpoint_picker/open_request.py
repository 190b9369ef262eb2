"""One request from its placement to the end of its answer."""

from endpoint_picker.core.endpoint_pool import Pick
from endpoint_picker.picker import Picker
from endpoint_picker.request_headers import headers_of, number_of, served_of
from serving.envoy.ext_proc_pb2 import HttpHeaders, Metadata

FIRST_ERROR = 400  # HTTP status


class OpenRequest:
    """The booking of one request, which ends once. `most_output` is the request's own limit, in tokens."""

    def __init__(self, picker: Picker, pick: Pick, most_output: int | None) -> None:
        self.pick = pick
        self.is_followed = False  # by a stream of its own
        self._picker = picker
        self._most_output = most_output
        self._began: float | None = None  # when the answer began
        self._announced: int | None = None  # its length in bytes
        self._is_done = False  # whether the proxy has said that it is over
        self._told: int | None = None  # its tokens
        self._has_ended = False

    @property
    def is_answered(self) -> bool:
        """Return whether the answer has begun, after which the picker has nothing more to say."""
        return self._began is not None

    def answered(self, message: HttpHeaders, metadata: Metadata) -> None:
        """Record the headers of the answer and the endpoint that sent it; an error ends the request."""
        if self._has_ended:
            return
        headers = headers_of(message)
        began = self._picker.served(self.pick, served_of(metadata))
        status = number_of(headers, ":status")
        if status is not None and status >= FIRST_ERROR:
            self.end()
            return
        self._began = began
        self._announced = number_of(headers, "content-length")
        if self._is_done:
            self.end()

    def done(self, output_tokens: int) -> None:
        """Record that the answer is over, and how many tokens it has, where that is known: else 0.

        Its headers may come later, on another stream, or never, if there was none: then that stream's end is the end.
        """
        self._is_done = True
        self._told = output_tokens or self._told
        if self.is_answered:
            self.end()

    def end(self) -> None:
        """End the request: with a charge for its output if an answer began, else with a refund."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._began is None:
            self._picker.refused(self.pick)
        elif self._told is not None:
            self._picker.measured(self.pick, self._told)
        else:
            self._picker.ended(self.pick, self._began, self._announced, self._most_output)
