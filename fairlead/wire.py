"""Conversions between generated messages and the pure types."""

from fairlead.sampling import Sampling
from fairlead.v1 import common_pb2

_REPEATED = ("stop", "stop_token_ids")
_SCALARS = tuple(field.name for field in common_pb2.SamplingParams.DESCRIPTOR.fields if field.name not in _REPEATED)


def sampling_from_proto(message: common_pb2.SamplingParams) -> Sampling:
    """Absent fields take Sampling's defaults; raises InvalidRequest."""
    given = {name: getattr(message, name) for name in _SCALARS if message.HasField(name)}
    return Sampling(**given, stop=tuple(message.stop), stop_token_ids=tuple(message.stop_token_ids))


def sampling_to_proto(sampling: Sampling) -> common_pb2.SamplingParams:
    """Every field that has a value set, so that the receiver resolves nothing."""
    return common_pb2.SamplingParams(
        **{name: getattr(sampling, name) for name in _SCALARS},
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
    )
