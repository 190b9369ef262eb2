from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AccountRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AccountResponse(_message.Message):
    __slots__ = ("apps", "degraded", "gateways", "placements")
    APPS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    apps: _containers.RepeatedCompositeFieldContainer[AppAccount]
    degraded: bool
    gateways: int
    placements: _containers.RepeatedCompositeFieldContainer[PlacementCount]
    def __init__(self, apps: _Optional[_Iterable[_Union[AppAccount, _Mapping[str, _Any]]]] = ..., degraded: _Optional[bool] = ..., gateways: _Optional[int] = ..., placements: _Optional[_Iterable[_Union[PlacementCount, _Mapping[str, _Any]]]] = ...) -> None: ...

class PlacementCount(_message.Message):
    __slots__ = ("chosen_by", "reason", "count")
    CHOSEN_BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    chosen_by: str
    reason: str
    count: int
    def __init__(self, chosen_by: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class AppAccount(_message.Message):
    __slots__ = ("app", "served", "throttled", "broken", "cancelled", "refused", "tokens", "wasted_tokens", "invalid")
    APP_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    WASTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INVALID_FIELD_NUMBER: _ClassVar[int]
    app: str
    served: int
    throttled: int
    broken: int
    cancelled: int
    refused: int
    tokens: int
    wasted_tokens: int
    invalid: int
    def __init__(self, app: _Optional[str] = ..., served: _Optional[int] = ..., throttled: _Optional[int] = ..., broken: _Optional[int] = ..., cancelled: _Optional[int] = ..., refused: _Optional[int] = ..., tokens: _Optional[int] = ..., wasted_tokens: _Optional[int] = ..., invalid: _Optional[int] = ...) -> None: ...
