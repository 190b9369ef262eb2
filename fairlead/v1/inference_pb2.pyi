from fairlead.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Streaming(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAMING_COALESCED: _ClassVar[Streaming]
    STREAMING_EACH_TOKEN: _ClassVar[Streaming]
STREAMING_COALESCED: Streaming
STREAMING_EACH_TOKEN: Streaming

class Interaction(_message.Message):
    __slots__ = ("id", "stage", "end", "token")
    ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    stage: int
    end: bool
    token: bytes
    def __init__(self, id: _Optional[str] = ..., stage: _Optional[int] = ..., end: _Optional[bool] = ..., token: _Optional[bytes] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("model", "prompt", "sampling", "app", "interaction", "streaming", "service_tier")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    INTERACTION_FIELD_NUMBER: _ClassVar[int]
    STREAMING_FIELD_NUMBER: _ClassVar[int]
    SERVICE_TIER_FIELD_NUMBER: _ClassVar[int]
    model: str
    prompt: _common_pb2.Prompt
    sampling: _common_pb2.SamplingParams
    app: str
    interaction: Interaction
    streaming: Streaming
    service_tier: str
    def __init__(self, model: _Optional[str] = ..., prompt: _Optional[_Union[_common_pb2.Prompt, _Mapping[str, _Any]]] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping[str, _Any]]] = ..., app: _Optional[str] = ..., interaction: _Optional[_Union[Interaction, _Mapping[str, _Any]]] = ..., streaming: _Optional[_Union[Streaming, str]] = ..., service_tier: _Optional[str] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("accepted", "chunk", "finished")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    accepted: Accepted
    chunk: TokenChunk
    finished: Finished
    def __init__(self, accepted: _Optional[_Union[Accepted, _Mapping[str, _Any]]] = ..., chunk: _Optional[_Union[TokenChunk, _Mapping[str, _Any]]] = ..., finished: _Optional[_Union[Finished, _Mapping[str, _Any]]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("request_id", "model", "worker", "prompt_tokens", "cached_tokens", "interaction_token", "app", "output_format", "service_tier")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INTERACTION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_TIER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    worker: str
    prompt_tokens: int
    cached_tokens: int
    interaction_token: bytes
    app: str
    output_format: _common_pb2.OutputFormat
    service_tier: str
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., worker: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., interaction_token: _Optional[bytes] = ..., app: _Optional[str] = ..., output_format: _Optional[_Union[_common_pb2.OutputFormat, _Mapping[str, _Any]]] = ..., service_tier: _Optional[str] = ...) -> None: ...

class TokenChunk(_message.Message):
    __slots__ = ("text", "token_ids", "logprobs", "prompt_logprobs")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    text: str
    token_ids: _common_pb2.TokenIds
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    def __init__(self, text: _Optional[str] = ..., token_ids: _Optional[_Union[_common_pb2.TokenIds, _Mapping[str, _Any]]] = ..., logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping[str, _Any]]]] = ..., prompt_logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping[str, _Any]]]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("outcome", "finish_reason", "usage", "timings", "stop_string")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    STOP_STRING_FIELD_NUMBER: _ClassVar[int]
    outcome: _common_pb2.Outcome
    finish_reason: _common_pb2.FinishReason
    usage: _common_pb2.Usage
    timings: _common_pb2.Timings
    stop_string: str
    def __init__(self, outcome: _Optional[_Union[_common_pb2.Outcome, str]] = ..., finish_reason: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping[str, _Any]]] = ..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping[str, _Any]]] = ..., stop_string: _Optional[str] = ...) -> None: ...

class EndInteractionRequest(_message.Message):
    __slots__ = ("app", "interaction")
    APP_FIELD_NUMBER: _ClassVar[int]
    INTERACTION_FIELD_NUMBER: _ClassVar[int]
    app: str
    interaction: Interaction
    def __init__(self, app: _Optional[str] = ..., interaction: _Optional[_Union[Interaction, _Mapping[str, _Any]]] = ...) -> None: ...

class EndInteractionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping[str, _Any]]]] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "max_model_tokens", "workers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_model_tokens: int
    workers: int
    def __init__(self, name: _Optional[str] = ..., max_model_tokens: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...
