"""Conversions between protobuf messages and this project's own types."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from serving.constraint import Constraint, check_choices
from serving.cost import MAX_WEIGHT, weight_thousandths
from serving.sampling_params import SamplingParams, check_biases

M = TypeVar("M")
_REPEATED = ("stop", "stop_token_ids", "logit_bias")
_CONSTRAINTS = tuple(field.name for field in common_pb2.SamplingParams.DESCRIPTOR.oneofs_by_name["constraint"].fields)
_SCALARS = tuple(
    field.name for field in common_pb2.SamplingParams.DESCRIPTOR.fields if field.name not in (*_REPEATED, *_CONSTRAINTS)
)
_scalars_of = attrgetter(*_SCALARS)


def parsed(parse: Callable[[bytes], M], data: bytes) -> M:
    """Parse `data` as a message; raise InvalidRequest, where gRPC itself would answer UNKNOWN and log a traceback."""
    try:
        return parse(data)
    except DecodeError as error:
        raise InvalidRequest("the request is no valid message: malformed, or text that is not UTF-8") from error


def sampling_from_proto(message: common_pb2.SamplingParams, default_max_tokens: int | None = None) -> SamplingParams:
    """Return the parameters in `message`; absent fields take the defaults of SamplingParams.

    `default_max_tokens`, if given, replaces the default of `max_tokens`. Raise InvalidRequest for a bad value.
    """
    check_biases(len(message.logit_bias))
    given = {name: getattr(message, name) for name in _SCALARS if message.HasField(name)}
    if default_max_tokens is not None:
        given.setdefault("max_tokens", default_max_tokens)
    return SamplingParams(
        **given,
        stop=tuple(message.stop),
        stop_token_ids=tuple(message.stop_token_ids),
        logit_bias=tuple(sorted(message.logit_bias.items())),
        constraint=_constraint_from(message),
    )


def sampling_to_proto(sampling: SamplingParams) -> common_pb2.SamplingParams:
    """Return a message in which every field that has a value is set, so that the receiver needs no defaults."""
    return common_pb2.SamplingParams(
        **dict(zip(_SCALARS, _scalars_of(sampling), strict=True)),
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        logit_bias=dict(sampling.logit_bias),
        **_constraint_fields(sampling.constraint),
    )


def weight_from_proto(weight: float, field: str) -> int:
    """Return a request's weight in thousandths; raise InvalidRequest, which names the field, for one that is none."""
    if not 0 < weight <= MAX_WEIGHT:
        raise InvalidRequest(f"must be above 0 and at most {MAX_WEIGHT}, got {weight}", field)
    return weight_thousandths(weight)


def _constraint_from(message: common_pb2.SamplingParams) -> Constraint | None:
    match message.WhichOneof("constraint"):
        case None:
            return None
        case "json_object":
            return Constraint("json_object") if message.json_object else None
        case "choice":
            check_choices(len(message.choice.texts))
            return Constraint("choice", tuple(message.choice.texts))
        case kind:
            return Constraint(kind, (getattr(message, kind),))


def _constraint_fields(constraint: Constraint | None) -> dict[str, Any]:
    match constraint:
        case None:
            return {}
        case Constraint("json_object"):
            return {"json_object": True}
        case Constraint("choice", texts):
            return {"choice": common_pb2.Choices(texts=texts)}
        case Constraint(kind, (text,)):
            return {kind: text}
        case _:
            raise AssertionError(f"{constraint} has several texts")
