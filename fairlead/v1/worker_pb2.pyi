from fairlead.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionCommands(_message.Message):
    __slots__ = ("submits", "aborts")
    SUBMITS_FIELD_NUMBER: _ClassVar[int]
    ABORTS_FIELD_NUMBER: _ClassVar[int]
    submits: _containers.RepeatedCompositeFieldContainer[Submit]
    aborts: _containers.RepeatedCompositeFieldContainer[Abort]
    def __init__(self, submits: _Optional[_Iterable[_Union[Submit, _Mapping[str, _Any]]]] = ..., aborts: _Optional[_Iterable[_Union[Abort, _Mapping[str, _Any]]]] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "attempt", "client", "token_ids", "generated_tokens", "sampling", "weight", "in_interaction", "cache_scope", "timeout_seconds", "system_tokens", "charged", "public_tokens", "model", "tokens_per_message", "interaction", "ends_interaction", "user_weight", "background", "call_grammar")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IN_INTERACTION_FIELD_NUMBER: _ClassVar[int]
    CACHE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHARGED_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    INTERACTION_FIELD_NUMBER: _ClassVar[int]
    ENDS_INTERACTION_FIELD_NUMBER: _ClassVar[int]
    USER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    CALL_GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    client: str
    token_ids: bytes
    generated_tokens: int
    sampling: _common_pb2.SamplingParams
    weight: float
    in_interaction: bool
    cache_scope: str
    timeout_seconds: float
    system_tokens: int
    charged: bool
    public_tokens: int
    model: str
    tokens_per_message: int
    interaction: str
    ends_interaction: bool
    user_weight: float
    background: bool
    call_grammar: str
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., client: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., generated_tokens: _Optional[int] = ..., sampling: _Optional[_Union[_common_pb2.SamplingParams, _Mapping[str, _Any]]] = ..., weight: _Optional[float] = ..., in_interaction: _Optional[bool] = ..., cache_scope: _Optional[str] = ..., timeout_seconds: _Optional[float] = ..., system_tokens: _Optional[int] = ..., charged: _Optional[bool] = ..., public_tokens: _Optional[int] = ..., model: _Optional[str] = ..., tokens_per_message: _Optional[int] = ..., interaction: _Optional[str] = ..., ends_interaction: _Optional[bool] = ..., user_weight: _Optional[float] = ..., background: _Optional[bool] = ..., call_grammar: _Optional[str] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class StepEvents(_message.Message):
    __slots__ = ("started", "tokens", "ended")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    started: _containers.RepeatedCompositeFieldContainer[Started]
    tokens: _containers.RepeatedCompositeFieldContainer[Tokens]
    ended: _containers.RepeatedCompositeFieldContainer[Ended]
    def __init__(self, started: _Optional[_Iterable[_Union[Started, _Mapping[str, _Any]]]] = ..., tokens: _Optional[_Iterable[_Union[Tokens, _Mapping[str, _Any]]]] = ..., ended: _Optional[_Iterable[_Union[Ended, _Mapping[str, _Any]]]] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("request_id", "attempt", "cached_tokens", "service")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    cached_tokens: int
    service: float
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., service: _Optional[float] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("request_id", "attempt", "token_ids", "text", "logprobs", "prompt_logprobs", "service")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    token_ids: bytes
    text: str
    logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    prompt_logprobs: _containers.RepeatedCompositeFieldContainer[_common_pb2.TokenLogprobs]
    service: float
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., text: _Optional[str] = ..., logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping[str, _Any]]]] = ..., prompt_logprobs: _Optional[_Iterable[_Union[_common_pb2.TokenLogprobs, _Mapping[str, _Any]]]] = ..., service: _Optional[float] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("request_id", "attempt", "outcome", "finish_reason", "message", "usage", "timings", "text", "stop_string", "field")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STOP_STRING_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    outcome: _common_pb2.Outcome
    finish_reason: _common_pb2.FinishReason
    message: str
    usage: _common_pb2.Usage
    timings: _common_pb2.Timings
    text: str
    stop_string: str
    field: str
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., outcome: _Optional[_Union[_common_pb2.Outcome, str]] = ..., finish_reason: _Optional[_Union[_common_pb2.FinishReason, str]] = ..., message: _Optional[str] = ..., usage: _Optional[_Union[_common_pb2.Usage, _Mapping[str, _Any]]] = ..., timings: _Optional[_Union[_common_pb2.Timings, _Mapping[str, _Any]]] = ..., text: _Optional[str] = ..., stop_string: _Optional[str] = ..., field: _Optional[str] = ...) -> None: ...

class EncodeRequest(_message.Message):
    __slots__ = ("prompt", "cache_scope", "public_system", "client", "model", "without_special_tokens")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SCOPE_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_SYSTEM_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt: _common_pb2.Prompt
    cache_scope: str
    public_system: bool
    client: str
    model: str
    without_special_tokens: bool
    def __init__(self, prompt: _Optional[_Union[_common_pb2.Prompt, _Mapping[str, _Any]]] = ..., cache_scope: _Optional[str] = ..., public_system: _Optional[bool] = ..., client: _Optional[str] = ..., model: _Optional[str] = ..., without_special_tokens: _Optional[bool] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ("token_ids", "digests", "system_tokens", "public_tokens", "revision", "output_format", "call_grammar", "granted")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    CALL_GRAMMAR_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    digests: bytes
    system_tokens: int
    public_tokens: int
    revision: str
    output_format: _common_pb2.OutputFormat
    call_grammar: str
    granted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, token_ids: _Optional[bytes] = ..., digests: _Optional[bytes] = ..., system_tokens: _Optional[int] = ..., public_tokens: _Optional[int] = ..., revision: _Optional[str] = ..., output_format: _Optional[_Union[_common_pb2.OutputFormat, _Mapping[str, _Any]]] = ..., call_grammar: _Optional[str] = ..., granted: _Optional[_Iterable[str]] = ...) -> None: ...

class ShortPrompts(_message.Message):
    __slots__ = ("prompts",)
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    prompts: _containers.RepeatedCompositeFieldContainer[ShortPrompt]
    def __init__(self, prompts: _Optional[_Iterable[_Union[ShortPrompt, _Mapping[str, _Any]]]] = ...) -> None: ...

class ShortPrompt(_message.Message):
    __slots__ = ("number", "request")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    number: int
    request: EncodeRequest
    def __init__(self, number: _Optional[int] = ..., request: _Optional[_Union[EncodeRequest, _Mapping[str, _Any]]] = ...) -> None: ...

class EncodedPrompts(_message.Message):
    __slots__ = ("encoded",)
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    encoded: _containers.RepeatedCompositeFieldContainer[EncodedPrompt]
    def __init__(self, encoded: _Optional[_Iterable[_Union[EncodedPrompt, _Mapping[str, _Any]]]] = ...) -> None: ...

class EncodedPrompt(_message.Message):
    __slots__ = ("number", "response")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    number: int
    response: EncodeResponse
    def __init__(self, number: _Optional[int] = ..., response: _Optional[_Union[EncodeResponse, _Mapping[str, _Any]]] = ...) -> None: ...

class DecodeRequest(_message.Message):
    __slots__ = ("token_ids", "client", "model")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    client: str
    model: str
    def __init__(self, token_ids: _Optional[bytes] = ..., client: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class DecodeResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...
