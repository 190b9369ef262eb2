"""Two classes of requests: what interactive ones get does not depend on the background class, which has a floor."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.errors import ClientLimit, QueueFull
from fairlead.outcomes import FinishReason
from local_worker.core import class_turns, preemption
from local_worker.core.accounts.account import Path
from local_worker.core.accounts.tree import FairnessLevels
from local_worker.core.batch import StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.class_turns import LEAST_PROMPT, MOST_PROMPT, QUIET_STEPS
from local_worker.core.engine_cache import EngineCache
from local_worker.core.external import ExternalBatch, ExternalQueue
from local_worker.core.limits import AdmissionMode, BatchLimits
from local_worker.core.plan import Plan
from local_worker.core.policies import WHOLE_POLICIES, QueuePolicyConfig
from local_worker.core.policies.protocol import ClassedPolicy
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.request import Request
from serving.cost import WeightedTokens
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.core.test_fair_slices import World, finish, run
from tests.unit.local_worker.engine.driving import BLOCK, CLASSED_DLPM, make_batcher, make_request

LONGEST, MOST_OUTPUT = 300, 30
USERS = ("s/u", "s/v", "t/u")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of a random history, which comes before the step with this number."""

    step: int
    user: str
    prompt: int
    output: int
    background: bool = False


def history(dice: Random, rate: float, longest: int, background: bool) -> list[Arrival]:
    found = []
    for step in range(80):
        while dice.random() < rate:
            prompt, output = dice.choice([3, 20, longest]), dice.choice([1, 5, MOST_OUTPUT])
            found.append(Arrival(step, dice.choice(USERS), prompt, output, background))
    return found


class Rig:
    """A batch, and an engine that answers each slice by the position of its end."""

    def __init__(self, batcher: Batcher, ahead: int = 0) -> None:
        self.batcher = batcher
        self.numbers: dict[Request, int] = {}
        self.answers: dict[Request, list[int]] = {}
        self._ahead = ahead
        self._launched: deque[Plan] = deque()

    def ask(self, number: int, arrival: Arrival) -> Request:
        dice = Random(f"{number} {arrival.background}")
        tokens = [dice.randrange(1_000_000) for _ in range(arrival.prompt)]
        sampling = SamplingParams(max_tokens=arrival.output, ignore_eos=True)
        request = make_request(tokens, arrival=len(self.numbers), sampling=sampling)
        request.client, request.background = arrival.user, arrival.background
        self.numbers[request], self.answers[request] = number, []
        self.batcher.queue.submit(request, 0.0)
        return request

    def step(self) -> Plan | None:
        """Plan and commit as an engine's loop does; return the plan."""
        plan = self.batcher.plan(0.0)
        if plan is not None:
            self._launched.append(plan)
        if len(self._launched) > (self._ahead if plan is not None else 0):
            done = self._launched.popleft()
            samples = [piece.stop for _, piece in done.parts if piece.samples]
            for made in self.batcher.commit(done, StepResult(tuple(samples))):
                self.answers[made.request] += made.tokens
        return plan

    def interactive(self, plan: Plan | None) -> dict[int, tuple[int, int]]:
        """Return what the step of `plan` computes of interactive requests, by their numbers."""
        parts = () if plan is None else plan.parts
        return {self.numbers[each]: (piece.start, piece.stop) for each, piece in parts if not each.background}

    def generated(self, *, background: bool) -> int:
        return sum(len(answer) for request, answer in self.answers.items() if request.background is background)


def small_batcher(dice: Random, *, ahead: int = 0) -> Batcher:
    running = dice.choice([4, 12])
    return make_batcher(
        pages=dice.choice([120, 300]),
        max_running=running,
        token_budget=dice.choice([24, 64]),
        max_prompt_tokens=LONGEST,
        max_output_tokens=MOST_OUTPUT,
        policy=CLASSED_DLPM,
        admission=dice.choice(list(AdmissionMode)),
        quantum_tokens=32,
        most_debt_tokens=dice.choice([0, 64, 256]),
        levels=FairnessLevels.parse(dice.choice(["user", "tenant,user"])),
        ahead=ahead,
    )


def replayed(seed: int, arrivals: Iterable[Arrival]) -> list[dict[int, tuple[int, int]]]:
    """Return what each step computes of interactive requests, in a world that `seed` describes."""
    rig, here = Rig(small_batcher(Random(seed))), deque(enumerate(arrivals))
    found = []
    for step in range(400):
        while here and here[0][1].step <= step:
            rig.ask(*here.popleft())
        plan = rig.step()
        found.append(rig.interactive(plan))
        if step % 50 == 0:
            rig.batcher.check_invariants()
    for request, answer in rig.answers.items():
        assert answer == [*range(request.prompt_tokens, request.prompt_tokens + len(answer))], "no gap and no repeat"
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(549861)  # an account beyond its share of places, which left fewer free beside background requests
@example(1660250124)  # one that gave pages to others, because background requests had the last places
def test_interactive_requests_get_in_each_step_what_they_get_without_the_background_class(seed: int) -> None:
    dice = Random(seed)
    upper = history(dice, dice.choice([0.05, 0.1, 0.3]), dice.choice([60, LONGEST]), False)
    lower = history(dice, 0.6, LONGEST, True)
    both = sorted([*upper, *lower], key=lambda arrival: arrival.step)
    # The numbers of interactive requests are those without the others.
    with pytest.MonkeyPatch.context() as patch:
        # Nothing is cached: what a request finds depends on what others, of both classes, have computed and evicted.
        patch.setattr(PrefixCache, "publish", lambda self, request, tokens: None)
        alone = replayed(seed, upper)
        patch.setattr(class_turns, "PATIENCE", 10**9)
        beside = replayed(seed, both)
    places = {number: place for place, number in enumerate(n for n, each in enumerate(both) if not each.background)}
    renamed = [{places[number]: part for number, part in step.items()} for step in beside]
    assert renamed == alone


@pytest.mark.parametrize("prompt", [4, LONGEST])
@pytest.mark.parametrize("ahead", [0, 1])
def test_background_requests_leave_a_full_batch_within_a_step_and_go_on_where_they_were(
    ahead: int, prompt: int
) -> None:
    rig = Rig(make_batcher(pages=300, max_running=4, token_budget=2048, policy=CLASSED_DLPM, ahead=ahead), ahead)
    lower = [rig.ask(number, Arrival(0, "s/u", prompt, MOST_OUTPUT, background=True)) for number in range(8)]
    for _ in range(20):
        rig.step()
    assert len(rig.batcher.queue.running) >= 3, "places or pages are taken"
    upper = [rig.ask(number, Arrival(0, "s/v", prompt, 2)) for number in range(8, 11)]
    for _ in range(1 + ahead):
        rig.step()
    assert all(request in rig.batcher.queue.running for request in upper)
    while rig.batcher.queue.running or rig.batcher.queue.waiting:
        rig.step()
        rig.batcher.check_invariants()
    for request in [*lower, *upper]:
        assert rig.answers[request] == [*range(prompt, prompt + request.sampling.max_tokens)], "no gap and no repeat"


def background_tokens(plan: Plan) -> int:
    return sum(piece.stop - piece.start for request, piece in plan.parts if request.background)


@pytest.mark.parametrize("prompt", [4, 20, 36, 100])
def test_a_step_with_an_interactive_prompt_is_short(prompt: int) -> None:
    rig = Rig(make_batcher(pages=3000, max_running=80, token_budget=240, policy=CLASSED_DLPM))
    rig.ask(0, Arrival(0, "s/v", 4, MOST_OUTPUT))
    for number in range(1, 60):
        rig.ask(number, Arrival(0, "s/u", 4, MOST_OUTPUT, background=True))
    for _ in range(10):
        rig.step()
    rig.ask(60, Arrival(0, "s/v", prompt, 2))
    plan = rig.step()
    assert plan is not None
    assert rig.interactive(plan) == {0: (13, 14), 60: (0, prompt)}
    left = max(0, round(240 * MOST_PROMPT) - prompt)
    assert background_tokens(plan) == left, "background requests take what is left of the part"
    plan = rig.step()
    assert plan is not None
    assert len(plan.parts) == 61, "all go on in the next one"


def beside_background_prompts() -> Rig:
    rig = Rig(make_batcher(pages=3000, max_running=8, token_budget=240, policy=CLASSED_DLPM))
    for number in range(2 * QUIET_STEPS):
        rig.ask(number, Arrival(0, "s/u", LONGEST, 1, background=True))
    return rig


def test_the_step_of_the_first_interactive_request_is_as_short_as_later_ones() -> None:
    rig = beside_background_prompts()
    plan = rig.step()
    assert plan is not None
    assert background_tokens(plan) == 240
    rig.ask(len(rig.numbers), Arrival(0, "s/v", 4, 5))
    for _ in range(5):
        plan = rig.step()
        assert plan is not None
        assert 4 <= background_tokens(plan) <= 240 * MOST_PROMPT + 8


def test_background_prompts_are_short_until_no_interactive_request_was_here_for_as_many_steps_as_are_quiet() -> None:
    rig = beside_background_prompts()
    rig.ask(len(rig.numbers), Arrival(0, "s/v", 4, 1))
    plans = (plan for _ in range(2 * QUIET_STEPS) if (plan := rig.step()) is not None)
    assert next(number for number, plan in enumerate(plans) if background_tokens(plan) == 240) == QUIET_STEPS


@pytest.mark.parametrize(("prompt", "part"), [(LONGEST, LEAST_PROMPT), (20, MOST_PROMPT)])
def test_background_requests_compute_less_in_a_step_the_more_steps_long_interactive_prompts_fill(
    prompt: int, part: float
) -> None:
    rig = beside_background_prompts()
    for _ in range(200):
        rig.ask(len(rig.numbers), Arrival(0, "s/v", prompt, 1))
        rig.step()
    while any(not request.background for request in rig.batcher.queue.waiting):
        rig.step()
    rig.ask(len(rig.numbers), Arrival(0, "s/v", 4, MOST_OUTPUT))
    plans = [plan for _ in range(5) if (plan := rig.step()) is not None]
    assert background_tokens(plans[-1]) == pytest.approx(240 * part, abs=9)


def test_nobody_waits_for_a_prefix_that_a_background_request_computes() -> None:
    rig = Rig(make_batcher(pages=300, max_running=8, token_budget=16, policy=CLASSED_DLPM))
    arrivals = [Arrival(0, "s/u", LONGEST, 2, background=True), Arrival(0, "s/v", LONGEST, 2)]
    lower = rig.ask(0, arrivals[0])
    rig.step()
    upper = make_request(lower.tokens[:LONGEST], arrival=1, sampling=SamplingParams(max_tokens=2, ignore_eos=True))
    upper.client = "s/v"
    rig.numbers[upper], rig.answers[upper] = 1, []
    rig.batcher.queue.submit(upper, 0.0)
    plan = rig.step()
    assert plan is not None
    assert [(request, piece.stop - piece.start) for request, piece in plan.parts] == [(upper, 16)]


def beside_a_flood(running: int, lower: Sequence[Arrival]) -> tuple[int, int]:
    """Serve `lower` beside a flood of which as many requests wait as can run; return how many tokens the flood gets and
    how many of `lower` end."""
    dice = Random(1)
    rig = Rig(make_batcher(pages=12 * running + 252, max_running=running, policy=CLASSED_DLPM))
    asked = [rig.ask(number, each) for number, each in enumerate(lower)]
    for _ in range(1000):
        while sum(not request.background for request in rig.batcher.queue.waiting) < running:
            rig.ask(len(rig.numbers), Arrival(0, dice.choice(USERS), 20, 20))
        rig.step()
    rig.batcher.check_invariants()
    ended = sum(len(rig.answers[request]) == request.sampling.max_tokens for request in asked)
    return rig.generated(background=False), ended


@cache
def alone(running: int) -> int:
    return beside_a_flood(running, ())[0]


@pytest.mark.parametrize("running", [4, 40])
@pytest.mark.parametrize(("prompt", "output"), [(20, 20), (LONGEST, 5), (5, MOST_OUTPUT)])
def test_the_floor_serves_the_background_class_beside_a_flood_that_keeps_most_of_its_service(
    running: int, prompt: int, output: int
) -> None:
    made, ended = beside_a_flood(running, [Arrival(0, "x/u", prompt, output, background=True)] * 40)
    assert ended >= 2
    assert made >= 0.94 * alone(running)


def test_the_floor_ends_as_soon_as_interactive_requests_leave_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_turns, "PATIENCE", 4)
    rig = Rig(make_batcher(pages=300, max_running=7, token_budget=8, policy=CLASSED_DLPM))
    upper = [rig.ask(number, Arrival(0, "s/v", 1, MOST_OUTPUT)) for number in range(7)]
    rig.step()
    lower = rig.ask(7, Arrival(0, "s/u", 1, MOST_OUTPUT, background=True))
    while lower not in rig.batcher.queue.running:
        rig.step()
    [blocked] = [request for request in upper if request in rig.batcher.queue.waiting]
    rig.batcher.queue.abort(blocked)
    plan = rig.step()
    assert plan is not None
    assert sum(piece.stop - piece.start for _, piece in plan.parts) == 7, "one token of the step is left"
    another = rig.ask(8, Arrival(0, "s/v", 1, MOST_OUTPUT))
    rig.step()
    assert another in rig.batcher.queue.running, "in the place of the background request"
    assert lower in rig.batcher.queue.waiting


class ClassedWorld(World):
    """A world in which the callers' requests are of the background class, or those of `user` are of the other one."""

    policy_name = CLASSED_DLPM
    is_background = True

    @property
    def classes(self) -> ClassedPolicy:
        policy = self.batcher.queue.policy
        assert isinstance(policy, ClassedPolicy)
        return policy

    @property
    def policy(self) -> SlicedDlpm:
        policy = self.classes.background if self.is_background else self.classes.interactive
        assert isinstance(policy, SlicedDlpm)
        return policy

    def submit(self, request: Request) -> None:
        request.background = self.is_background
        super().submit(request)

    def arrive(self, step: int) -> None:
        super().arrive(step)
        others = [each for each in self.batcher.queue.waiting if each.background is not self.is_background]
        if len(others) < 2 and self.dice.random() < 0.3:
            length = self.dice.choice([3, self.longest])
            tokens = [self.dice.randrange(50_000) for _ in range(length)]
            sampling = SamplingParams(max_tokens=self.dice.choice([1, 30]), ignore_eos=True)
            other = make_request(tokens, arrival=self.arrivals, sampling=sampling)
            self.arrivals += 1
            other.client, other.background = "other", not self.is_background
            self.answers[other] = []
            self.batcher.queue.submit(other, 0.0)

    def hungry(self) -> set[Path]:
        waiting = [each for each in self.batcher.queue.waiting if each.background is self.is_background]
        return {account.path for request in [*waiting, *self.policy.open] for account in request.account.lineage}


class InteractiveWorld(ClassedWorld):
    is_background = False


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from([ClassedWorld, InteractiveWorld]))
def test_within_a_class_siblings_differ_by_at_most_the_bound(seed: int, kind: type[ClassedWorld]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preemption, "MOST_REPEATED", float("inf"))
        world = kind(seed)
        if world.is_background:
            world.policy.preemption_deferred()  # others may hold the room for which a request of the class waits
        run(world, 120)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from([ClassedWorld, InteractiveWorld]))
def test_all_of_both_classes_is_served(seed: int, kind: type[ClassedWorld]) -> None:
    world = kind(seed)
    world.policy.preemption_deferred()
    run(world, 120)
    finish(world)


@pytest.mark.parametrize("name", ["dlpm", "vtc", "fcfs", "drr"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_an_engine_that_schedules_by_itself_gets_background_requests_while_no_interactive_one_waits(
    name: str, seed: int
) -> None:
    dice = Random(seed)
    config = QueuePolicyConfig(
        quantum_tokens=16,
        cost=WeightedTokens(),
        max_input_tokens=40,
        max_output_tokens=12,
        most_output_tokens=48,
        block_tokens=BLOCK,
    )
    limits = BatchLimits(
        max_running=4, token_budget=16, max_prompt_tokens=40, max_waiting=1000, max_waiting_per_client=1000
    )
    cost, cache = WeightedTokens(), EngineCache(40, BLOCK)
    policy = ClassedPolicy(WHOLE_POLICIES[name], config)
    queue = ExternalQueue(policy, cache, cost, limits)
    batch, seen = ExternalBatch(queue), 0
    for number in range(150):
        if number < 100:
            request = make_request([number] * dice.choice([2, 6, 30]), arrival=number)
            request.client, request.background = dice.choice(USERS), dice.random() < 0.5
            queue.submit(request, 0.0)
        handed = batch.hand_over(0.0)
        if any(each.background for each in handed):
            assert not policy.interactive.waiting, "but for long misses that wait for another one"
        for running in list(queue.running):
            if dice.random() < 0.6:
                batch.received(running, [1], FinishReason.LENGTH if dice.random() < 0.3 else None)
        seen += sum(each.background for each in handed)
        batch.check_invariants()
    assert seen, "the background class is served in the end"


def test_each_class_has_the_places_of_the_queue_for_itself() -> None:
    rig = Rig(make_batcher(max_waiting=3, policy=CLASSED_DLPM))
    for number in range(3):
        rig.ask(number, Arrival(0, f"s/{number}", 4, 2, background=True))
    with pytest.raises(QueueFull):
        rig.ask(3, Arrival(0, "s/0", 4, 2, background=True))
    for number in range(3):
        rig.ask(4 + number, Arrival(0, "s/0", 4, 2))
    with pytest.raises((QueueFull, ClientLimit)):
        rig.ask(8, Arrival(0, "s/0", 4, 2))
    rig.batcher.check_invariants()
