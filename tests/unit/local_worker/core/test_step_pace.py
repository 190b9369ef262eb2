"""The pace of steps is learned from their times, whatever the device, and bounds how long a step lasts."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_worker.core import plan
from local_worker.core.batch import Slice
from local_worker.core.plan import LEAST_CONTEXT, LEAST_STEPS, STRETCH, Plan, StepLoad, StepPace
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.core.test_batcher import tokens_for
from tests.unit.local_worker.engine.driving import make_batcher, make_request

BUDGET = 2048
FIXED, PER_TOKEN, PER_CONTEXT, PER_PAIR = 0.004, 8.6e-5, 1.1e-7, 2.8e-9  # seconds; an A100 with a model of 8B
TURN = PER_TOKEN / PER_PAIR  # the context at which attention takes as long as the rest: 30,714 tokens


def seconds(load: StepLoad) -> float:
    return FIXED + PER_TOKEN * load.tokens * 1e3 + PER_CONTEXT * load.context * 1e6 + PER_PAIR * load.pairs * 1e6


def learned(noise: float = 0.0, limit: float | None = None, steps: int = 200) -> StepPace:
    pace, dice = StepPace(BUDGET, limit), Random(1)
    for _ in range(steps):
        tokens, start, decodes = dice.randrange(1, BUDGET), dice.randrange(100_000), dice.randrange(64)
        pairs = tokens * (2 * start + tokens) / 2
        load = StepLoad(1.0, (tokens + decodes) / 1e3, (start + tokens + 500 * decodes) / 1e6, pairs / 1e6)
        pace.observe(load, seconds(load) * dice.gauss(1.0, noise))
    return pace


def test_nothing_is_known_before_some_steps() -> None:
    for pace in (StepPace(BUDGET), learned(steps=LEAST_STEPS - 1)):
        assert pace.most_tokens(1_000_000, BUDGET) == BUDGET
        assert pace.counted(1_000_000, 7) == 7
        assert pace.budget == BUDGET
    assert StepPace(BUDGET, 0.001).budget == BUDGET


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 0.01), (0.05, 0.15)])
def test_a_token_counts_as_attention_makes_it_longer(noise: float, tolerance: float) -> None:
    pace = learned(noise)
    for start in (0, 20_000, 32_768, 131_072):
        tokens = pace.most_tokens(start, BUDGET)
        lasts = PER_TOKEN * tokens + PER_PAIR * tokens * (start + tokens / 2)
        if start <= TURN:
            assert tokens == pytest.approx(BUDGET, rel=tolerance), "twice as long is long enough"
        else:
            assert lasts == pytest.approx(STRETCH * PER_TOKEN * BUDGET, rel=tolerance)


@given(st.integers(0, 10**6), st.floats(0, BUDGET))
def test_tokens_that_fit_count_as_what_was_left(start: int, budget: float) -> None:
    pace = learned()
    tokens = pace.most_tokens(start, budget)
    assert pace.counted(start, tokens) <= budget + 1e-6
    assert pace.counted(start, tokens + 1) > budget - 1e-6


def test_a_load_counts_tokens_their_context_and_pairs_of_prompts_alone() -> None:
    decode = Slice(0, (1,), 99, 100, (), True, SamplingParams(), 50)
    prompt = Slice(1, (1,) * 200, 100, 300, (), False, SamplingParams(), 400)
    assert StepLoad.of([decode]) == (1.0, 0.001, 0.0001, 0.0)
    assert StepLoad.of([decode, prompt]) == (1.0, 0.201, 0.0004, 200 * 200 / 1e6)


def test_a_limit_in_seconds_is_met_exactly_where_times_are() -> None:
    assert learned(limit=0.1).budget == pytest.approx((0.1 - FIXED) / PER_TOKEN / STRETCH, rel=1e-4)


def test_a_limit_in_seconds_makes_steps_smaller() -> None:
    assert learned(limit=0.1).budget == pytest.approx((0.1 - FIXED) / PER_TOKEN / STRETCH, rel=0.01)
    assert learned(limit=1.0).budget == BUDGET, "the budget in tokens still holds"
    assert learned(limit=0.001).budget == 1, "and a step never stands still"


def test_hours_of_steps_without_prompts_break_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that fall ten times as fast, so that few steps stand for many."""
    monkeypatch.setattr(plan, "KEPT", 0.95)
    pace = learned()
    decodes = StepLoad(1.0, 0.064, 0.03, 0.0)
    for _ in range(20_000):
        pace.observe(decodes, seconds(decodes))
    assert pace.most_tokens(131_072, BUDGET) == BUDGET, "what was known of prompts is forgotten"
    dice = Random(3)
    for _ in range(200):
        tokens, start = dice.randrange(500, BUDGET), dice.randrange(131_072)
        load = StepLoad(1.0, tokens / 1e3, (start + tokens) / 1e6, tokens * (2 * start + tokens) / 2e6)
        pace.observe(load, seconds(load))
    lasts = PER_TOKEN * (tokens := pace.most_tokens(131_072, BUDGET)) + PER_PAIR * tokens * (131_072 + tokens / 2)
    assert lasts == pytest.approx(STRETCH * PER_TOKEN * BUDGET, rel=0.1), "and is learned again"


def test_a_process_that_was_stopped_for_an_hour_is_not_slow_afterwards() -> None:
    pace, before = learned(), learned().most_tokens(131_072, BUDGET)
    odd = StepLoad(1.0, 1.0, 0.1, 100.0)
    pace.observe(odd, 3600.0)
    for _ in range(50):
        pace.observe(odd, seconds(odd))
    assert pace.most_tokens(131_072, BUDGET) > before / 2


@pytest.mark.parametrize("time", [lambda load: 0.01, lambda load: 0.5 - load.pairs / 1e3, lambda load: load.pairs])
def test_odd_times_do_not_stop_prompts(time: Callable[[StepLoad], float]) -> None:
    pace, dice = StepPace(BUDGET), Random(2)
    for _ in range(500):
        load = StepLoad(1.0, dice.random(), dice.random(), dice.random() * 100)
        pace.observe(load, time(load))
        assert 0 < pace.most_tokens(10_000, BUDGET) <= BUDGET
        assert pace.counted(10_000, 1) <= 2 + 10_000 / LEAST_CONTEXT


def test_a_step_late_in_a_long_prompt_is_at_most_twice_as_long_as_one_at_its_beginning() -> None:
    batcher = make_batcher(pages=4000, token_budget=256, max_prompt_tokens=15_000, policy="dlpm")

    def lasts(plan: Plan) -> float:
        load = StepLoad.of(plan.batch.slices)
        return 0.001 + load.tokens / 1e3 + load.pairs / 1e3  # a token at context 1,000 takes twice as long

    times = []
    for number in range(4):
        sampling = SamplingParams(max_tokens=1, ignore_eos=True)
        batcher.queue.submit(make_request([number] * 14_000, arrival=number, sampling=sampling), 0.0)
    while (plan := batcher.plan(0.0)) is not None:
        times.append(lasts(plan))
        batcher.timed(plan, times[-1])
        batcher.commit(plan, tokens_for(plan))
    longest = 0.001 + 256e-6 + 256 * 128 / 1e9
    assert max(times[LEAST_STEPS:]) <= 1.1 * STRETCH * longest
    assert max(times[:LEAST_STEPS]) > 1.1 * STRETCH * longest, "which is not so before the pace is known"
