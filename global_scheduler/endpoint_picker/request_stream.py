"""One HTTP request as Envoy shows it: from its headers to the end of its answer."""

from collections.abc import Mapping

from global_scheduler.core.endpoint_pool import Pick
from global_scheduler.endpoint_picker import answers
from global_scheduler.endpoint_picker.picker import Picker
from global_scheduler.endpoint_picker.refused import no_endpoint
from global_scheduler.endpoint_picker.request_body import Prompt, prompt_of
from global_scheduler.endpoint_picker.request_headers import client_of, headers_of, served_of, subset_of, weight_of
from serving.envoy.ext_proc_pb2 import HttpBody, HttpHeaders, Metadata, ProcessingRequest, ProcessingResponse

# A longer body is placed by its beginning, and its rest is passed on as it comes.
MOST_HELD = 4 * 1024 * 1024
FIRST_ERROR = 400  # HTTP status


class RequestStream:
    """Follows one request through its messages. A booking that it makes ends with `close`, whatever happens."""

    def __init__(self, picker: Picker, objectives: Mapping[str, int]) -> None:
        self._picker = picker
        self._objectives = objectives
        self._client = ""
        self._weight = 0
        self._subset: set[str] | None = None
        self._chunks: list[bytes] = []
        self._held = 0  # bytes
        self._body_ended = False
        self._prompt = Prompt()
        self._pick: Pick | None = None
        self._began: float | None = None  # when the answer began
        self._announced: int | None = None  # its length in bytes

    @property
    def is_answered(self) -> bool:
        """Return whether the answer has begun, after which the picker has nothing more to say."""
        return self._began is not None

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
                self._response_headers(message.response_headers, message.metadata_context)
                return [answers.RESPONSE_HEADERS]
            case "response_body":
                # Nothing is to be read there: the filter sends answers only if it is configured to.
                part = message.response_body
                return answers.response_body(part.body, part.end_of_stream)
            case "response_trailers":
                return [answers.RESPONSE_TRAILERS]
            case _:
                return []

    def close(self) -> None:
        """End the request: with a charge for its output if an answer began, else with a refund."""
        pick, self._pick = self._pick, None
        if pick is None:
            return
        if self._began is None:
            self._picker.refused(pick)
        else:
            self._picker.ended(pick, self._prompt, self._began, self._announced)

    async def _request_headers(self, message: HttpHeaders, metadata: Metadata) -> list[ProcessingResponse]:
        headers = headers_of(message)
        self._subset = subset_of(metadata)
        if self._subset is not None and not self._subset:
            raise no_endpoint("the subset has no endpoint")
        self._client = client_of(headers)
        self._weight = weight_of(headers, self._objectives)
        return [await self._destination()] if message.end_of_stream else []

    async def _request_body(self, part: HttpBody) -> list[ProcessingResponse]:
        if self._body_ended:
            return []  # Envoy may end a body twice
        self._body_ended = part.end_of_stream
        if self._pick is not None:
            return answers.body([part.body], part.end_of_stream)
        self._chunks.append(part.body)
        self._held += len(part.body)
        return await self._place(part.end_of_stream) if part.end_of_stream or self._held >= MOST_HELD else []

    async def _place(self, ends: bool) -> list[ProcessingResponse]:
        """Choose an endpoint for what was held, unless that has happened; return where it goes, and the body."""
        if self._pick is not None:
            return []
        chunks, self._chunks = self._chunks, []
        self._prompt = prompt_of(b"".join(chunks))
        return [await self._destination(), *answers.body(chunks, ends)]

    async def _destination(self) -> ProcessingResponse:
        self._pick = await self._picker.place(self._client, self._weight, self._prompt, self._subset)
        return answers.destination([self._pick.endpoint, *self._pick.fallbacks])

    def _response_headers(self, message: HttpHeaders, metadata: Metadata) -> None:
        if self._pick is None:
            return
        headers = headers_of(message)
        began = self._picker.served(self._pick, served_of(metadata))
        if int(headers.get(":status", "200")) >= FIRST_ERROR:
            self.close()
            return
        self._began = began
        self._announced = int(headers["content-length"]) if "content-length" in headers else None
