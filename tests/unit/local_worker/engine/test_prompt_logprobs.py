"""Log-probabilities of prompts are those of one forward pass, however the prompt is divided, shared or preempted."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from local_worker.core.batch import Engine, SampledLogprobs
from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode
from local_worker.core.plan import SCORED_TOKENS
from local_worker.core.request import Request
from local_worker.engine.fake import FakeEngine
from local_worker.engine.runner import TransformersEngine
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.engine.driving import BLOCK, Driver, make_batcher, make_request
from tests.unit.local_worker.engine.test_exactness import OPTIONS, SIZES, make_model, prompts

Scores = Sequence[SampledLogprobs]


class ScoreRecorder(Driver):
    """A driver that remembers what is reported of each prompt, and how often."""

    def __init__(self, batcher: Batcher, engine: Engine) -> None:
        super().__init__(batcher, engine)
        self.reported: dict[Request, list[Scores]] = {}
        commit = batcher.commit

        def recorded(*step: Any) -> Any:
            advances = commit(*step)
            for advance in advances:
                if advance.prompt_logprobs is not None:
                    self.reported.setdefault(advance.request, []).append(advance.prompt_logprobs)
            return advances

        batcher.commit = recorded  # type: ignore[method-assign, assignment]

    def finish(self, requests: Iterable[Request] = ()) -> None:
        for request in requests:
            self.batcher.queue.submit(request, 0.0)
        while self.turn():
            pass


def scoring(prompt: Sequence[int], arrival: int = 0, *, alternatives: int = 2, **fields: Any) -> Request:
    sampling = SamplingParams(max_tokens=8, ignore_eos=True, prompt_logprobs=alternatives)
    return make_request(prompt, arrival=arrival, sampling=sampling, **fields)


def expected(model: Any, prompt: Sequence[int]) -> torch.Tensor:
    """The log-probabilities [tokens but the first, vocabulary] of one forward pass."""
    with torch.inference_mode():
        logits = model(torch.tensor([list(prompt)])).logits[0, :-1]
    return logits.float().log_softmax(dim=-1)


@pytest.mark.model
@pytest.mark.parametrize("ahead", [0, 1])
def test_scores_are_those_of_one_forward_pass(ahead: int) -> None:
    model = make_model(LlamaConfig(**SIZES))  # not a shared one: an engine changes the configuration of its model
    texts = prompts(4)
    oracle = [expected(model, text) for text in texts]
    engine = TransformersEngine(model, OPTIONS)
    engine.ahead = ahead
    driver = ScoreRecorder(make_batcher(token_budget=7), engine)
    requests = [scoring(text, number, alternatives=number) for number, text in enumerate(texts)]
    driver.finish([*requests, make_request(texts[0], arrival=9)])
    assert {*driver.reported} == {*requests}, "the last request asks for none"
    for number, (request, whole) in enumerate(zip(requests, oracle, strict=True)):
        [scores] = driver.reported[request]
        assert len(scores) == len(request.tokens[1 : request.prompt_tokens])
        for position, (score, row) in enumerate(zip(scores, whole, strict=True)):
            assert score.logprob == pytest.approx(float(row[request.tokens[position + 1]]), abs=1e-3)
            values, ids = row.topk(number)
            assert [token for token, _ in score.top] == ids.tolist()
            assert [value for _, value in score.top] == pytest.approx(values.tolist(), abs=1e-3)


def fake() -> FakeEngine:
    return FakeEngine(257, 0.0, BLOCK)


def test_a_cached_prefix_is_not_used_and_the_whole_prompt_is_reported_once() -> None:
    prompt = list(range(40, 70))
    driver = ScoreRecorder(make_batcher(), fake())
    first, again, plain = make_request(prompt), scoring(prompt, 1), make_request(prompt, arrival=2)
    for request in (first, again, plain):
        driver.finish([request])
    assert (first.cached, again.cached, plain.cached) == (0, 0, 28)
    [scores] = driver.reported[again]
    assert [score.top[0][0] for score in scores] == prompt[1:], "the fake engine's likeliest token is the prompt's"
    assert again.tokens[again.prompt_tokens :] == first.tokens[first.prompt_tokens :]


def test_a_step_scores_a_limited_number_of_tokens() -> None:
    batcher = make_batcher(token_budget=2048, max_prompt_tokens=1024)
    driver = ScoreRecorder(batcher, fake())
    requests = [scoring([65] * SCORED_TOKENS, number) for number in range(2)]
    for request in (*requests, make_request([66] * 300, arrival=2)):
        batcher.queue.submit(request, 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    sizes = [piece.stop - piece.start for piece in plan.batch.slices]
    assert sizes == [SCORED_TOKENS, 300], "the second scored prompt waits, what is not scored does not"
    batcher.commit(plan, fake().launch(plan.batch).wait())
    driver.finish()
    assert [len(driver.reported[request][0]) for request in requests] == [SCORED_TOKENS - 1] * 2


def test_a_preemption_begins_the_scores_anew_and_never_reports_them_twice() -> None:
    driver = ScoreRecorder(make_batcher(pages=12, admission=AdmissionMode.OPTIMISTIC, token_budget=6), fake())
    requests = [scoring([65 + number] * 20, number) for number in range(4)]
    driver.finish(requests)
    assert sum(request.preemptions for request in requests) > 0
    assert [len(driver.reported[request]) for request in requests] == [1] * 4
    assert [len(driver.reported[request][0]) for request in requests] == [19] * 4


def test_an_output_that_goes_on_here_has_reported_them_already() -> None:
    driver = ScoreRecorder(make_batcher(), fake())
    request = scoring([*range(40, 70)], seed_position=3)
    driver.finish([make_request([*range(40, 70)], arrival=1), request])
    assert driver.reported == {}


def test_of_a_prompt_of_one_token_nothing_is_known() -> None:
    driver = ScoreRecorder(make_batcher(), fake())
    request = scoring([65])
    driver.finish([request])
    assert driver.reported[request] == [[]]
