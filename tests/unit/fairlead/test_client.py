"""The SDK against a real gRPC peer that refuses, serves or breaks off as each test says."""

from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from fairlead import Client, Retries, SyncClient
from fairlead.errors import FairleadError, InvalidRequest, ThrottledUser, Unavailable
from fairlead.outcomes import FinishReason, Outcome
from fairlead.rpc.status import to_status
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc

WAIT = 0.02
THROTTLED = ThrottledUser("user_per_minute=1", WAIT)


class Peer(inference_pb2_grpc.InferenceServicer):
    """Refuses with `refusals`, one per call, and answers CANCELLED to the next `cancels`, then serves; breaks off after
    the first chunk where `breaks` is set."""

    def __init__(self) -> None:
        self.refusals: list[FairleadError] = []
        self.cancels = 0
        self.breaks = False
        self.requests: list[inference_pb2.GenerateRequest] = []
        self.metadata: list[dict[str, Any]] = []
        self.ended: list[inference_pb2.EndInteractionRequest] = []

    def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[inference_pb2.GenerateResponse]:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        if self.refusals:
            context.abort_with_status(to_status(self.refusals.pop(0)))
        if self.cancels:
            self.cancels -= 1
            context.abort(grpc.StatusCode.CANCELLED, "the proxy is going away")
        token = f"after {request.interaction.stage}".encode()
        accepted = inference_pb2.Accepted(
            request_id="r1", model="m", worker="w", interaction_token=token, app="default"
        )
        yield inference_pb2.GenerateResponse(accepted=accepted)
        yield self._chunk("Hel", [72, 101, 108])
        if self.breaks:
            context.abort_with_status(to_status(Unavailable("lost 3 workers", WAIT)))
        yield self._chunk("lo", [108, 111])
        finished = inference_pb2.Finished(
            outcome=common_pb2.OUTCOME_COMPLETED,
            finish_reason=common_pb2.FINISH_REASON_LENGTH,
            usage=common_pb2.Usage(prompt_tokens=4, cached_tokens=2, output_tokens=5, system_tokens=1),
            timings=common_pb2.Timings(received=1, admitted=2, dispatched=3, first_token=6, finished=7),
        )
        yield inference_pb2.GenerateResponse(finished=finished)

    def EndInteraction(
        self, request: inference_pb2.EndInteractionRequest, context: grpc.ServicerContext
    ) -> inference_pb2.EndInteractionResponse:
        self.ended.append(request)
        return inference_pb2.EndInteractionResponse()

    def _chunk(self, text: str, ids: list[int]) -> inference_pb2.GenerateResponse:
        packed = common_pb2.TokenIds(packed=pack_ids(ids))
        logprobs = [
            common_pb2.TokenLogprobs(logprob=-0.5, top_ids=[token], top_logprobs=[-0.5], token=b"t", top_tokens=[b"t"])
            for token in ids
        ]
        prompt = [common_pb2.TokenLogprobs(token=b"p")] if text == "Hel" else []
        chunk = inference_pb2.TokenChunk(text=text, token_ids=packed, logprobs=logprobs, prompt_logprobs=prompt)
        return inference_pb2.GenerateResponse(chunk=chunk)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def address(peer: Peer) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    inference_pb2_grpc.add_InferenceServicer_to_server(peer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def client(address: str) -> Iterator[SyncClient]:
    """The blocking client: the asynchronous one runs inside it."""
    with SyncClient(address, api_key="k", user="ann", app="chat") as client:
        yield client


def test_a_completion_is_all_that_came(client: SyncClient) -> None:
    completion = client.generate("hi")
    assert (completion.text, completion.token_ids) == ("Hello", (72, 101, 108, 108, 111))
    assert {(entry.token, entry.top_tokens) for entry in completion.logprobs} == {(b"t", (b"t",))}
    assert [entry.top for entry in completion.logprobs] == [((token, -0.5),) for token in completion.token_ids]
    assert [entry.token for entry in completion.prompt_logprobs] == [b"p"]
    assert completion.finish_reason is FinishReason.LENGTH
    assert (completion.request_id, completion.model, completion.worker) == ("r1", "m", "w")
    assert completion.app == "default", "what the call counted as, not what it named"
    usage, timings = completion.usage, completion.timings
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens, usage.system_tokens) == (4, 2, 5, 1)
    assert (timings.received, timings.queued, timings.first_token, timings.finished) == (1, 0, 6, 7)


def test_a_request_says_what_was_asked_and_by_whom(client: SyncClient, peer: Peer) -> None:
    client.generate([1, 2], model="m", max_tokens=3, temperature=0.5, stop=["END"], each_token=True)
    client.chat([("system", "be brief"), {"role": "user", "content": "hi"}], app="other")
    rendering: dict[str, Any] = {
        "add_generation_prompt": False,
        "continue_final_message": True,
        "chat_template_kwargs": {"a": [1, None]},
    }
    client.chat([("user", "hi")], max_tokens=3, **rendering)
    by_ids, by_chat, rendered = peer.requests
    assert by_ids.prompt.token_ids.packed == pack_ids([1, 2])
    assert (by_ids.model, by_ids.sampling.max_tokens, by_ids.sampling.temperature) == ("m", 3, 0.5)
    assert (list(by_ids.sampling.stop), by_ids.sampling.HasField("top_p")) == (["END"], False)
    assert (by_ids.streaming, by_ids.app) == (inference_pb2.STREAMING_EACH_TOKEN, "chat")
    messages = [(message.role, message.content) for message in by_chat.prompt.chat.messages]
    assert (messages, by_chat.app) == ([("system", "be brief"), ("user", "hi")], "other")
    assert not by_chat.prompt.chat.HasField("add_generation_prompt")
    assert not by_chat.prompt.chat.HasField("chat_template_kwargs")
    chat = rendered.prompt.chat
    assert (chat.add_generation_prompt, chat.HasField("add_generation_prompt")) == (False, True)
    assert (chat.continue_final_message, rendered.sampling.max_tokens) == (True, 3)
    assert chat.chat_template_kwargs == {"a": [1, None]}
    assert (peer.metadata[0]["authorization"], peer.metadata[0]["x-fairlead-user"]) == ("Bearer k", "ann")


def test_a_throttled_call_is_made_again_until_it_is_served(client: SyncClient, peer: Peer) -> None:
    peer.refusals = [THROTTLED, THROTTLED]
    assert client.generate("hi").text == "Hello"
    assert len(peer.requests) == 3
    assert peer.requests[0] == peer.requests[2]


def test_the_last_refusal_is_the_callers(address: str, peer: Peer) -> None:
    peer.refusals = [THROTTLED] * 9
    with SyncClient(address, retries=Retries(attempts=2)) as client, pytest.raises(ThrottledUser) as caught:
        client.generate("hi")
    assert (caught.value.message, caught.value.retry_after) == ("user_per_minute=1", WAIT)
    assert len(peer.requests) == 3


def test_a_call_that_somebody_else_cancelled_is_made_once_more_whatever_may_be_retried(
    address: str, peer: Peer
) -> None:
    peer.cancels = 1
    with SyncClient(address, retries=Retries(attempts=0)) as client:
        assert client.generate("hi").text == "Hello"
    assert len(peer.requests) == 2


def test_a_call_that_somebody_else_keeps_cancelling_is_retried_as_a_refused_one(address: str, peer: Peer) -> None:
    peer.cancels = 8  # a call is made four times, and so is its repetition
    with SyncClient(address, retries=Retries(attempts=1)) as client:
        with pytest.raises(Unavailable, match="the proxy is going away"):
            client.generate("hi")
        assert client.generate("hi").text == "Hello"
    assert len(peer.requests) == 9


def test_a_call_is_known_by_its_id_even_if_no_answer_came(address: str, peer: Peer) -> None:
    peer.cancels = 4
    with SyncClient(address, retries=Retries(attempts=0)) as client, pytest.raises(Unavailable) as caught:
        client.generate("hi")
    assert caught.value.request_id == peer.metadata[0]["x-request-id"]
    assert str(caught.value) == f"the proxy is going away (request {caught.value.request_id})"


def test_the_key_is_the_environments_unless_one_is_given(
    address: str, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_API_KEY", "from outside")
    for key in (None, "given", ""):
        with SyncClient(address, api_key=key) as client:
            client.generate("hi")
    sent = [metadata.get("authorization") for metadata in peer.metadata]
    assert sent == ["Bearer from outside", "Bearer given", None]


def test_no_wait_goes_beyond_the_deadline(client: SyncClient, peer: Peer) -> None:
    peer.refusals = [ThrottledUser("user_per_minute=1", 1000.0)]
    with pytest.raises(ThrottledUser):
        client.generate("hi", timeout=30)
    assert len(peer.requests) == 1


def test_errors_that_cannot_succeed_are_not_retried(client: SyncClient, peer: Peer) -> None:
    peer.refusals = [InvalidRequest("must not be empty", "prompt.text")]
    with pytest.raises(InvalidRequest) as caught:
        client.generate("")
    assert (caught.value.outcome, caught.value.field) == (Outcome.REJECTED_INVALID, "prompt.text")
    assert len(peer.requests) == 1


def test_output_is_never_repeated(client: SyncClient, peer: Peer) -> None:
    peer.breaks = True
    stream = client.stream("hi")
    assert next(stream).text == "Hel"
    with pytest.raises(Unavailable) as caught:
        next(stream)
    assert caught.value.request_id == "r1"
    assert len(peer.requests) == 1


def test_a_blocking_stream_has_what_the_asynchronous_has(client: SyncClient) -> None:
    with client.stream_chat([("user", "hi")]) as stream:
        assert stream.accepted is None
        assert [chunk.text for chunk in stream] == ["Hel", "lo"]
        assert stream.accepted is not None
        assert stream.accepted.request_id == stream.completion.request_id == "r1"
    assert stream.wait().usage.output_tokens == 5


def test_a_blocking_interaction_has_what_the_asynchronous_has(client: SyncClient, peer: Peer) -> None:
    with client.interaction(app="agent") as interaction:
        assert interaction.stream("one").wait().text == "Hello"
        assert interaction.stream_chat([("user", "two")]).wait().text == "Hello"
        interaction.generate("three")
        interaction.chat([("user", "four")])
    assert [(r.interaction.id, r.interaction.stage) for r in peer.requests] == [(interaction.id, n) for n in range(4)]
    assert [end.interaction.id for end in peer.ended] == [interaction.id]


async def test_the_asynchronous_client_streams_and_retries(address: str, peer: Peer) -> None:
    peer.refusals = [THROTTLED]
    async with Client(address) as client:
        stream = client.stream("hi")
        assert stream.accepted is None
        assert [chunk.text async for chunk in stream] == ["Hel", "lo"]
        assert stream.accepted is not None
        assert stream.accepted.worker == "w"
        assert stream.completion.text == "Hello"


async def test_an_interaction_numbers_its_calls_and_carries_the_token(address: str, peer: Peer) -> None:
    async with Client(address, app="chat") as client, client.interaction(app="agent") as interaction:
        for prompt in ("one", "two", "three"):
            await interaction.generate(prompt)
    places = [(r.interaction.stage, r.interaction.token, r.app) for r in peer.requests]
    assert places == [(0, b"", "agent"), (1, b"after 0", "agent"), (2, b"after 1", "agent")]
    assert {request.interaction.id for request in peer.requests} == {interaction.id}
    [end] = peer.ended
    assert (end.app, end.interaction.id, end.interaction.token) == ("agent", interaction.id, b"after 2")
