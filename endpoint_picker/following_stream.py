"""The stream of a filter that only observes a request, which another filter's stream has placed.

Envoy cuts a request whose filter loses its picker after it has sent a body. So one filter may place requests, and be
done with each when it is placed, while another, in observability mode, follows them, and Envoy does not wait for it.
"""

from collections.abc import Mapping

from endpoint_picker.answers import PICK
from endpoint_picker.open_request import OpenRequest
from endpoint_picker.request_headers import headers_of
from serving.envoy.ext_proc_pb2 import ProcessingRequest, ProcessingResponse


class FollowingStream:
    """Follows the request that its headers name, one of `placed`; Envoy expects no response to any message."""

    def __init__(self, placed: Mapping[str, OpenRequest]) -> None:
        self._by_id = placed
        self._placed: OpenRequest | None = None

    is_answered = True  # nothing is to be said, at any time
    patience = None

    async def handle(self, message: ProcessingRequest) -> list[ProcessingResponse]:
        """Take note of a message."""
        match message.WhichOneof("request"):
            case "request_headers":
                self._placed = self._by_id.get(headers_of(message.request_headers).get(PICK, ""))
                if self._placed is not None:
                    self._placed.is_followed = True
            case "response_headers" if self._placed is not None:
                self._placed.answered(message.response_headers, message.metadata_context)
        return []

    async def place_held(self) -> list[ProcessingResponse]:
        """Return nothing: the request is placed."""
        return []

    def written(self) -> None:
        """Do nothing: no body is held."""

    def close(self) -> None:
        """End the request."""
        if self._placed is not None:
            self._placed.end()
