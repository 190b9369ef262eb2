"""Sampling parameters over the wire: absent means default, present means present, zero included."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InvalidRequest
from fairlead.outcomes import FinishReason, Outcome
from fairlead.v1 import common_pb2
from serving.sampling_params import SamplingParams
from serving.wire import sampling_from_proto, sampling_to_proto

FRACTION = st.floats(0, 1, width=32)
SAMPLINGS = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 2**32 - 1),
    temperature=st.floats(0, 100, width=32),
    top_k=st.integers(0, 2**32 - 1),
    top_p=FRACTION.filter(bool),
    min_p=FRACTION,
    seed=st.integers(0, 2**64 - 1),
    stop=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), max_size=4).map(tuple),
    stop_token_ids=st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple),
    ignore_eos=st.booleans(),
)


@given(SAMPLINGS)
def test_sampling_survives_the_wire(sampling: SamplingParams) -> None:
    data = sampling_to_proto(sampling).SerializeToString()
    assert sampling_from_proto(common_pb2.SamplingParams.FromString(data)) == sampling


def test_absent_fields_are_defaults() -> None:
    assert sampling_from_proto(common_pb2.SamplingParams()) == SamplingParams()


def test_a_zero_that_was_sent_is_not_absent() -> None:
    with pytest.raises(InvalidRequest, match=r"^sampling\.max_tokens: must be at least 1, got 0$"):
        sampling_from_proto(common_pb2.SamplingParams(max_tokens=0))


def test_messages_of_a_peer_are_checked() -> None:
    with pytest.raises(InvalidRequest, match=r"^sampling\.temperature: "):
        sampling_from_proto(common_pb2.SamplingParams(temperature=math.nan))


@pytest.mark.parametrize(("pure", "wire"), [(Outcome, common_pb2.Outcome), (FinishReason, common_pb2.FinishReason)])
def test_enums_are_the_wires_own(pure: type[Outcome | FinishReason], wire: type) -> None:
    prefix = {Outcome: "OUTCOME_", FinishReason: "FINISH_REASON_"}[pure]
    sent = {name.removeprefix(prefix): value for name, value in wire.items() if value}  # type: ignore[attr-defined]
    assert {member.name: member.value for member in pure} == sent
