"""Translation between the backend's values and messages."""

import time
from typing import Any

import pytest

from fairlead.errors import InvalidRequest
from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import unpack_ids
from fairlead.v1 import common_pb2, worker_pb2
from local_worker.attempt import AttemptEnded, AttemptEvents, AttemptStarted
from local_worker.core.output import Output, SpelledLogprobs, TopLogprob
from local_worker.messages import add_events, prompt_from, submission_from, to_request_end
from local_worker.prompt import Chat, ChatMessage
from serving.cost import MICRO
from serving.sampling_params import SamplingParams


def test_events_of_several_steps_follow_each_other_in_one_message() -> None:
    top = (TopLogprob(7, b"y", -0.5), TopLogprob(8, b"\xe2", -1.5))
    likely, certain = SpelledLogprobs(b"y", -0.5, top), SpelledLogprobs(b"z", 0.0, ())
    message = worker_pb2.StepEvents()
    add_events(message, AttemptEvents([AttemptStarted("a", 1, 16, 3 * MICRO)], [Output("a", 1, [5], "x", (), 0)]))
    add_events(message, AttemptEvents(tokens=[Output("a", 1, [6, 7], "yz", [likely, certain], 5 * MICRO)]))
    [started] = message.started
    assert (started.request_id, started.attempt, started.cached_tokens, started.service) == ("a", 1, 16, 3.0)
    told = [(unpack_ids(tokens.token_ids), tokens.text, tokens.service) for tokens in message.tokens]
    assert told == [([5], "x", 0.0), ([6, 7], "yz", 5.0)]
    assert list(message.tokens[0].logprobs) == []
    logprobs, last = message.tokens[1].logprobs
    assert (last.logprob, last.token) == (0.0, b"z")
    assert (logprobs.token, list(logprobs.top_tokens)) == (b"y", [b"y", b"\xe2"])
    assert (logprobs.logprob, list(logprobs.top_ids), list(logprobs.top_logprobs)) == (-0.5, [7, 8], [-0.5, -1.5])


def test_an_ended_event_has_usage_and_timings() -> None:
    now, unix = time.monotonic(), time.time_ns()
    end = AttemptEnded(
        "a",
        2,
        Outcome.COMPLETED,
        FinishReason.STOP,
        text="rest",
        stop_string="END",
        prompt_tokens=10,
        cached_tokens=8,
        output_tokens=2,
        service=MICRO,
        queued_at=now - 3,
        started_at=now - 2,
    )
    message = worker_pb2.StepEvents()
    add_events(message, AttemptEvents(ended=[end, AttemptEnded("b", 1, Outcome.CANCELLED, message="gone")]))
    first, second = message.ended
    assert (first.request_id, first.attempt, first.text, first.stop_string) == ("a", 2, "rest", "END")
    assert (Outcome(first.outcome), FinishReason(first.finish_reason)) == (Outcome.COMPLETED, FinishReason.STOP)
    assert first.usage == common_pb2.Usage(prompt_tokens=10, cached_tokens=8, output_tokens=2, service=1.0)
    assert first.timings.scheduled - first.timings.queued == pytest.approx(1e9, rel=1e-6)
    assert first.timings.queued == pytest.approx(unix - 3e9, abs=60e9)
    assert (first.timings.first_token, first.timings.finished) == (0, 0), "it never came to that"
    assert (Outcome(second.outcome), second.finish_reason, second.message) == (Outcome.CANCELLED, 0, "gone")


def test_a_scheduler_is_told_whether_an_attempt_that_ended_had_started() -> None:
    ended = to_request_end(AttemptEnded("a", 2, Outcome.COMPLETED, output_tokens=3, started_at=1.0))
    assert (ended.request_id, ended.attempt, ended.started, ended.output_tokens) == ("a", 2, True, 3)
    assert not to_request_end(AttemptEnded("a", 2, Outcome.CANCELLED)).started


def test_a_submission_has_every_default_resolved_or_is_refused() -> None:
    asked = submission_from(worker_pb2.Submit(request_id="a", sampling=common_pb2.SamplingParams(max_tokens=3)))
    assert asked.sampling == SamplingParams(max_tokens=3)
    assert asked.timeout_seconds is None
    assert submission_from(worker_pb2.Submit(timeout_seconds=2.5)).timeout_seconds == 2.5
    with pytest.raises(InvalidRequest, match="temperature"):
        submission_from(worker_pb2.Submit(sampling=common_pb2.SamplingParams(temperature=-1)))


def test_a_prompt_of_any_kind_is_plain_data_and_of_none_is_refused() -> None:
    def content(**kind: Any) -> object:
        return prompt_from(worker_pb2.EncodeRequest(prompt=common_pb2.Prompt(**kind))).content

    chat = common_pb2.Chat(messages=[common_pb2.ChatMessage(role="user", content="hi")])
    assert content(chat=chat) == Chat((ChatMessage("user", "hi"),))
    assert content(chat=common_pb2.Chat()) == Chat(())
    assert (content(text="hi"), content(text="")) == ("hi", "")
    assert content(token_ids=common_pb2.TokenIds(packed=b"1234")) == b"1234"
    with pytest.raises(InvalidRequest, match="prompt: one of text, chat and token_ids must be given"):
        content()
