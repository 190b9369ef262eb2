from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UsageRequest(_message.Message):
    __slots__ = ("since",)
    SINCE_FIELD_NUMBER: _ClassVar[int]
    since: str
    def __init__(self, since: _Optional[str] = ...) -> None: ...

class UsageResponse(_message.Message):
    __slots__ = ("ledger", "rows")
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ledger: str
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    def __init__(self, ledger: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[UsageRow, _Mapping[str, _Any]]]] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("day", "tenant", "user", "app", "model", "calls", "prompt_tokens", "cached_tokens", "output_tokens", "micro_cost", "nano_money", "waited_us", "weight")
    DAY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MICRO_COST_FIELD_NUMBER: _ClassVar[int]
    NANO_MONEY_FIELD_NUMBER: _ClassVar[int]
    WAITED_US_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    day: str
    tenant: str
    user: str
    app: str
    model: str
    calls: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    micro_cost: int
    nano_money: int
    waited_us: int
    weight: float
    def __init__(self, day: _Optional[str] = ..., tenant: _Optional[str] = ..., user: _Optional[str] = ..., app: _Optional[str] = ..., model: _Optional[str] = ..., calls: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., micro_cost: _Optional[int] = ..., nano_money: _Optional[int] = ..., waited_us: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...

class AccountRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AccountResponse(_message.Message):
    __slots__ = ("apps", "degraded", "gateways", "placements", "predictions", "close_predictions")
    APPS_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    GATEWAYS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    apps: _containers.RepeatedCompositeFieldContainer[AppAccount]
    degraded: bool
    gateways: int
    placements: _containers.RepeatedCompositeFieldContainer[PlacementCount]
    predictions: int
    close_predictions: int
    def __init__(self, apps: _Optional[_Iterable[_Union[AppAccount, _Mapping[str, _Any]]]] = ..., degraded: _Optional[bool] = ..., gateways: _Optional[int] = ..., placements: _Optional[_Iterable[_Union[PlacementCount, _Mapping[str, _Any]]]] = ..., predictions: _Optional[int] = ..., close_predictions: _Optional[int] = ...) -> None: ...

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
