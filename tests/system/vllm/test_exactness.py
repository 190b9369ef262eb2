"""Tokens over vLLM's executor equal those of our engine, whatever shares the batch or the cache."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local_worker.core.batch import Engine, SampledLogprobs
from local_worker.core.limits import AdmissionMode
from local_worker.core.request import Request
from local_worker.engine.grammars import ConstraintBroken, Grammars
from local_worker.engine.runner import TransformersEngine
from local_worker.tokenizer import ByteTokenizer
from serving.constraint import Constraint
from tests.system.vllm.running import (
    EOS,
    NEW_TOKENS,
    PAGES,
    Numbers,
    make_batcher,
    make_request,
    ours,
    outputs,
    prompts,
    resized,
    saved,
    vllm,
)
from tests.unit.local_worker.engine import driving
from tests.unit.local_worker.engine.test_constraints import OBJECT, spelled
from tests.unit.local_worker.engine.test_exactness import CONFIGS

if TYPE_CHECKING:
    from local_worker.engine.vllm.executor import VllmEngine

REFUSED = {"gpt-neox", "mimo-v2-flash"}  # see test_refusals; of MiMo vLLM reads a configuration in another form
# vLLM computes these with transformers' code, and correctly; the operator has to ask for it.
WITHOUT_CODE_OF_ITS_OWN = {"olmo2", "phi", "smollm3", "starcoder2"}
LLAMA = resized(CONFIGS["llama"])
numbers = Numbers()
LISTS = Constraint("json_schema", ('{"type":"array","items":{"type":"integer"},"minItems":15}',))
GRAMMARS_OF_BYTES = Grammars(ByteTokenizer().vocabulary().load)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in REFUSED])
def test_mixed_batches_chunks_and_prefix_hits_change_nothing(name: str, tmp_path: Path) -> None:
    config, texts = resized(CONFIGS[name]), prompts(8)
    expected = outputs(ours(config), numbers.requests(texts))
    arguments: dict[str, Any] = {"model_impl": "transformers"} if name in WITHOUT_CODE_OF_ITS_OWN else {}
    with vllm(saved(config, tmp_path), **arguments) as engine:
        batcher = make_batcher()
        assert driving.run(batcher, engine, numbers.requests(texts)) == expected
        again = numbers.requests(texts)
        assert driving.run(batcher, engine, again) == expected
        assert all(request.cached for request in again[1::2])


# In this process; in another one, so that it runs ahead, which vLLM starts in its own way; as two tensor-parallel
# ranks, and as two stages of a pipeline.
PLACES: list[tuple[dict[str, Any], int]] = [
    ({}, 0),
    ({"distributed_executor_backend": "mp", "start_ranks": "spawn"}, 1),
    ({"tensor_parallel_size": 2}, 1),
    ({"pipeline_parallel_size": 2}, 0),
]


@pytest.fixture(scope="module", params=PLACES, ids=["process", "ahead", "tensor", "pipeline"])
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TransformersEngine, "VllmEngine"]]:
    """Our engine and vLLM's with the same weights."""
    arguments, ahead = request.param
    with vllm(saved(LLAMA, tmp_path_factory.mktemp("llama")), **arguments) as engine:
        assert engine.ahead == ahead
        yield ours(LLAMA), engine


Engines = tuple[Engine, Engine]  # ours, and that over vLLM


@pytest.mark.parametrize("policy", ["dlpm", "fcfs"])
def test_preemption_and_resume_change_nothing(engines: Engines, policy: str) -> None:
    texts = prompts(10)
    expected = outputs(engines[0], numbers.requests(texts, max_tokens=40))
    requests = numbers.requests(texts, max_tokens=40)
    found = outputs(engines[1], requests, pages=12, policy=policy, admission=AdmissionMode.OPTIMISTIC)
    assert found == expected
    assert sum(request.preemptions for request in requests) > 0


def test_requests_that_give_way_go_on_as_if_nothing_had_happened(engines: Engines) -> None:
    texts = prompts(10)
    expected = outputs(engines[0], numbers.requests(texts, max_tokens=20))
    requests = numbers.requests(texts, max_tokens=20)
    fair = {"policy": "dlpm", "max_running": 2, "quantum_tokens": 4, "most_debt_tokens": 6}
    assert outputs(engines[1], requests, **fair) == expected
    assert sum(request.preemptions for request in requests) > 0


def test_requests_that_join_and_leave_at_any_time_change_nothing(engines: Engines) -> None:
    texts = prompts(12)
    expected = outputs(engines[0], numbers.requests(texts))
    batcher = make_batcher(policy="dlpm", pages=20)
    driver = driving.Driver(batcher, engines[1])
    requests = numbers.requests(texts)
    for number, request in enumerate(requests):
        batcher.queue.submit(request, 0.0)
        driver.turn()
        if number == 5:
            batcher.queue.abort(requests[3])
    while driver.turn():
        pass
    for number, request in enumerate(requests):
        output = request.tokens[request.prompt_tokens :]
        assert output == expected[number][: len(output)]
        assert len(output) == NEW_TOKENS or number == 3


def test_a_page_given_up_for_an_equal_one_is_never_read_again(engines: Engines) -> None:
    """Two requests compute the same prefix at once and the second adopts the first's pages. A third, which enters then,
    writes into those that the second gave up."""
    twin = prompts(2)[1][:64]
    texts = [[*twin, 5], [*twin, 6], prompts(6, seed=8)[5]]
    expected = [outputs(engines[0], numbers.requests([text], max_tokens=20))[0] for text in texts]
    batcher = make_batcher(token_budget=200, pages=12)
    first, second, third = numbers.requests(texts, max_tokens=20)
    driver = driving.Driver(batcher, engines[1])
    for request in (first, second):
        batcher.queue.submit(request, 0.0)
    before = batcher.plan(0.0)
    assert before is not None
    pages = list(second.pages)
    batcher.commit(before, engines[1].launch(before.batch).wait())
    assert second.pages[:2] == first.pages[:2] != pages[:2], "the second adopts the first's pages"
    batcher.queue.submit(third, 0.0)
    driver.turn()
    assert set(third.pages) & set(pages), "the third writes into what the second gave up"
    while driver.turn():
        pass
    assert [request.tokens[request.prompt_tokens :] for request in (first, second, third)] == expected


WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 5},
    {"temperature": 1.5, "top_k": 40, "top_p": 0.95, "seed": 11},
    {"temperature": 2.0, "top_p": 0.8, "min_p": 0.01, "seed": 6},
    {"frequency_penalty": 2.0, "presence_penalty": 1.0},
    {"repetition_penalty": 5.0, "temperature": 1.0, "seed": 4},
    {"ignore_eos": False, "min_tokens": 6, "stop_token_ids": tuple(range(3, 60))},
    {"temperature": 3.0, "seed": 5, "logprobs": 3},
    {"logit_bias": ((7, 100.0), (9, 99.0)), "frequency_penalty": 2.0},
    {"logprobs": 0},
]


def test_every_way_of_sampling_means_the_same(engines: Engines) -> None:
    """Also beside each other in one batch, in chunks, and after a preemption."""
    texts = prompts(len(WAYS))
    found = []
    for number, engine in enumerate(engines):
        made = [
            make_request(text, 10_000 + 100 * number + n, **{"max_tokens": 40, **way})
            for n, (text, way) in enumerate(zip(texts, WAYS, strict=True))
        ]
        found.append(outputs(engine, made, pages=PAGES if number == 0 else 12, admission=AdmissionMode.OPTIMISTIC))
        preemptions = sum(request.preemptions for request in made)
    assert found[1] == found[0]
    assert preemptions > 0
    assert found[0][1] != found[0][0]


def test_sampled_text_goes_on_at_another_worker(engines: Engines) -> None:
    """Whichever engine began it."""
    way: dict[str, Any] = {"temperature": 1.5, "top_k": 40, "seed": 11, "frequency_penalty": 0.5}
    text = prompts(2)[1]
    whole = outputs(engines[0], [make_request(text, 20_000, **way)])[0]
    for number, engine in enumerate(engines):
        rest = make_request([*text, *whole[:3]], 20_001 + number, seed_position=3, **{**way, "max_tokens": 5})
        assert outputs(engine, [rest]) == [whole[3:]]


def constrained(arrival: int, known: Sequence[Sequence[int]] = ((),) * 8) -> list[Request]:
    """Requests of which three of four are constrained, each in another way, which go on after their `known` outputs."""
    ways: list[dict[str, Any]] = [
        {"constraint": LISTS, "temperature": 1.0},
        {"constraint": Constraint("regex", ("(ab|c)*d",)), "frequency_penalty": 1.0},
        {"ignore_eos": True},
        {"constraint": Constraint("regex", ("[a-z]{30,40} [0-9]+",)), "temperature": 1.5, "top_k": 5},
    ]
    return [
        make_request(
            [*text, *known[n]],
            arrival + n,
            seed_position=len(known[n]),
            **{"max_tokens": 40 - len(known[n]), "seed": n, "ignore_eos": False} | ways[n % 4],
        )
        for n, text in enumerate(prompts(8)[: len(known)])
    ]


def test_constraints_mean_the_same(engines: Engines) -> None:
    """Also beside other requests in one batch and in chunks."""
    expected = outputs(engines[0], constrained(60_000), eos=EOS)
    assert outputs(engines[1], constrained(61_000), eos=EOS, pages=9, admission=AdmissionMode.OPTIMISTIC) == expected
    ended = [spelled(tokens) for tokens in expected[1::4] if tokens[-1] in EOS]
    assert ended
    assert all(re.fullmatch("(ab|c)*d", text) for text in ended)


def test_a_constrained_output_goes_on_after_a_preemption(engines: Engines) -> None:
    """Each of two takes two pages when it enters and needs a third in the end, and there are four."""
    way: dict[str, Any] = {
        "constraint": Constraint("regex", ("[a-z]{36,38} [0-9]+",)),
        "ignore_eos": False,
        "max_tokens": 40,
    }
    both = [
        [make_request(range(3 + n, 34 + n), 66_000 + 100 * number + n, temperature=1.5, seed=n, **way) for n in (0, 30)]
        for number in range(2)
    ]
    expected = outputs(engines[0], both[0], eos=EOS)
    assert outputs(engines[1], both[1], eos=EOS, pages=4, admission=AdmissionMode.OPTIMISTIC) == expected
    assert sum(request.preemptions for request in both[1]) > 0


def test_a_constrained_text_goes_on_at_another_worker(engines: Engines) -> None:
    """Whichever engine began it."""
    whole = outputs(engines[0], constrained(62_000), eos=EOS)
    for number, engine in enumerate(engines):
        rest = constrained(63_000 + 100 * number, [tokens[:-1][:3] for tokens in whole])
        assert outputs(engine, rest, eos=EOS) == [tokens[len(tokens[:-1][:3]) :] for tokens in whole]


def test_an_output_that_cannot_go_on_is_a_failure_and_its_batch_goes_on(engines: Engines) -> None:
    """The first two tokens of its output do not match; the texts of the others are those without it."""
    expected = outputs(engines[0], constrained(64_000, [()] * 4), eos=EOS)
    for number, engine in enumerate(engines):
        requests = constrained(65_000 + 100 * number, [()] * 4)
        broken = make_request([3, 4, 5], 65_050 + 100 * number, seed_position=2, constraint=OBJECT, ignore_eos=False)
        batcher, failures = make_batcher(eos=EOS), []
        for request in (broken, *requests):
            batcher.queue.submit(request, 0.0)
        while (plan := batcher.plan(0.0)) is not None:
            for advance in batcher.commit(plan, engine.launch(plan.batch).wait()):
                if advance.failure:
                    failures.append((advance.request, advance.failure))
                    batcher.queue.abort(advance.request)
        assert [request for request, _ in failures] == [broken]
        assert "the output cannot go on" in failures[0][1]
        assert [request.tokens[request.prompt_tokens :] for request in requests] == expected


def test_white_space_of_json_ends_also_with_the_library_that_vllm_requires() -> None:
    for text in ('{"a": 1, "b":[1,\n  2]}', '{"a":1}'):
        GRAMMARS_OF_BYTES.compile(Constraint("json_object")).matcher().accept(list(text.encode()))
    for text in ("{  ", "{\n\n", '{"a":1  ', '{"a":  ', '{"a": 1,\n\n', "{\n" + " " * 41):
        with pytest.raises(ConstraintBroken):
            GRAMMARS_OF_BYTES.compile(Constraint("json_object")).matcher().accept(list(text.encode()))


def test_the_prompts_logprobs_are_those_of_the_other_engine(engines: Engines) -> None:
    """Also in chunks, beside prompts that ask for none, and with the prompt in the cache."""
    texts = [text * 2 for text in prompts(3)]
    results: list[list[list[float]]] = []
    for number, engine in enumerate(engines):
        batcher, found = make_batcher(token_budget=16), {}
        for n, text in enumerate([texts[0], *texts]):
            way: dict[str, Any] = {"prompt_logprobs": n - 1, "max_tokens": 2} if n else {}
            batcher.queue.submit(make_request(text, 40_000 + 100 * number + n, **way), 0.0)
        while (plan := batcher.plan(0.0)) is not None:
            for advance in batcher.commit(plan, engine.launch(plan.batch).wait()):
                if advance.prompt_logprobs is not None:
                    found[advance.request.arrival % 100] = advance.prompt_logprobs
        assert [len(found[n + 1]) for n in range(3)] == [len(text) - 1 for text in texts]
        assert [{len(score.top) for score in found[n + 1]} for n in range(3)] == [{0}, {1}, {2}]
        results.append([[score.logprob for score in found[n + 1]] for n in range(3)])
    for mine, theirs in zip(*results, strict=True):
        assert theirs == pytest.approx(mine, abs=1e-3)


def test_logprobs_are_those_of_the_model(engines: Engines) -> None:
    """Also of a constrained output, which may be sampled in other steps, as its masks take their time."""
    texts = prompts(4)
    results: list[list[list[tuple[int, SampledLogprobs | None]]]] = []
    for number, engine in enumerate(engines):
        batcher = make_batcher(eos=EOS)
        found: list[list[tuple[int, SampledLogprobs | None]]] = [[] for _ in texts]
        for n, text in enumerate(texts):
            alternatives = None if n == 1 else n
            way: dict[str, Any] = {"temperature": 2.0, "seed": n, "logprobs": alternatives}
            if n == 3:
                way |= {"constraint": OBJECT, "ignore_eos": False}
            batcher.queue.submit(make_request(text, 30_000 + 100 * number + n, **way), 0.0)
        while (plan := batcher.plan(0.0)) is not None:
            for advance in batcher.commit(plan, engine.launch(plan.batch).wait()):
                known: Sequence[SampledLogprobs | None] = advance.logprobs or [None] * len(advance.tokens)
                found[advance.request.arrival % 100] += zip(advance.tokens, known, strict=True)
        results.append(found)
    for mine, theirs in zip(*results, strict=True):
        assert [token for token, _ in theirs] == [token for token, _ in mine]
        for (_, one), (_, other) in zip(mine, theirs, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert other.logprob == pytest.approx(one.logprob, abs=1e-4)
                assert [token for token, _ in other.top] == [token for token, _ in one.top]
                assert [value for _, value in other.top] == pytest.approx([value for _, value in one.top], abs=1e-4)
