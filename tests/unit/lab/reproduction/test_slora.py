"""The measured system's habits, one by one, on its batching core, step by step."""

import random
from collections.abc import Iterable, Sequence
from itertools import count

import pytest

from lab.reproduction.fitted import SLORA
from lab.reproduction.slora import ADAPTER_TOKENS, DECODES_BETWEEN_PREFILLS
from lab.reproduction.systems import slora
from local_worker.core.batch import StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.request import Request
from serving.cost import MICRO
from serving.sampling_params import SamplingParams
from simulation.prompts import CHAIN_SEED, PromptSegments, digests_of
from simulation.step_time import TILE, StepTime
from tests.unit.lab.reproduction.slora_model import Asked, Router

pytestmark = pytest.mark.slow

SEGMENTS = PromptSegments()
A10G = SLORA["a10g llama-2-7b"]


def make(capacity: int, policy: str = "slora-vtc", is_revised: bool = True) -> Batcher:
    return slora(A10G, policy, capacity, is_revised=is_revised).worker.make_batcher()


def request(number: int, client: str, prompt: int, output: int) -> Request:
    tokens = list(SEGMENTS.fresh(prompt))
    return Request(
        id=str(number),
        client=client,
        tokens=tokens,
        prompt_tokens=prompt,
        digests=list(digests_of(tokens, 4)),
        chain_seed=CHAIN_SEED,
        sampling=SamplingParams(max_tokens=output, ignore_eos=True),
        arrival=number,
    )


def step(batcher: Batcher, *during: Request) -> list[str]:
    """One step, in the midst of which `during` arrive; returns whose prompts it computed."""
    return [entered.client for entered in stepped(batcher, during)]


def stepped(batcher: Batcher, during: Iterable[Request]) -> Sequence[Request]:
    plan = batcher.plan(0.0)
    for arrival in during:
        batcher.queue.submit(arrival, 0.0)
    if plan is None:
        return ()
    batcher.commit(plan, StepResult((1,) * len(plan.batch.slices)))
    batcher.check_invariants()
    return plan.admitted


@pytest.mark.parametrize(("clients", "fits"), [("aaa", 3), ("aab", 3), ("abc", 2)])
def test_every_client_in_the_batch_costs_the_room_of_an_adapter(clients: str, fits: int) -> None:
    batcher = make(3 * (100 + 10) + 2 * ADAPTER_TOKENS + 1)
    for number, client in enumerate(clients):
        batcher.queue.submit(request(number, client, 100, 10), 0.0)
    assert len(step(batcher)) == fits


def until_due(batcher: Batcher) -> None:
    batcher.queue.submit(request(0, "a", 8, 100), 0.0)
    for _ in range(DECODES_BETWEEN_PREFILLS):  # the prompt, and all steps but one
        step(batcher)


def test_who_arrives_in_the_last_step_is_read_a_step_too_late() -> None:
    batcher = make(10_000)
    until_due(batcher)
    assert step(batcher, request(1, "b", 8, 8)) == []
    assert step(batcher) == []
    assert step(batcher) == ["b"]


def test_who_arrives_before_the_last_step_enters_after_it() -> None:
    batcher = make(10_000)
    until_due(batcher)
    batcher.queue.submit(request(1, "b", 8, 8), 0.0)
    assert step(batcher) == []
    assert step(batcher) == ["b"]


def test_an_end_is_an_occasion_to_read() -> None:
    batcher = make(10_000)
    batcher.queue.submit(request(0, "a", 8, 100), 0.0)
    batcher.queue.submit(request(1, "a", 8, DECODES_BETWEEN_PREFILLS + 1), 0.0)
    for _ in range(DECODES_BETWEEN_PREFILLS):
        step(batcher)
    assert step(batcher, request(2, "b", 8, 8)) == []  # request 1 ends
    assert step(batcher) == ["b"]


@pytest.mark.parametrize(("is_revised", "tokens"), [(False, 1), (True, 2)])
def test_in_the_revision_an_end_is_paid_by_everybody(is_revised: bool, tokens: int) -> None:
    batcher = make(10_000, is_revised=is_revised)
    batcher.queue.submit(request(0, "a", 8, 100), 0.0)
    batcher.queue.submit(request(1, "b", 8, 2), 0.0)
    step(batcher)
    assert batcher.queue.policy.balance("a") == 8 * MICRO  # the first token is paid with the next step
    step(batcher)  # b ends
    assert batcher.queue.policy.balance("a") == batcher.queue.policy.balance("b") == (8 + 2 * tokens) * MICRO


def test_a_client_that_comes_back_to_an_empty_queue_is_not_lifted() -> None:
    batcher = make(10_000)
    until_due(batcher)
    batcher.queue.submit(request(1, "b", 8, 8), 0.0)
    step(batcher)
    assert batcher.queue.policy.balance("b") == 0 < batcher.queue.policy.balance("a")
    batcher.queue.submit(request(2, "c", 8, 8), 0.0)
    step(batcher)
    assert batcher.queue.policy.balance("c") == 0


def test_a_prediction_is_paid_in_advance_and_what_did_not_come_is_given_back() -> None:
    batcher = make(10_000, policy="slora-oracle")
    batcher.queue.submit(request(0, "a", 8, 3), 0.0)
    for _ in range(3):
        step(batcher)
        assert batcher.queue.policy.balance("a") == (8 + 2 * 3) * MICRO


def test_linear_layers_take_whole_tiles() -> None:
    def seconds(prompt: int) -> float:
        batcher = make(10_000)
        batcher.queue.submit(request(0, "a", prompt, 2), 0.0)
        plan = batcher.plan(0.0)
        assert plan is not None
        return StepTime(A10G.coefficients)(plan.batch, [1])

    context = A10G.coefficients.context
    assert seconds(TILE) - seconds(1) == pytest.approx((TILE - 1) * context)
    assert seconds(TILE + 1) - seconds(TILE) > 0.005


def linear(inputs: float, outputs: float) -> float:
    return inputs + 2 * outputs


def made(asked: Asked) -> Request:
    return request(asked.number, asked.client, asked.prompt, asked.output)


def history(seed: int) -> tuple[int, list[tuple[int, bool, Asked]]]:
    """Room in tokens, and requests with the step in which each comes, before it begins or in its midst."""
    rng = random.Random(seed)
    clients, step, arrivals = "abcdef"[: rng.randint(2, 6)], 0, []
    for number in range(30):
        step += rng.choice((0, 0, 0, 1, 3, 30))
        asked = Asked(number, rng.choice(clients), rng.randint(1, 50), rng.randint(1, 40))
        arrivals.append((step, rng.random() < 0.5, asked))
    return rng.randint(300, 900), arrivals


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", ["slora-vtc", "slora-predict"])
def test_who_enters_when_and_what_is_paid_follow_the_authors_rules(policy: str, seed: int) -> None:
    capacity, arrivals = history(seed)
    batcher = make(capacity, policy)
    router = Router(capacity, linear, policy == "slora-predict")
    for now in count():
        coming = [(late, asked) for step, late, asked in arrivals if step == now]
        for _, asked in (early for early in coming if not early[0]):
            router.submit(asked)
            batcher.queue.submit(made(asked), 0.0)
        during = [asked for late, asked in coming if late]
        assert [int(entered.id) for entered in stepped(batcher, map(made, during))] == router.step(during)
        paid = {client: batcher.queue.policy.balance(client) / MICRO for client in router.counters}
        assert paid == pytest.approx(router.counters, abs=1e-3)
        if now > arrivals[-1][0] and not router.busy:
            break
    assert not batcher.queue.waiting
    assert not batcher.queue.running
