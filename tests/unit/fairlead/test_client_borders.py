"""The SDK against a peer that completes without output, and its options' borders."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from fairlead import Client, SyncClient
from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2, inference_pb2
from tests.unit.fairlead.test_client import Peer, address, client

__all__ = ["address", "client"]


class Silent(Peer):
    """Completes without output, as a prompt that ends at once does."""

    def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[inference_pb2.GenerateResponse]:
        self.requests.append(request)
        yield inference_pb2.GenerateResponse(accepted=inference_pb2.Accepted(request_id="r", interaction_token=b"t"))
        yield inference_pb2.GenerateResponse(
            finished=inference_pb2.Finished(
                outcome=common_pb2.OUTCOME_COMPLETED, finish_reason=common_pb2.FINISH_REASON_STOP
            )
        )


@pytest.fixture
def peer() -> Peer:
    return Silent()


async def test_a_call_without_output_still_hands_its_token_on(address: str, peer: Peer) -> None:
    async with Client(address) as client, client.interaction(app="agent") as interaction:
        await interaction.generate("one")
        await interaction.generate("two")
    assert peer.requests[1].interaction.token == b"t"
    assert len(peer.ended) == 1


async def test_an_interactions_stream_shows_what_was_accepted(address: str) -> None:
    async with Client(address) as client, client.interaction(app="agent") as interaction:
        stream = interaction.stream("one")
        await stream.wait()
        assert stream.accepted is not None
        assert stream.accepted.request_id == "r"


def test_biases_go_by_token_id(client: SyncClient, peer: Peer) -> None:
    client.generate("hi", logit_bias={5: -1.5, 7: 100})
    assert dict(peer.requests[0].sampling.logit_bias) == {5: -1.5, 7: 100.0}


def test_one_stop_string_is_one(client: SyncClient, peer: Peer) -> None:
    client.generate("hi", stop="END")
    assert list(peer.requests[0].sampling.stop) == ["END"]


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("max_tokens", -1, "sampling.max_tokens: must be between 0 and 4294967295, got -1"),
        ("seed", 2**64, f"sampling.seed: must be between 0 and {2**64 - 1}, got {2**64}"),
        ("stop_token_ids", [-1], "sampling.stop_token_ids: must be between 0 and 4294967295, got [-1]"),
        ("max_tokens", "a", "sampling.max_tokens: 'str' object cannot be interpreted as an integer, got 'a'"),
        ("stop", "\ud800", "sampling.stop: "),
        ("logit_bias", {-1: 1.0}, "sampling.logit_bias: "),
        ("logit_bias", {"the": 1.0}, "sampling.logit_bias: "),
        ("stop", {"END": 1}, "sampling.stop: "),
    ],
)
def test_a_value_that_fits_no_field_is_an_invalid_request(
    client: SyncClient, option: str, value: Any, complaint: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.generate("hi", **{option: value})
    assert str(caught.value).startswith(complaint)


DEEP: list[object] = []
for _ in range(10_000):
    DEEP = [DEEP]


@pytest.mark.parametrize("value", [{"a": object()}, {"a": 10**400}, {"a": "\ud800"}, {1: 2}, [1], "x", {"a": DEEP}])
def test_variables_that_are_not_json_are_an_invalid_request(client: SyncClient, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.chat([("user", "hi")], chat_template_kwargs=value)
    assert caught.value.field == "chat_template_kwargs"
