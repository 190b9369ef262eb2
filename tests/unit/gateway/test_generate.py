"""What a caller gets: prompts of every kind, through a real cluster."""

from typing import Any

import grpc
import pytest

from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import pack_ids, unpack_ids
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc

CHAT = common_pb2.Chat(
    messages=[
        common_pb2.ChatMessage(role="system", content="Be brief."),
        common_pb2.ChatMessage(role="user", content="Hello?"),
    ]
)
PROMPTS = [
    common_pb2.Prompt(text="Once upon a time"),
    common_pb2.Prompt(chat=CHAT),
    common_pb2.Prompt(token_ids=common_pb2.TokenIds(packed=pack_ids(range(1, 40)))),
]


def generate(
    stub: inference_pb2_grpc.InferenceStub, request: inference_pb2.GenerateRequest
) -> list[inference_pb2.GenerateResponse]:
    return list(stub.Generate(request, timeout=60))


def text_of(responses: list[inference_pb2.GenerateResponse]) -> str:
    return "".join(response.chunk.text for response in responses)


def ids_of(responses: list[inference_pb2.GenerateResponse]) -> list[int]:
    return unpack_ids(b"".join(response.chunk.token_ids.packed for response in responses))


def request_for(prompt: common_pb2.Prompt, **sampling: Any) -> inference_pb2.GenerateRequest:
    params = common_pb2.SamplingParams(**{"max_tokens": 20, "ignore_eos": True, **sampling})
    return inference_pb2.GenerateRequest(prompt=prompt, sampling=params)


@pytest.mark.parametrize("prompt", PROMPTS, ids=["text", "chat", "token_ids"])
def test_a_stream_is_accepted_then_chunks_then_finished(
    shared: inference_pb2_grpc.InferenceStub, prompt: common_pb2.Prompt
) -> None:
    responses = generate(shared, request_for(prompt))
    kinds = [response.WhichOneof("event") for response in responses]
    assert kinds[0] == "accepted"
    assert kinds[-1] == "finished"
    assert set(kinds[1:-1]) == {"chunk"}
    accepted, finished = responses[0].accepted, responses[-1].finished
    assert accepted.worker in ("a", "b")
    assert accepted.request_id
    assert finished.outcome == Outcome.COMPLETED
    assert finished.finish_reason == FinishReason.LENGTH
    assert len(ids_of(responses)) == finished.usage.output_tokens == 20
    assert finished.usage.prompt_tokens == accepted.prompt_tokens > 0
    at = finished.timings
    points = [at.received, at.admitted, at.dispatched, at.queued, at.scheduled, at.first_token, at.finished]
    assert points == sorted(points)
    assert points[0] > 0


def test_system_tokens_are_counted_for_chats(shared: inference_pb2_grpc.InferenceStub) -> None:
    usage = generate(shared, request_for(PROMPTS[1]))[-1].finished.usage
    assert 0 < usage.system_tokens < usage.prompt_tokens


@pytest.mark.parametrize("prompt", PROMPTS, ids=["text", "chat", "token_ids"])
def test_the_same_request_gives_the_same_output(
    shared: inference_pb2_grpc.InferenceStub, prompt: common_pb2.Prompt
) -> None:
    request = request_for(prompt, temperature=1.0, seed=7)
    first, second = generate(shared, request), generate(shared, request)
    assert ids_of(first) == ids_of(second)
    assert text_of(first) == text_of(second)


def test_each_token_alone_or_several_at_once(shared: inference_pb2_grpc.InferenceStub) -> None:
    request = request_for(PROMPTS[0])
    coalesced = generate(shared, request)
    request.streaming = inference_pb2.STREAMING_EACH_TOKEN
    single = generate(shared, request)
    sizes = [len(response.chunk.token_ids.packed) // 4 for response in single if response.chunk.token_ids.packed]
    assert sizes == [1] * 20
    assert len(coalesced) < len(single)
    assert text_of(coalesced) == text_of(single)


def test_models_are_listed(shared: inference_pb2_grpc.InferenceStub) -> None:
    models = shared.ListModels(inference_pb2.ListModelsRequest()).models
    assert [(model.workers, model.max_model_tokens > 0) for model in models] == [(2, True)]
    named = request_for(PROMPTS[0])
    named.model = models[0].name
    assert generate(shared, named)[0].accepted.model == models[0].name


def test_nothing_is_lost_when_calls_share_the_streams(shared: inference_pb2_grpc.InferenceStub) -> None:
    requests = [request_for(common_pb2.Prompt(text=f"Story {number}"), max_tokens=30) for number in range(24)]
    alone = [ids_of(generate(shared, request)) for request in requests]
    calls: list[grpc.Call] = [shared.Generate(request, timeout=60) for request in requests]
    assert [ids_of(list(call)) for call in calls] == alone
