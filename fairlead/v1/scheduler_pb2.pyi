from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import Any as _Any, ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Unplaced(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNPLACED_UNSPECIFIED: _ClassVar[Unplaced]
    UNPLACED_STANDBY: _ClassVar[Unplaced]
    UNPLACED_MALFORMED: _ClassVar[Unplaced]
    UNPLACED_NO_WORKER: _ClassVar[Unplaced]
UNPLACED_UNSPECIFIED: Unplaced
UNPLACED_STANDBY: Unplaced
UNPLACED_MALFORMED: Unplaced
UNPLACED_NO_WORKER: Unplaced

class DispatchBatch(_message.Message):
    __slots__ = ("requests", "withdrawals")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWALS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[DispatchRequest]
    withdrawals: _containers.RepeatedCompositeFieldContainer[Withdrawal]
    def __init__(self, requests: _Optional[_Iterable[_Union[DispatchRequest, _Mapping[str, _Any]]]] = ..., withdrawals: _Optional[_Iterable[_Union[Withdrawal, _Mapping[str, _Any]]]] = ...) -> None: ...

class DispatchRequest(_message.Message):
    __slots__ = ("request_id", "attempt", "client", "model", "digests", "prompt_tokens", "excluded", "weight", "revision", "background")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    client: str
    model: str
    digests: bytes
    prompt_tokens: int
    excluded: _containers.RepeatedScalarFieldContainer[str]
    weight: float
    revision: str
    background: bool
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., client: _Optional[str] = ..., model: _Optional[str] = ..., digests: _Optional[bytes] = ..., prompt_tokens: _Optional[int] = ..., excluded: _Optional[_Iterable[str]] = ..., weight: _Optional[float] = ..., revision: _Optional[str] = ..., background: _Optional[bool] = ...) -> None: ...

class Withdrawal(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class DispatchReplies(_message.Message):
    __slots__ = ("replies",)
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[DispatchReply]
    def __init__(self, replies: _Optional[_Iterable[_Union[DispatchReply, _Mapping[str, _Any]]]] = ...) -> None: ...

class DispatchReply(_message.Message):
    __slots__ = ("request_id", "attempt", "worker", "address", "matched_tokens", "selected_at", "instance", "unplaced", "problem", "scheduler")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SELECTED_AT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    UNPLACED_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    worker: str
    address: str
    matched_tokens: int
    selected_at: int
    instance: str
    unplaced: Unplaced
    problem: str
    scheduler: str
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., worker: _Optional[str] = ..., address: _Optional[str] = ..., matched_tokens: _Optional[int] = ..., selected_at: _Optional[int] = ..., instance: _Optional[str] = ..., unplaced: _Optional[_Union[Unplaced, str]] = ..., problem: _Optional[str] = ..., scheduler: _Optional[str] = ...) -> None: ...

class WorkerReport(_message.Message):
    __slots__ = ("hello", "load", "progress")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    load: Load
    progress: Progress
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping[str, _Any]]] = ..., load: _Optional[_Union[Load, _Mapping[str, _Any]]] = ..., progress: _Optional[_Union[Progress, _Mapping[str, _Any]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("worker", "instance", "address", "model", "cached", "requests", "models", "engine_address", "slower")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SLOWER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    instance: str
    address: str
    model: ModelInfo
    cached: _containers.RepeatedCompositeFieldContainer[BlockRun]
    requests: _containers.RepeatedCompositeFieldContainer[AcceptedRequest]
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    engine_address: str
    slower: _containers.RepeatedCompositeFieldContainer[SlowerBlocks]
    def __init__(self, worker: _Optional[str] = ..., instance: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[ModelInfo, _Mapping[str, _Any]]] = ..., cached: _Optional[_Iterable[_Union[BlockRun, _Mapping[str, _Any]]]] = ..., requests: _Optional[_Iterable[_Union[AcceptedRequest, _Mapping[str, _Any]]]] = ..., models: _Optional[_Iterable[_Union[ModelInfo, _Mapping[str, _Any]]]] = ..., engine_address: _Optional[str] = ..., slower: _Optional[_Iterable[_Union[SlowerBlocks, _Mapping[str, _Any]]]] = ...) -> None: ...

class SlowerBlocks(_message.Message):
    __slots__ = ("tier", "cached", "evicted")
    TIER_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    tier: int
    cached: _containers.RepeatedCompositeFieldContainer[BlockRun]
    evicted: bytes
    def __init__(self, tier: _Optional[int] = ..., cached: _Optional[_Iterable[_Union[BlockRun, _Mapping[str, _Any]]]] = ..., evicted: _Optional[bytes] = ...) -> None: ...

class BlockRun(_message.Message):
    __slots__ = ("parent", "digests")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    parent: int
    digests: bytes
    def __init__(self, parent: _Optional[int] = ..., digests: _Optional[bytes] = ...) -> None: ...

class AcceptedRequest(_message.Message):
    __slots__ = ("request_id", "attempt", "client", "prompt_tokens", "weight", "model", "cached_tokens", "background")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    client: str
    prompt_tokens: int
    weight: float
    model: str
    cached_tokens: int
    background: bool
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., client: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., weight: _Optional[float] = ..., model: _Optional[str] = ..., cached_tokens: _Optional[int] = ..., background: _Optional[bool] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("name", "max_model_tokens", "vocab_size", "block_tokens", "kv_tokens", "max_running", "policy", "max_prompt_tokens", "cost", "admission", "revision", "longest_token", "engine")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNNING_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    MAX_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LONGEST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_model_tokens: int
    vocab_size: int
    block_tokens: int
    kv_tokens: int
    max_running: int
    policy: str
    max_prompt_tokens: int
    cost: str
    admission: str
    revision: str
    longest_token: int
    engine: str
    def __init__(self, name: _Optional[str] = ..., max_model_tokens: _Optional[int] = ..., vocab_size: _Optional[int] = ..., block_tokens: _Optional[int] = ..., kv_tokens: _Optional[int] = ..., max_running: _Optional[int] = ..., policy: _Optional[str] = ..., max_prompt_tokens: _Optional[int] = ..., cost: _Optional[str] = ..., admission: _Optional[str] = ..., revision: _Optional[str] = ..., longest_token: _Optional[int] = ..., engine: _Optional[str] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("running", "waiting", "kv_tokens_used", "step_seconds", "draining", "queue_seconds", "services", "fairness_gap", "recomputed_tokens", "stalled_seconds", "prompt_tokens", "cached_tokens", "fairness_bound", "service_rate", "levels", "background_running", "background_waiting", "background_kv_tokens", "preemptions", "paused_decodes", "deferred_preemptions", "tenant_pages", "client_pages", "evicted_pages")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_TOKENS_USED_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_GAP_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STALLED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_BOUND_FIELD_NUMBER: _ClassVar[int]
    SERVICE_RATE_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_RUNNING_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_WAITING_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_KV_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_DECODES_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    TENANT_PAGES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_PAGES_FIELD_NUMBER: _ClassVar[int]
    EVICTED_PAGES_FIELD_NUMBER: _ClassVar[int]
    running: int
    waiting: int
    kv_tokens_used: int
    step_seconds: float
    draining: bool
    queue_seconds: float
    services: _containers.RepeatedCompositeFieldContainer[ClientService]
    fairness_gap: float
    recomputed_tokens: int
    stalled_seconds: float
    prompt_tokens: int
    cached_tokens: int
    fairness_bound: float
    service_rate: float
    levels: _containers.RepeatedCompositeFieldContainer[LevelGap]
    background_running: int
    background_waiting: int
    background_kv_tokens: int
    preemptions: int
    paused_decodes: int
    deferred_preemptions: int
    tenant_pages: _containers.RepeatedCompositeFieldContainer[PageShare]
    client_pages: _containers.RepeatedCompositeFieldContainer[PageShare]
    evicted_pages: _containers.RepeatedCompositeFieldContainer[EvictedPages]
    def __init__(self, running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_tokens_used: _Optional[int] = ..., step_seconds: _Optional[float] = ..., draining: _Optional[bool] = ..., queue_seconds: _Optional[float] = ..., services: _Optional[_Iterable[_Union[ClientService, _Mapping[str, _Any]]]] = ..., fairness_gap: _Optional[float] = ..., recomputed_tokens: _Optional[int] = ..., stalled_seconds: _Optional[float] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., fairness_bound: _Optional[float] = ..., service_rate: _Optional[float] = ..., levels: _Optional[_Iterable[_Union[LevelGap, _Mapping[str, _Any]]]] = ..., background_running: _Optional[int] = ..., background_waiting: _Optional[int] = ..., background_kv_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., paused_decodes: _Optional[int] = ..., deferred_preemptions: _Optional[int] = ..., tenant_pages: _Optional[_Iterable[_Union[PageShare, _Mapping[str, _Any]]]] = ..., client_pages: _Optional[_Iterable[_Union[PageShare, _Mapping[str, _Any]]]] = ..., evicted_pages: _Optional[_Iterable[_Union[EvictedPages, _Mapping[str, _Any]]]] = ...) -> None: ...

class PageShare(_message.Message):
    __slots__ = ("name", "pages", "part")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    name: str
    pages: float
    part: float
    def __init__(self, name: _Optional[str] = ..., pages: _Optional[float] = ..., part: _Optional[float] = ...) -> None: ...

class EvictedPages(_message.Message):
    __slots__ = ("taker", "owner", "pages")
    TAKER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    taker: str
    owner: str
    pages: int
    def __init__(self, taker: _Optional[str] = ..., owner: _Optional[str] = ..., pages: _Optional[int] = ...) -> None: ...

class LevelGap(_message.Message):
    __slots__ = ("level", "gap")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    level: str
    gap: float
    def __init__(self, level: _Optional[str] = ..., gap: _Optional[float] = ...) -> None: ...

class ClientService(_message.Message):
    __slots__ = ("client", "service", "balance", "waiting", "running", "weighted_service")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    BALANCE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_SERVICE_FIELD_NUMBER: _ClassVar[int]
    client: str
    service: float
    balance: float
    waiting: int
    running: int
    weighted_service: float
    def __init__(self, client: _Optional[str] = ..., service: _Optional[float] = ..., balance: _Optional[float] = ..., waiting: _Optional[int] = ..., running: _Optional[int] = ..., weighted_service: _Optional[float] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("evicted", "ended", "cached", "accepted", "computed", "slower")
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    SLOWER_FIELD_NUMBER: _ClassVar[int]
    evicted: bytes
    ended: _containers.RepeatedCompositeFieldContainer[RequestEnd]
    cached: _containers.RepeatedCompositeFieldContainer[BlockRun]
    accepted: _containers.RepeatedCompositeFieldContainer[AcceptedRequest]
    computed: _containers.RepeatedCompositeFieldContainer[ComputedPrompt]
    slower: _containers.RepeatedCompositeFieldContainer[SlowerBlocks]
    def __init__(self, evicted: _Optional[bytes] = ..., ended: _Optional[_Iterable[_Union[RequestEnd, _Mapping[str, _Any]]]] = ..., cached: _Optional[_Iterable[_Union[BlockRun, _Mapping[str, _Any]]]] = ..., accepted: _Optional[_Iterable[_Union[AcceptedRequest, _Mapping[str, _Any]]]] = ..., computed: _Optional[_Iterable[_Union[ComputedPrompt, _Mapping[str, _Any]]]] = ..., slower: _Optional[_Iterable[_Union[SlowerBlocks, _Mapping[str, _Any]]]] = ...) -> None: ...

class ComputedPrompt(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class RequestEnd(_message.Message):
    __slots__ = ("request_id", "attempt", "started", "output_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    started: bool
    output_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., started: _Optional[bool] = ..., output_tokens: _Optional[int] = ...) -> None: ...

class WorkerCommand(_message.Message):
    __slots__ = ("attached", "drain", "flush")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    drain: DrainCommand
    flush: FlushCommand
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping[str, _Any]]] = ..., drain: _Optional[_Union[DrainCommand, _Mapping[str, _Any]]] = ..., flush: _Optional[_Union[FlushCommand, _Mapping[str, _Any]]] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainCommand(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushCommand(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("epoch", "takes_changes")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TAKES_CHANGES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    takes_changes: bool
    def __init__(self, epoch: _Optional[int] = ..., takes_changes: _Optional[bool] = ...) -> None: ...

class ClusterState(_message.Message):
    __slots__ = ("members", "pools", "epoch", "is_change", "left")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_CHANGE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    epoch: int
    is_change: bool
    left: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping[str, _Any]]]] = ..., pools: _Optional[_Iterable[_Union[Pool, _Mapping[str, _Any]]]] = ..., epoch: _Optional[int] = ..., is_change: _Optional[bool] = ..., left: _Optional[_Iterable[str]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("worker", "instance", "address", "model", "load", "models")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    instance: str
    address: str
    model: ModelInfo
    load: Load
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    def __init__(self, worker: _Optional[str] = ..., instance: _Optional[str] = ..., address: _Optional[str] = ..., model: _Optional[_Union[ModelInfo, _Mapping[str, _Any]]] = ..., load: _Optional[_Union[Load, _Mapping[str, _Any]]] = ..., models: _Optional[_Iterable[_Union[ModelInfo, _Mapping[str, _Any]]]] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("model", "overloaded")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OVERLOADED_FIELD_NUMBER: _ClassVar[int]
    model: str
    overloaded: bool
    def __init__(self, model: _Optional[str] = ..., overloaded: _Optional[bool] = ...) -> None: ...

class FlushWorkerRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class FlushWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainWorkerRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class DrainWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListClientsRequest(_message.Message):
    __slots__ = ("most",)
    MOST_FIELD_NUMBER: _ClassVar[int]
    most: int
    def __init__(self, most: _Optional[int] = ...) -> None: ...

class ListClientsResponse(_message.Message):
    __slots__ = ("cluster", "policy", "clients", "remembered")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    REMEMBERED_FIELD_NUMBER: _ClassVar[int]
    cluster: ClusterState
    policy: str
    clients: _containers.RepeatedCompositeFieldContainer[ClientTotal]
    remembered: int
    def __init__(self, cluster: _Optional[_Union[ClusterState, _Mapping[str, _Any]]] = ..., policy: _Optional[str] = ..., clients: _Optional[_Iterable[_Union[ClientTotal, _Mapping[str, _Any]]]] = ..., remembered: _Optional[int] = ...) -> None: ...

class ClientTotal(_message.Message):
    __slots__ = ("client", "service", "weighted_service", "running", "waiting")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_SERVICE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    client: str
    service: float
    weighted_service: float
    running: int
    waiting: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[str] = ..., service: _Optional[float] = ..., weighted_service: _Optional[float] = ..., running: _Optional[int] = ..., waiting: _Optional[_Iterable[int]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("cluster", "services", "policy", "clients", "placed_by_others")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    PLACED_BY_OTHERS_FIELD_NUMBER: _ClassVar[int]
    cluster: ClusterState
    services: _containers.RepeatedCompositeFieldContainer[WorkerService]
    policy: str
    clients: int
    placed_by_others: int
    def __init__(self, cluster: _Optional[_Union[ClusterState, _Mapping[str, _Any]]] = ..., services: _Optional[_Iterable[_Union[WorkerService, _Mapping[str, _Any]]]] = ..., policy: _Optional[str] = ..., clients: _Optional[int] = ..., placed_by_others: _Optional[int] = ...) -> None: ...

class WorkerService(_message.Message):
    __slots__ = ("worker", "clients")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    clients: _containers.RepeatedCompositeFieldContainer[ClientService]
    def __init__(self, worker: _Optional[str] = ..., clients: _Optional[_Iterable[_Union[ClientService, _Mapping[str, _Any]]]] = ...) -> None: ...
