"""The endpoint picker protocol as Envoy speaks it."""

import json
from typing import Any

import grpc

from serving.envoy import ext_proc_pb2, ext_proc_pb2_grpc

DESTINATION = "x-gateway-destination-endpoint"
Response = ext_proc_pb2.ProcessingResponse


class Stream:
    """One stream to a picker, as Envoy's filter opens it for a request."""

    def __init__(self, stub: ext_proc_pb2_grpc.ExternalProcessorStub) -> None:
        self.call: Any = stub.Process()

    request_id: str  # by which the picker knows it

    async def headers(self, end: bool = False, subset: Any = None, **headers: str) -> None:
        given = [
            ext_proc_pb2.HeaderValue(key=name.replace("_", "-"), raw_value=value.encode())
            for name, value in headers.items()
        ]
        message = ext_proc_pb2.ProcessingRequest()
        message.request_headers.headers.headers.extend(given)
        message.request_headers.end_of_stream = end
        if subset is not None:
            hint = {f"{DESTINATION}-subset": subset}
            message.metadata_context.filter_metadata["envoy.lb.subset_hint"].update(hint)
        await self.call.write(message)

    async def body(self, data: bytes, end: bool = True) -> None:
        part = ext_proc_pb2.HttpBody(body=data, end_of_stream=end)
        await self.call.write(ext_proc_pb2.ProcessingRequest(request_body=part))

    async def answered(self, status: str = "200", served: str = "", **headers: str) -> None:
        """Tell the picker of the answer's headers, and read what it says."""
        message = ext_proc_pb2.ProcessingRequest()
        given = {":status": status, **{name.replace("_", "-"): value for name, value in headers.items()}}
        for name, value in given.items():
            message.response_headers.headers.headers.add(key=name, raw_value=value.encode())
        if served:
            message.metadata_context.filter_metadata["envoy.lb"].update(
                {"x-gateway-destination-endpoint-served": served}
            )
        await self.call.write(message)
        assert (await self.read()).HasField("response_headers")

    async def read(self) -> Response:
        response = await self.call.read()
        assert response is not grpc.aio.EOF
        return response

    async def chosen(self) -> list[str]:
        """The endpoints that the picker names, the first first."""
        response = await self.read()
        common = response.request_headers.response
        header, named = common.header_mutation.set_headers
        self.request_id = named.header.raw_value.decode()
        assert header.header.key == DESTINATION
        assert header.append_action == ext_proc_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
        metadata = response.dynamic_metadata.fields["envoy.lb"].struct_value.fields
        assert metadata[DESTINATION].string_value.encode() == header.header.raw_value
        assert common.clear_route_cache
        return header.header.raw_value.decode().split(",")

    async def passed_on(self) -> bytes:
        """The request's body, as the picker passes it on to its end."""
        whole = b""
        while True:
            part = (await self.read()).request_body.response.body_mutation.streamed_response
            assert len(part.body) < 64 * 1024
            whole += part.body
            if part.end_of_stream:
                return whole

    async def refused(self) -> tuple[int, str, str]:
        """Status, reason and message of a refusal, after which the picker has closed the stream."""
        immediate = (await self.read()).immediate_response
        assert await self.call.read() is grpc.aio.EOF
        headers = {each.header.key: each.header.raw_value.decode() for each in immediate.headers.set_headers}
        message = json.loads(immediate.body)["error"]["message"]
        return immediate.status.code, headers["x-llm-d-request-dropped-reason"], message

    async def end(self) -> None:
        """End the stream as Envoy does at a request's end; returns when the picker has noticed."""
        await self.call.done_writing()
        assert await self.call.read() is grpc.aio.EOF

    async def place(self, body: bytes, **headers: str) -> str:
        """Ask for an endpoint for a request with `body`."""
        await self.headers(False, None, **headers)
        await self.body(body)
        endpoint = (await self.chosen())[0]
        assert await self.passed_on() == body
        return endpoint
