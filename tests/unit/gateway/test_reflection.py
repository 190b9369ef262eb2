"""A client without generated code: everything it needs comes from the server's reflection."""

import grpc
import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.services import Stack, eventually


def test_a_generic_client_can_generate(stack: Stack) -> None:
    stack.worker("a")
    with grpc.insecure_channel(stack.gateway().address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "fairlead.v1.Inference" in database.get_services()
        pool = DescriptorPool(database)
        method = pool.FindServiceByName("fairlead.v1.Inference").FindMethodByName("Generate")
        request_class = message_factory.GetMessageClass(method.input_type)
        response_class = message_factory.GetMessageClass(method.output_type)
        call = channel.unary_stream(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=request_class.SerializeToString,
            response_deserializer=response_class.FromString,
        )
        body = {"prompt": {"text": "hello"}, "sampling": {"maxTokens": 3, "ignoreEos": True}}
        responses = [
            json_format.MessageToDict(response)
            for response in call(json_format.ParseDict(body, request_class()), timeout=60)
        ]
    assert responses[-1]["finished"]["outcome"] == "OUTCOME_COMPLETED"
    assert responses[-1]["finished"]["usage"]["outputTokens"] == 3


def test_health_says_when_there_is_a_worker(stack: Stack) -> None:
    gateway = stack.gateway()
    with grpc.insecure_channel(gateway.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def serving() -> bool:
            return stub.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING

        assert not serving()
        stack.worker("a")
        eventually(serving, "ready")
        stack.scheduler.kill()
        eventually(lambda: gateway.logged("scheduler is away"), "the gateway notices")
        assert serving()


def test_a_method_that_health_has_not_is_refused_as_an_unknown_one(stack: Stack) -> None:
    stack.worker("a")
    for process in (stack.gateway(), stack.scheduler, stack.workers["a"]):
        with grpc.insecure_channel(process.address) as channel, pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest())
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert caught.value.details() == "Method not found!"
        assert not [line for line in process.lines() if "exception" in line]
