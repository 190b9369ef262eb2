"""What a picker says to Envoy."""

import json
from collections.abc import Iterable, Sequence

from endpoint_picker.request_headers import DESTINATION
from serving.envoy import ext_proc_pb2
from serving.envoy.ext_proc_pb2 import HeaderValueOption

TOO_MANY_REQUESTS = 429
NAMESPACE = "envoy.lb"
PICK = "x-fairlead-pick"
REASON = "x-llm-d-request-dropped-reason"
# Envoy's default limit for a buffered piece of a body is 64 KiB.
MOST_BODY = 62 * 1024
OVERWRITE = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def destination(endpoints: Sequence[str], request_id: str) -> ext_proc_pb2.ProcessingResponse:
    """Send a request to the first of `endpoints`, and to the next where that fails: as header and as metadata.

    Another header has the picker's id of the request, for a stream that follows it.
    """
    value = ",".join(endpoints)
    headers = [_header(DESTINATION, value), _header(PICK, request_id)]
    response = ext_proc_pb2.ProcessingResponse(
        request_headers=ext_proc_pb2.HeadersResponse(
            response=ext_proc_pb2.CommonResponse(
                header_mutation=ext_proc_pb2.HeaderMutation(set_headers=headers),
                clear_route_cache=True,
            )
        )
    )
    response.dynamic_metadata.fields[NAMESPACE].struct_value.fields[DESTINATION].string_value = value
    return response


def body(chunks: Iterable[bytes], ends: bool) -> list[ext_proc_pb2.ProcessingResponse]:
    """Return a request's body, as it came, in pieces of at most MOST_BODY; the last ends it if `ends`."""
    whole = b"".join(chunks)
    pieces = [whole[start : start + MOST_BODY] for start in range(0, len(whole), MOST_BODY)] or [b""]
    last = len(pieces) if ends else 0
    streamed = [_streamed(piece, number == last) for number, piece in enumerate(pieces, start=1)]
    return [ext_proc_pb2.ProcessingResponse(request_body=each) for each in streamed]


def response_body(part: bytes, ends: bool) -> list[ext_proc_pb2.ProcessingResponse]:
    return [ext_proc_pb2.ProcessingResponse(response_body=_streamed(part, ends))]


def refusal(status: int, reason: str, message: str) -> ext_proc_pb2.ProcessingResponse:
    """Answer a request at once: with an HTTP `status`, the word `reason` in a header, and an error in OpenAI's form."""
    error = {"error": {"message": message, "type": reason, "param": None, "code": status}}
    headers = [_header("content-type", "application/json"), _header(REASON, reason)]
    if status == TOO_MANY_REQUESTS:
        headers.append(_header("retry-after", "1"))
    return ext_proc_pb2.ProcessingResponse(
        immediate_response=ext_proc_pb2.ImmediateResponse(
            status=ext_proc_pb2.HttpStatus(code=status),
            headers=ext_proc_pb2.HeaderMutation(set_headers=headers),
            body=json.dumps(error).encode(),
            details=f"fairlead_{reason.replace('-', '_')}",
        )
    )


def _streamed(part: bytes, ends: bool) -> ext_proc_pb2.BodyResponse:
    streamed = ext_proc_pb2.StreamedBodyResponse(body=part, end_of_stream=ends)
    mutation = ext_proc_pb2.BodyMutation(streamed_response=streamed)
    return ext_proc_pb2.BodyResponse(response=ext_proc_pb2.CommonResponse(body_mutation=mutation))


def _header(name: str, value: str) -> HeaderValueOption:
    header = ext_proc_pb2.HeaderValue(key=name, raw_value=value.encode())
    return HeaderValueOption(header=header, append_action=OVERWRITE)


REQUEST_TRAILERS = ext_proc_pb2.ProcessingResponse(request_trailers=ext_proc_pb2.TrailersResponse())
RESPONSE_HEADERS = ext_proc_pb2.ProcessingResponse(response_headers=ext_proc_pb2.HeadersResponse())
RESPONSE_TRAILERS = ext_proc_pb2.ProcessingResponse(response_trailers=ext_proc_pb2.TrailersResponse())
