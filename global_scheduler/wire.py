"""Messages as the core's values; raises InvalidRequest for what cannot be one."""

from collections.abc import Iterable, Iterator

from fairlead.errors import InvalidRequest, listed
from fairlead.v1 import scheduler_pb2
from global_scheduler.core.client_service_table import ClientService
from global_scheduler.core.fleet import WorkerIdentity, WorkerLoad
from global_scheduler.core.policies import RouteRequest
from serving.blocks import DIGEST_BYTES, BlockRun
from serving.wire import weight_from_proto

SHARED = ("block_tokens", "kv_tokens", "max_running")  # of a worker, whichever model a request is for


def request_from(message: scheduler_pb2.DispatchRequest) -> RouteRequest:
    """Return the attempt to place a request that a message describes; raise InvalidRequest."""
    if not message.request_id:
        raise InvalidRequest("must not be empty", "requests.request_id")
    return RouteRequest(
        request_id=message.request_id,
        attempt=message.attempt,
        client=message.client,
        model=message.model,
        digests=packed(message.digests, "requests.digests"),
        prompt_tokens=message.prompt_tokens,
        weight=weight_from_proto(message.weight, "requests.weight"),
        excluded=tuple(message.excluded),
        revision=message.revision,
        background=message.background,
    )


def accepted_from(message: scheduler_pb2.AcceptedRequest, identity: WorkerIdentity) -> RouteRequest:
    """Return a request that the worker `identity` has, wherever it was placed; raise InvalidRequest.

    Its blocks are reported by the worker's cache events.
    """
    if message.model not in identity.revisions:
        served = listed(list(identity.revisions))
        raise InvalidRequest(f"unknown model {message.model!r}; {identity.worker} serves {served}", "model")
    return RouteRequest(
        request_id=message.request_id,
        attempt=message.attempt,
        client=message.client,
        model=message.model,
        digests=b"",
        prompt_tokens=message.prompt_tokens,
        weight=weight_from_proto(message.weight, "accepted.weight"),
        background=message.background,
    )


def identity_from(hello: scheduler_pb2.Hello) -> WorkerIdentity:
    """Return the identity of the worker that says hello; raises InvalidRequest."""
    models = hello.models
    if not models:
        raise InvalidRequest("must be given", "hello.models")
    for model in models:
        _check_model(model, models[0])
    identity = WorkerIdentity(
        worker=hello.worker,
        instance=hello.instance,
        address=hello.address,
        revisions={model.name: model.revision for model in models},
        block_tokens=models[0].block_tokens,
        kv_tokens=models[0].kv_tokens,
        max_running=models[0].max_running,
    )
    if len(identity.revisions) < len(models):
        names = listed([model.name for model in models])
        raise InvalidRequest(f"each must have a name of its own, got {names}", "hello.models.name")
    for name in ("worker", "instance", "address"):
        if not getattr(identity, name):
            raise InvalidRequest("must be given", f"hello.{name}")
    return identity


def _check_model(model: scheduler_pb2.ModelInfo, first: scheduler_pb2.ModelInfo) -> None:
    for name in ("name", *SHARED):
        if not getattr(model, name):
            raise InvalidRequest("must be given", f"hello.models.{name}")
    for name in SHARED:
        one, other = getattr(first, name), getattr(model, name)
        if one != other:
            problem = f"must be the same of all models of a worker, got {one} ({first.name}) and {other} ({model.name})"
            raise InvalidRequest(problem, f"hello.models.{name}")


def load_from(message: scheduler_pb2.Load) -> WorkerLoad:
    """Return the load of interactive requests that a worker reports."""
    return WorkerLoad(
        running=message.running - message.background_running,
        waiting=message.waiting - message.background_waiting,
        kv_tokens_used=message.kv_tokens_used - message.background_kv_tokens,
        queue_seconds=message.queue_seconds,
        draining=message.draining,
        stalled_seconds=message.stalled_seconds,
    )


def services_from(message: scheduler_pb2.Load) -> Iterator[tuple[str, ClientService]]:
    """Yield each client with its service as plain values; a submessage would keep the whole message in memory."""
    for said in message.services:
        yield said.client, ClientService(said.service, said.weighted_service, said.balance, said.waiting, said.running)


def to_client_service(client: str, service: ClientService) -> scheduler_pb2.ClientService:
    """Return the message in which operators receive a client's service."""
    return scheduler_pb2.ClientService(
        client=client,
        service=service.service,
        weighted_service=service.weighted,
        balance=service.balance,
        waiting=service.waiting,
        running=service.running,
    )


def runs_from(messages: Iterable[scheduler_pb2.BlockRun], field: str) -> list[BlockRun]:
    """Return the runs of blocks in `messages`; raises InvalidRequest naming `field`."""
    return [BlockRun(message.parent, packed(message.digests, field)) for message in messages]


def packed(digests: bytes, field: str) -> bytes:
    """Return `digests` if their length is a multiple of a digest's; raises InvalidRequest naming `field`."""
    if len(digests) % DIGEST_BYTES:
        raise InvalidRequest(f"packed digests are a multiple of {DIGEST_BYTES} bytes, got {len(digests)}", field)
    return digests
