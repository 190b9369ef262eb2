"""Translation between the worker's values and messages."""

import time
from typing import Any

import pytest

from fairlead.errors import InvalidRequest, Unavailable
from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import pack_ids, unpack_ids
from fairlead.v1 import common_pb2, worker_pb2
from local_worker.core.batch import SampledLogprobs
from local_worker.core.events import (
    ClientAccountReport,
    EngineLoad,
    LevelGapReport,
    RequestAccepted,
    RequestEnded,
    RequestEvents,
    RequestStarted,
    RequestTokens,
)
from local_worker.core.output_text import NoText
from local_worker.core.page_report import EvictedPages, PageReport, PageShare
from local_worker.core.request import Request
from local_worker.prompt import Chat, ChatMessage
from local_worker.prompt_encoder import PromptEncoder
from local_worker.tokenizer import ByteTokenizer
from local_worker.wire import (
    add_events,
    add_refusal,
    content_from,
    request_from,
    to_accepted,
    to_client_service,
    to_load,
    to_request_end,
)
from serving.constraint import CALLS, Constraint
from serving.cost import MICRO, WEIGHT_ONE
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import make_request


class Spelling(NoText):
    """A text whose tokens stand for these bytes, or for the byte of their number."""

    def __init__(self, spelled: dict[int, bytes]) -> None:
        self._spelled = spelled

    def token_bytes(self, token: int) -> bytes:
        return self._spelled.get(token) or bytes([token])


PROMPTS = PromptEncoder(ByteTokenizer(), 256, 4, "secret", {"m": "r1", "other": "r2"}, 100)


def received(**fields: Any) -> Request:
    """Return the request of a message with these fields, the eighth of its worker, which arrived at 100 s."""
    message = worker_pb2.Submit(**{"token_ids": pack_ids([1] * 9), "weight": 1.0, **fields})
    return request_from(worker_pb2.Submit.FromString(message.SerializeToString()), PROMPTS, "gateway", 7, 100.0)


def known(name: str, attempt: int, prompt: int, output: int = 0, **fields: Any) -> Request:
    request = make_request([1] * prompt)
    request.id, request.attempt = name, attempt
    request.tokens += [2] * output
    for field, value in fields.items():
        setattr(request, field, value)
    return request


# What earlier versions wrote for the same events: gateways and schedulers of all versions read it.
EVENTS = bytes.fromhex(
    "0a110a0663616c6c2d3110021810250000404012650a0663616c6c2d3110021a08050000002c010000220368c3a92a1c0d000000"
    "bf120207081a08000000bf0000c0bf2201682a01792a01e22a042202c3a9350000a0403a032201703a1c0d000000c0120207081a"
    "08000000bf0000c0bf2201712a01792a01e21a540a0663616c6c2d31100218012001320f080a10081802290000000000001e403a"
    "282080c4e69ad89fe7cb172880d8d1f7db9fe7cb173080a287e6dd9fe7cb173880d1d7cbe09fe7cb174204726573744a03454e44"
    "1a310a0663616c6c2d32100118072a14746f6b656e5f6964733a206d75737420686f6c6432003a005209746f6b656e5f6964731a"
    "3f0a0663616c6c2d331001180a2a1763616e63656c6c6564206279207468652063616c6c6572320208043a142080c4e69ad89fe7"
    "cb1738808e9c89da9fe7cb17"
)
ACCEPTED = bytes.fromhex("0a0663616c6c2d3110021a03742f75200a29000000000000f83f32016d3808")
ENDS = [bytes.fromhex("0a0663616c6c2d31100218012002"), bytes.fromhex("0a0663616c6c2d331001")]
ACCOUNT = bytes.fromhex("0a03742f7511000000000000f83f1900000000000008c020012802310000000000000440")
LOAD = bytes.fromhex(
    "08021001184021000000000000d03f41000000000000f83f4803583260106900000000000020407100000000000059407a110a06"
    "74656e616e7411000000000000f83f7a0f0a047573657211000000000000e03f"
)


def test_events_and_reports_are_the_bytes_of_earlier_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 4_000_000_000)
    times = {"queued_at": 1.0, "started_at": 2.0, "first_token_at": 2.5, "ended_at": 3.25}
    service = 7 * MICRO + MICRO // 2
    first = known("call-1", 2, 10, 2, cached=8, service=service, client="t/u", model="m", weight=1500, **times)
    spelling = Spelling({5: b"h", 300: "é".encode(), 7: b"y", 8: b"\xe2"})
    early = known("call-1", 2, 2, cached=16, tokens=[*b"pq"], text=spelling)
    aborted = known("call-3", 1, 4, queued_at=1.0, ended_at=1.5)
    top = ((7, -0.5), (8, -1.5))
    of_output = [SampledLogprobs(-0.5, top), SampledLogprobs(0.0, ())]
    of_prompt = [SampledLogprobs(-2.0, top)]
    tokens = RequestTokens(early, [5, 300], None, of_output, of_prompt, text="hé", service=5 * MICRO)
    end = RequestEnded(first, Outcome.COMPLETED, FinishReason.STOP, text="rest", stop_string="END")
    cancelled = RequestEnded(aborted, Outcome.CANCELLED, message="cancelled by the caller")
    message = worker_pb2.StepEvents()
    add_events(message, RequestEvents(started=[RequestStarted(early, 3 * MICRO)], tokens=[tokens], ended=[end]))
    add_refusal(message, "call-2", 1, InvalidRequest("must hold", "token_ids"))
    add_events(message, RequestEvents(ended=[cancelled]))
    assert message.SerializeToString(deterministic=True) == EVENTS
    assert to_accepted(RequestAccepted(first, 8)).SerializeToString(deterministic=True) == ACCEPTED
    assert [to_request_end(each).SerializeToString(deterministic=True) for each in (end, cancelled)] == ENDS
    account = ClientAccountReport("t/u", 1.5, 2.5, -3.0, 1, 2)
    assert to_client_service(account).SerializeToString(deterministic=True) == ACCOUNT
    load = EngineLoad(
        2, 1, 64, 0.25, 1.5, 8.0, 100.0, 3, 50, 16, (LevelGapReport("tenant", 1.5), LevelGapReport("user", 0.5))
    )
    assert to_load(load).SerializeToString(deterministic=True) == LOAD


def test_a_load_tells_whose_pages_are_whose() -> None:
    shares = (PageShare("t/u", 2.5, 8.0), PageShare("", 1.0, 0.0))
    load = to_load(EngineLoad(pages=PageReport(shares[1:], shares, (EvictedPages("t", "s", 3),))))
    told = [(share.name, share.pages, share.part) for share in (*load.tenant_pages, *load.client_pages)]
    assert told == [*shares[1:], *shares]
    assert [(each.taker, each.owner, each.pages) for each in load.evicted_pages] == [("t", "s", 3)]


def test_events_of_several_steps_follow_each_other_in_one_message() -> None:
    logprobs = [SampledLogprobs(-0.5, ((7, -0.5), (8, -1.5))), SampledLogprobs(0.0, ())]
    request = known("a", 1, 20, cached=16, text=Spelling({6: b"y", 7: b"z", 8: b"\xe2"}))
    message = worker_pb2.StepEvents()
    first = RequestTokens(request, [5], text="x")
    add_events(message, RequestEvents(started=[RequestStarted(request, 3 * MICRO)], tokens=[first]))
    more = RequestTokens(request, [6, 7], logprobs=logprobs, text="yz", service=5 * MICRO)
    add_events(message, RequestEvents(tokens=[more]))
    [started] = message.started
    assert (started.request_id, started.attempt, started.cached_tokens, started.service) == ("a", 1, 16, 3.0)
    told = [(unpack_ids(tokens.token_ids), tokens.text, tokens.service) for tokens in message.tokens]
    assert told == [([5], "x", 0.0), ([6, 7], "yz", 5.0)]
    assert list(message.tokens[0].logprobs) == []
    likely, last = message.tokens[1].logprobs
    assert (last.logprob, last.token) == (0.0, b"z")
    assert (likely.token, list(likely.top_tokens)) == (b"y", [b"z", b"\xe2"])
    assert (likely.logprob, list(likely.top_ids), list(likely.top_logprobs)) == (-0.5, [7, 8], [-0.5, -1.5])


@pytest.mark.parametrize(("scores", "told"), [([], [(b"a", 0.0)]), ([-1.0], None)])
def test_the_first_token_of_a_prompt_has_no_log_probability_and_each_other_has_one(
    scores: list[float], told: list[tuple[bytes, float]] | None
) -> None:
    request = known("a", 1, 1, tokens=[*b"a"], text=Spelling({}))
    tokens = RequestTokens(request, [5], prompt_logprobs=[SampledLogprobs(score, ()) for score in scores])
    message = worker_pb2.StepEvents()
    if told is None:
        with pytest.raises(ValueError, match="longer"):
            add_events(message, RequestEvents(tokens=[tokens]))
        return
    add_events(message, RequestEvents(tokens=[tokens]))
    assert [(each.token, each.logprob) for each in message.tokens[0].prompt_logprobs] == told


def test_an_ended_event_has_usage_and_timings() -> None:
    now, unix = time.monotonic(), time.time_ns()
    request = known("a", 2, 10, 2, cached=8, service=MICRO, queued_at=now - 3, started_at=now - 2)
    message = worker_pb2.StepEvents()
    add_events(
        message, RequestEvents(ended=[RequestEnded(request, Outcome.COMPLETED, FinishReason.STOP, stop_string="END")])
    )
    [end] = message.ended
    assert (end.request_id, end.attempt, end.stop_string) == ("a", 2, "END")
    assert end.usage == common_pb2.Usage(prompt_tokens=10, cached_tokens=8, output_tokens=2, service=1.0)
    assert end.timings.scheduled - end.timings.queued == pytest.approx(1e9, rel=1e-6)
    assert end.timings.queued == pytest.approx(unix - 3e9, abs=60e9)
    assert (end.timings.first_token, end.timings.finished) == (0, 0), "it never came to that"


def test_a_refusal_has_the_reason_and_names_the_field_alone_that_is_invalid() -> None:
    message = worker_pb2.StepEvents()
    add_refusal(message, "a", 2, Unavailable("the worker is draining"))
    add_refusal(message, "b", 1, InvalidRequest("must be smaller", "weight"))
    first, second = message.ended
    assert (first.request_id, first.attempt, Outcome(first.outcome)) == ("a", 2, Outcome.UNAVAILABLE)
    assert (first.message, first.field) == ("the worker is draining", "")
    assert (Outcome(second.outcome), second.field) == (Outcome.REJECTED_INVALID, "weight")


def test_every_field_of_a_submission_is_in_its_request() -> None:
    request = received(
        request_id="a",
        attempt=2,
        client="acme/ann",
        model="other",
        token_ids=pack_ids(list(range(9))),
        generated_tokens=3,
        sampling=common_pb2.SamplingParams(max_tokens=3, seed=5),
        weight=2.0,
        user_weight=0.5,
        interaction="i",
        in_interaction=True,
        ends_interaction=True,
        cache_scope="acme",
        timeout_seconds=2.5,
        system_tokens=4,
        charged=True,
        public_tokens=5,
        tokens_per_message=4,
    )
    assert (request.id, request.attempt, request.owner, request.arrival) == ("a", 2, "gateway", 7)
    assert (request.client, request.model, request.cache_scope) == ("acme/ann", "other", "acme")
    assert (request.tokens, request.prompt_tokens, request.seed_position) == ([*range(9)], 9, 3)
    assert request.sampling == SamplingParams(max_tokens=3, seed=5)
    assert (request.weight, request.user_weight) == (2 * WEIGHT_ONE, WEIGHT_ONE // 2)
    assert (request.interaction, request.in_interaction, request.ends_interaction) == ("i", True, True)
    assert request.is_charged
    assert (request.system_tokens, request.deadline, request.tokens_per_message) == (4, 102.5, 4)
    chain = PROMPTS.chain(pack_ids(list(range(9))), "other", "acme", 5)
    assert (len(request.digests), request.public_blocks, request.chain_seed) == (2, 1, chain.seed)


def test_an_older_gateways_submission_has_every_default_resolved() -> None:
    request = received()
    assert (request.model, request.user_weight, request.tokens_per_message) == ("m", WEIGHT_ONE, 1)
    assert (request.deadline, request.public_blocks, request.seed_position) == (None, 0, 0)


def test_the_grammar_of_calls_is_the_constraint_of_the_output() -> None:
    assert received(call_grammar="start: x").sampling.constraint == Constraint(CALLS, ("start: x",))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"sampling": common_pb2.SamplingParams(temperature=-1)}, "temperature"),
        ({"token_ids": b""}, "token_ids: must hold at least 1 token, got 0"),
        ({"token_ids": pack_ids([256])}, "token_ids: ids must be below the vocabulary size 256, got 256"),
        ({"generated_tokens": 9}, "generated_tokens: must be below the number of token ids, 9; got 9"),
        ({"public_tokens": 10}, "public_tokens: must be at most the number of token ids, 9; got 10"),
        ({"weight": 0.0}, "weight: must be above 0 and at most .*, got 0.0"),
        ({"user_weight": -1.0}, "user_weight: must be above 0 and at most .*, got -1.0"),
        (
            {"token_ids": pack_ids([1] * 32_769), "sampling": common_pb2.SamplingParams(prompt_logprobs=1)},
            "sampling.prompt_logprobs: at most 65536 values are reported, got 32769 tokens with 1 alternatives each",
        ),
    ],
)
def test_a_value_that_no_gateway_may_send_is_refused_by_its_field(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        received(**fields)


def test_a_model_that_is_not_served_here_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="'none' is not served by this worker"):
        received(model="none")


def test_a_prompt_of_any_kind_is_plain_data_and_of_none_is_refused() -> None:
    def content(**kind: Any) -> object:
        return content_from(common_pb2.Prompt(**kind))

    chat = common_pb2.Chat(messages=[common_pb2.ChatMessage(role="user", content="hi")])
    assert content(chat=chat) == Chat((ChatMessage("user", "hi"),))
    assert content(chat=common_pb2.Chat()) == Chat(())
    assert (content(text="hi"), content(text="")) == ("hi", "")
    assert content(token_ids=common_pb2.TokenIds(packed=b"1234")) == b"1234"
    with pytest.raises(InvalidRequest, match="prompt: one of text, chat and token_ids must be given"):
        content()
