"""What Envoy's descriptors say about a call: entries of keys and values, which routes of Envoy assemble.

A descriptor with a key that is not in KEYS, or without a caller, is a mistake in Envoy's configuration and an error. A
value that cannot be read may come from a client. It must not end in an error, which Envoy by default answers by letting
the call pass: it refuses the call.

A descriptor with the key `book` asks nothing: at the end of a stream it tells how many tokens the call had.
"""

from collections.abc import Collection
from typing import NamedTuple

from fairlead.errors import InvalidRequest
from fairlead.v1 import inference_pb2
from serving import interaction_header
from serving.envoy import ratelimit_pb2
from serving.names import MAX_NAME, normalized
from serving.service_tiers import FLEX
from throttler.core.profiles import DEFAULT_APP
from throttler.core.throttle import Caller

DEFAULT_TENANT = "default"
KEYS = ("tenant", "user", "app", "model", "key", "interaction", "stage", "request", "service_tier", "book")
BOOKED = ("input", "cached", "output")
MAX_DIGITS = 9  # in a stage
MAX_TOKEN = 1024  # bytes of an interaction's token; valid ones are far shorter


class InvalidValue(Exception):
    """The value of an entry cannot be read, so that the call has to be refused."""


class Question(NamedTuple):
    """The call about which a descriptor asks."""

    caller: Caller
    model: str  # empty: any
    interaction: inference_pb2.Interaction  # its id is empty if the call belongs to none
    stage: int
    request: str  # the call's id; empty: its use is not booked later
    prompt_tokens: int  # 0: not known
    background: bool  # it is of the background class


class Booking(NamedTuple):
    """The tokens of a call that has ended: of its prompt, cached ones among them, or of its output."""

    caller: Caller
    model: str
    request: str  # the call's id; empty: it reserved nothing that can be found
    input: int = 0
    cached: int = 0
    output: int = 0


def read(
    descriptor: ratelimit_pb2.RateLimitDescriptor, path: str, profiled: Collection[str], request_hits: int
) -> Question | Booking:
    """Return the question or the report in `descriptor`; an app that is not `profiled` counts as the default app.

    `request_hits` is the `hits_addend` of the request, which holds for a descriptor that has none of its own. There 0
    means 1, as the protocol says: the request is one call, and tells no tokens.

    Raise InvalidRequest, which names the entry at `path`, for a mistake in Envoy's configuration; raise InvalidValue
    for a value that cannot be read.
    """
    values = _entries(descriptor, path)
    tenant, user, app, model, key = (_name(name, values.get(name, "")) for name in KEYS[:5])
    if "/" in tenant:
        raise InvalidValue(f"tenant: expected a name without '/', got {tenant!r}")
    tenant = tenant or DEFAULT_TENANT
    client = f"{tenant}/{user}" if user else tenant
    caller = Caller(tenant, client, app if app in profiled else DEFAULT_APP, key)
    request, hits = _request(values.get("request", "")), _tokens(descriptor, request_hits)
    if "book" in values:
        return Booking(caller, model, request, **{values["book"]: hits})
    interaction = _interaction(values.get("interaction", ""))
    stage, background = _stage(values.get("stage", "0")), values.get("service_tier") == FLEX
    return Question(caller, model, interaction, stage, request, hits, background)


def _entries(descriptor: ratelimit_pb2.RateLimitDescriptor, path: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, entry in enumerate(descriptor.entries):
        where = f"{path}.entries[{number}].key"
        if entry.key not in KEYS:
            raise InvalidRequest(f"must be one of {', '.join(KEYS)}, got {entry.key[:MAX_NAME]!a}", where)
        if entry.key in values:
            raise InvalidRequest(f"{entry.key} is given twice", where)
        value = values[entry.key] = _text(entry.key, entry.value)
        if entry.key == "book" and value not in BOOKED:
            where = f"{path}.entries[{number}].value"
            raise InvalidRequest(f"book: must be one of {', '.join(BOOKED)}, got {value[:MAX_NAME]!a}", where)
    if not ("tenant" in values or "user" in values):
        raise InvalidRequest("names neither a tenant nor a user", f"{path}.entries")
    return values


def _text(key: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{key}: must be UTF-8, got {value[:MAX_NAME]!a}") from error


def _name(key: str, value: str) -> str:
    try:
        return normalized(value) if value else ""
    except ValueError as error:
        raise InvalidValue(f"{key}: {error}") from error


def _tokens(descriptor: ratelimit_pb2.RateLimitDescriptor, request_hits: int) -> int:
    if descriptor.HasField("hits_addend"):
        return descriptor.hits_addend.value
    return request_hits if request_hits > 1 else 0


def _request(value: str) -> str:
    if len(value) > MAX_NAME:
        raise InvalidValue(f"request: the id has at most {MAX_NAME} characters, got {len(value)}")
    return value


def _stage(value: str) -> int:
    if not (value.isdecimal() and len(value) <= MAX_DIGITS):
        raise InvalidValue(f"stage: expected the number of a call, 0 for the first, got {value[:MAX_NAME]!a}")
    return int(value)


def _interaction(header: str) -> inference_pb2.Interaction:
    if not header:
        return inference_pb2.Interaction()
    try:
        interaction = interaction_header.parse(header)
    except InvalidRequest as error:
        raise InvalidValue(error.message) from error
    if not 0 < len(interaction.id) <= MAX_NAME:
        raise InvalidValue(f"interaction: the id must have 1 to {MAX_NAME} characters, got {len(interaction.id)}")
    if len(interaction.token) > MAX_TOKEN:
        raise InvalidValue(f"interaction: the token has at most {MAX_TOKEN} bytes, got {len(interaction.token)}")
    return interaction
