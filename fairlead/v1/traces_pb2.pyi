from fairlead.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FindTraceRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class FindTraceResponse(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[TracedCall]
    def __init__(self, calls: _Optional[_Iterable[_Union[TracedCall, _Mapping[str, _Any]]]] = ...) -> None: ...

class TracedCall(_message.Message):
    __slots__ = ("request_id", "client", "app", "interaction", "stage", "model", "worker", "policy", "outcome", "finish_reason", "usage", "matched_tokens", "retries", "traceparent", "received", "finished", "phases", "caller_request_id", "named_app")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    INTERACTION_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    MATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    CALLER_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAMED_APP_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    client: str
    app: str
    interaction: str
    stage: int
    model: str
    worker: str
    policy: str
    outcome: _common_pb2.Outcome
    finish_reason: _common_pb2.FinishReason
    usage: _common_pb2.Usage
    matched_tokens: int
    retries: int
    traceparent: str
    received: int
    finished: int
    phases: _containers.RepeatedCompositeFieldContainer[Phase]
    caller_request_id: str
    named_app: str
    def __init__(self, request_id: _Optional[str] = ..., client: _Optional[str] = ..., app: _Optional[str] = ..., interaction: _Optional[str] = ..., stage: _Optional[int] = ..., model: _Optional[str] = ..., worker: _Optional[str] = ..., policy: _Optional[str] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, str]] = ..., finish_reason: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping[str, _Any]]] = ..., matched_tokens: _Optional[int] = ..., retries: _Optional[int] = ..., traceparent: _Optional[str] = ..., received: _Optional[int] = ..., finished: _Optional[int] = ..., phases: _Optional[_Iterable[_Union[Phase, _Mapping[str, _Any]]]] = ..., caller_request_id: _Optional[str] = ..., named_app: _Optional[str] = ...) -> None: ...

class Phase(_message.Message):
    __slots__ = ("name", "service", "start", "end")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    name: str
    service: str
    start: int
    end: int
    def __init__(self, name: _Optional[str] = ..., service: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
