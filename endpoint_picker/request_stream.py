"""One HTTP request as Envoy shows it: from its headers to the end of its answer."""

import asyncio
from collections.abc import Mapping, MutableMapping

from endpoint_picker import answers
from endpoint_picker.core.picker_queue import background
from endpoint_picker.held_bodies import HOLD_SECONDS, HeldBodies
from endpoint_picker.open_request import OpenRequest
from endpoint_picker.picker import Picker, no_endpoint
from endpoint_picker.request_body import Prompt
from endpoint_picker.request_headers import asked_class, client_of, headers_of, subset_of, weight_of
from endpoint_picker.token_prompts import PromptReader
from fairlead.errors import InvalidRequest
from serving.envoy.ext_proc_pb2 import HttpBody, HttpHeaders, Metadata, ProcessingRequest, ProcessingResponse

# The stream that follows a request begins while the one that places it ends.
FOLLOWING_SECONDS = 2.0


class RequestStream:
    """Follows one request through its messages. A booking that it makes ends with `close`, whatever happens."""

    def __init__(
        self,
        picker: Picker,
        objectives: Mapping[str, int],
        read: PromptReader,
        placed: MutableMapping[str, OpenRequest],
        bodies: HeldBodies,
    ) -> None:
        self._picker = picker
        self._objectives = objectives
        self._read = read
        self._by_id = placed
        self._bodies = bodies
        self._client: str | None = None  # before the headers
        self._weight = 0
        self._is_background: bool | None = None  # None: the body says it
        self._subset: set[str] | None = None
        self._chunks: list[bytes] = []
        self._held = 0  # bytes, until the proxy has taken them
        self._held_until: float | None = None  # time of the event loop, while a body is held
        self._body_ended = False
        self._placed: OpenRequest | None = None

    @property
    def is_answered(self) -> bool:
        """Return whether the answer has begun, after which the picker has nothing more to say."""
        return self._placed is not None and self._placed.is_answered

    @property
    def patience(self) -> float | None:
        """The seconds after which `place_held` is due, where a part of a body is held."""
        if self._held_until is None:
            return None
        return max(0.0, self._held_until - asyncio.get_running_loop().time())

    async def place_held(self) -> list[ProcessingResponse]:
        """Return the responses that place a request by what is held of its body; raises as `handle` does."""
        return await self._place(ends=False)

    async def handle(self, message: ProcessingRequest) -> list[ProcessingResponse]:
        """Return the responses to a message; raises Refused and InvalidRequest, after which the stream is over."""
        match message.WhichOneof("request"):
            case "request_headers":
                return await self._request_headers(message.request_headers, message.metadata_context)
            case "request_body":
                return await self._request_body(message.request_body)
            case "request_trailers":
                return [*await self._place(ends=False), answers.REQUEST_TRAILERS]
            case "response_headers":
                if self._placed is not None:
                    self._placed.answered(message.response_headers, message.metadata_context)
                return [answers.RESPONSE_HEADERS]
            case "response_body":
                # Nothing is to be read there: the filter sends answers only if it is configured to.
                part = message.response_body
                return answers.response_body(part.body, part.end_of_stream)
            case "response_trailers":
                return [answers.RESPONSE_TRAILERS]
            case _:
                return []

    def written(self) -> None:
        """Record that the proxy has taken all responses, and with them the body that was held."""
        if self._placed is not None:
            self._release()

    def close(self) -> None:
        """End the request, unless another stream follows it, which may still be on its way."""
        self._release()
        if self._placed is None:
            return
        if self._placed.is_answered:
            self._placed.end()
        else:
            asyncio.get_running_loop().call_later(FOLLOWING_SECONDS, self._end_unfollowed, self._placed)

    def _end_unfollowed(self, placed: OpenRequest) -> None:
        if not placed.is_followed:
            placed.end()

    async def _request_headers(self, message: HttpHeaders, metadata: Metadata) -> list[ProcessingResponse]:
        if self._client is not None:
            raise InvalidRequest("the headers of the request came twice")
        headers = headers_of(message)
        self._subset = subset_of(metadata)
        if self._subset is not None and not self._subset:
            raise no_endpoint("the subset has no endpoint")
        self._client = client_of(headers)
        self._weight = weight_of(headers, self._objectives)
        self._is_background = asked_class(headers)
        return [await self._destination(Prompt())] if message.end_of_stream else []

    async def _request_body(self, part: HttpBody) -> list[ProcessingResponse]:
        if self._body_ended:
            return []  # Envoy may end a body twice
        self._body_ended = part.end_of_stream
        if self._placed is not None:
            return answers.body([part.body], part.end_of_stream)
        self._chunks.append(part.body)
        self._held += len(part.body)
        self._bodies.hold(len(part.body))
        if part.end_of_stream or self._bodies.is_enough(self._held):
            return await self._place(part.end_of_stream)
        if self._held_until is None:
            self._held_until = asyncio.get_running_loop().time() + HOLD_SECONDS
        return []

    async def _place(self, ends: bool) -> list[ProcessingResponse]:
        """Choose an endpoint for what was held, unless that has happened; return where it goes, and the body."""
        if self._placed is not None:
            return []
        chunks, self._chunks = self._chunks, []
        self._held_until = None
        prompt = await self._read(b"".join(chunks))
        return [await self._destination(prompt), *answers.body(chunks, ends)]

    def _release(self) -> None:
        self._bodies.release(self._held)
        self._held = 0

    async def _destination(self, prompt: Prompt) -> ProcessingResponse:
        if self._client is None:
            raise InvalidRequest("the body came before the headers")
        is_background = prompt.is_background if self._is_background is None else self._is_background
        client = background(self._client) if is_background else self._client
        pick = await self._picker.place(client, self._weight, prompt, self._subset)
        self._placed = OpenRequest(self._picker, pick, prompt.most_output)
        self._by_id[pick.request.request_id] = self._placed
        return answers.destination([pick.endpoint, *pick.fallbacks], pick.request.request_id)
