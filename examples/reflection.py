"""A client without Fairlead's code: reflection provides service, messages and fields, as with grpcurl.

Any language with gRPC can do the same, or generate code from protos/. Usage:
    reflection.py [ADDRESS] [METHOD] [JSON]
"""

import json
import os
import sys

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

GIVEN = dict(enumerate(sys.argv[1:]))
ADDRESS = GIVEN.get(0, "127.0.0.1:7000")
METHOD = GIVEN.get(1, "fairlead.v1.Inference/Generate")
BODY = GIVEN.get(2, '{"prompt": {"text": "The tide is"}, "sampling": {"maxTokens": 8}}')
KEY = os.environ.get("FAIRLEAD_API_KEY")
METADATA = [("authorization", f"Bearer {KEY}")] if KEY else []

with grpc.insecure_channel(ADDRESS) as channel:
    database = ProtoReflectionDescriptorDatabase(channel)
    print("services:", ", ".join(sorted(database.get_services())))
    service, _, name = METHOD.partition("/")
    method = DescriptorPool(database).FindServiceByName(service).FindMethodByName(name)
    request = json_format.ParseDict(json.loads(BODY), message_factory.GetMessageClass(method.input_type)())
    response = message_factory.GetMessageClass(method.output_type)
    call = channel.unary_stream if method.server_streaming else channel.unary_unary
    answer = call(
        f"/{METHOD}", request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response.FromString,
    )(request, metadata=METADATA)  # fmt: skip
    for message in answer if method.server_streaming else [answer]:
        print(json_format.MessageToJson(message, indent=None))
