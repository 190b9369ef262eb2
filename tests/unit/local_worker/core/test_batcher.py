"""The batcher: each request leaves exactly once, pages are conserved, and the theorems hold over whole runs."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.errors import ClientLimit, QueueFull, TooLong
from fairlead.outcomes import FinishReason
from local_worker.core.accounts.account import Account
from local_worker.core.accounts.tree import FLAT, FairnessLevels
from local_worker.core.batch import CompletedStep, SampledLogprobs, Slice, StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode
from local_worker.core.plan import Plan
from local_worker.core.policies.fcfs import Fcfs
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE
from serving.cost import COSTS, MICRO, Cost
from serving.sampling_params import SamplingParams
from simulation.spec import LOCAL_POLICIES
from tests.unit.local_worker.core.device import EOS, Device, lone_output
from tests.unit.local_worker.engine.driving import BLOCK, POLICIES, WHOLE_DLPM, WHOLE_VTC, make_batcher, make_request

PAGES = 16
LARGEST = 8  # pages of a prompt of 18 tokens and an output of 12
# Two clients that share prefixes, token values few enough for hits.
PROMPT = st.binary(min_size=1, max_size=18).map(lambda drawn: [byte % 2 for byte in drawn])


def tokens_for(plan: Plan) -> StepResult:
    """A pseudo-engine: a function of the tokens so far; sometimes the end-of-sequence token."""
    return StepResult(tuple((sum(r.tokens) * 7 + piece.stop) % (EOS + 1) for r, piece in plan.parts if piece.samples))


def service(request: Request) -> int:
    """The cost of what was computed of a request that has begun, whoever paid for it."""
    return (request.charged - request.cached + 2 * request.output_tokens) * MICRO


class BatcherMachine(RuleBasedStateMachine):
    """Submits, steps, aborts between plan and commit, failing steps, deadlines; with `ahead`, plans before the previous
    commit. Every output must equal that of the request alone."""

    policy = "dlpm"
    admission = AdmissionMode.RESERVE
    levels = FLAT
    pages = PAGES
    ahead = 0

    def __init__(self) -> None:
        super().__init__()
        self.batcher = make_batcher(
            pages=self.pages,
            token_budget=7,
            max_running=5,
            policy=self.policy,
            eos=(EOS,),
            admission=self.admission,
            levels=self.levels,
        )
        self.device = Device(self.ahead)
        self.inside: dict[Request, None] = {}
        self.everyone: list[Request] = []
        self.steps: deque[tuple[Plan, CompletedStep]] = deque()
        self.arrivals = 0
        self.now = 0.0

    @rule(
        prompt=PROMPT,
        client=st.sampled_from(("a", "a/u", "b")),
        output=st.integers(1, 12),
        lifetime=st.none() | st.integers(1, 6),
    )
    def submit(self, prompt: list[int], client: str, output: int, lifetime: int | None) -> None:
        request = make_request(prompt, arrival=self.arrivals, sampling=SamplingParams(max_tokens=output))
        request.client, request.interaction = client, "first" if len(prompt) % 3 else "second"
        request.deadline = None if lifetime is None else self.now + lifetime
        self.arrivals += 1
        self.batcher.queue.submit(request, self.now)
        self.inside[request] = None
        self.everyone.append(request)

    @precondition(lambda self: len(self.steps) <= self.ahead)
    @rule()
    def make_plan(self) -> None:
        before = {request: (request.computed, request.preemptions) for request in self.inside}
        plan = self.batcher.plan(self.now)
        under_way = {request for planned, _ in self.steps for request in planned.requests}
        assert all(request.preemptions == before[request][1] for request in under_way & self.inside.keys())
        if plan is None:
            assert self.steps or not self.batcher.queue.running
            assert self.steps or not self.batcher.queue.waiting, "work-conserving: an idle worker has nobody waiting"
            return
        pieces = plan.batch.slices
        assert len({*plan.requests}) == len(pieces) == len(plan.requests)
        assert {*plan.admitted} <= {*plan.requests}, "who enters gets a part of the step"
        prefill = sum(p.stop - p.start for p in pieces if p.stop - p.start > 1)
        assert prefill <= 7
        for request, piece in plan.parts:
            entered = request in plan.admitted or request.preemptions
            assert entered or piece.start == before[request][0]
            self.check(request, piece)
        self.steps.append((plan, self.device.launch(plan.batch)))
        assert len(self.device.known) == len(self.batcher.queue.running), "the engine remembers who runs"

    def check(self, request: Request, piece: Slice) -> None:
        known = len(request.tokens)
        sampling = [other for plan, _ in self.steps for other, each in plan.parts if each.samples]
        assert piece.request == request.arrival
        assert piece.tokens == tuple(() if request in sampling else request.tokens[piece.start : piece.stop])
        assert piece.start < piece.stop == request.computed < request.budget
        assert len(piece.pages) * BLOCK >= piece.stop
        assert piece.samples == (piece.stop == known + (request in sampling))
        assert piece.source == (sampling.index(request) if request in sampling else None)
        assert request not in sampling or (piece.start, piece.stop) == (known, known + 1)

    @precondition(lambda self: self.steps)
    @rule()
    def commit(self) -> None:
        plan, done = self.steps.popleft()
        for advance in self.batcher.commit(plan, done.wait()):
            request = advance.request
            assert request in self.inside
            assert request.tokens[-1:] == [*advance.tokens]
            expected = lone_output(request.tokens[: request.prompt_tokens], request.sampling.max_tokens)
            output = request.tokens[request.prompt_tokens :]
            assert output == expected[: len(output)]
            assert (output == expected) == (advance.finish is not None)
            if advance.finish is not None:
                assert advance.finish == (FinishReason.STOP if advance.tokens[-1] == EOS else FinishReason.LENGTH)
                del self.inside[request]

    @rule(prompts=st.lists(PROMPT, min_size=3, max_size=5), output=st.integers(4, 12))
    def submit_together(self, prompts: list[list[int]], output: int) -> None:
        """As many as share the batch and compete for its pages."""
        for number, prompt in enumerate(prompts):
            self.submit(prompt=prompt, client="ab"[number % 2], output=output, lifetime=None)

    @rule(count=st.integers(1, 12))
    def run(self, count: int) -> None:
        """Steps one after the other, without which few histories get as far as an output."""
        for _ in range(count):
            if len(self.steps) <= self.ahead:
                self.make_plan()
            if self.steps:
                self.commit()

    @precondition(lambda self: self.steps)
    @rule()
    def fail(self) -> None:
        while self.steps:
            for request in self.batcher.fail(self.steps.popleft()[0]):
                del self.inside[request]

    @precondition(lambda self: self.inside)
    @rule(number=st.integers(0, 100))
    def abort(self, number: int) -> None:
        request = list(self.inside)[number % len(self.inside)]
        self.batcher.queue.abort(request)
        del self.inside[request]

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        late = {request for request in self.inside if request.deadline is not None and request.deadline <= self.now}
        assert set(self.batcher.queue.expired(self.now)) == late
        for request in late:
            del self.inside[request]
        deadline = self.batcher.queue.next_deadline()
        assert deadline is None or deadline > self.now

    @invariant()
    def sound(self) -> None:
        self.batcher.check_invariants()
        waiting = set(self.batcher.queue.waiting)
        assert waiting <= self.inside.keys()
        assert len(self.batcher.queue.running) + len(self.batcher.queue.waiting) == len(self.inside)
        assert len(self.batcher.queue.running) <= 5
        assert all(not request.computed and not request.pages for request in waiting)

    @invariant()
    def accounted(self) -> None:
        """The ledger is what one counts by looking at every request that ever was here."""
        ledger, waiting = self.batcher.queue.ledger, set(self.batcher.queue.waiting)
        begun = [request for request in self.everyone if request.charged]
        for account in self.batcher.queue.accounts.clients:
            here = [request for request in self.inside if request.client == account.name]
            counted = sum(request in waiting for request in here)
            assert (account.waiting, account.running) == (counted, len(here) - counted)
            assert account.service == sum(each.service for each in self.everyone if each.client == account.name)
        assert ledger.weighted == sum(map(service, begun))
        assert ledger.prompt_tokens == sum(request.prompt_tokens for request in begun)
        assert ledger.cached_tokens == sum(request.cached for request in begun)


SETTINGS = settings(max_examples=30, stateful_step_count=50, deadline=None)
TestDlpmBatcher = BatcherMachine.TestCase
TestDlpmBatcher.settings = SETTINGS


class VtcBatcherMachine(BatcherMachine):
    """The same, where the account with the least counter goes first."""

    policy = "vtc"


class OptimisticBatcherMachine(BatcherMachine):
    """The same, where requests are preempted when pages run out: there are as many as the largest request needs."""

    admission = AdmissionMode.OPTIMISTIC
    pages = LARGEST


class OptimisticVtcBatcherMachine(VtcBatcherMachine):
    """Both."""

    admission = AdmissionMode.OPTIMISTIC
    pages = LARGEST


class LateBatcherMachine(BatcherMachine):
    """The same, where outputs miss steps until their masks are ready."""

    @precondition(lambda self: self.inside)
    @rule(number=st.integers(0, 100))
    def mask_is_late(self, number: int) -> None:
        self.device.late.add(list(self.inside)[number % len(self.inside)].arrival)

    @rule()
    def masks_are_ready(self) -> None:
        self.device.late.clear()


class LateVtcBatcherMachine(LateBatcherMachine):
    """The same, where the account with the least counter goes first."""

    policy = "vtc"


class LateAheadBatcherMachine(LateBatcherMachine):
    """The same, where a step is planned while the one before is under way, and requests are preempted."""

    ahead = 1
    admission = AdmissionMode.OPTIMISTIC
    pages = LARGEST


class AheadBatcherMachine(BatcherMachine):
    """The same, where a step is planned while the one before is under way."""

    ahead = 1


class OptimisticAheadBatcherMachine(AheadBatcherMachine):
    """Both."""

    admission = AdmissionMode.OPTIMISTIC
    pages = LARGEST


class HierarchyBatcherMachine(OptimisticAheadBatcherMachine):
    """Both, with tenants, users and interactions, and with deposits for output."""

    levels = FairnessLevels.parse("tenant,user,interaction")


TestHierarchyBatcher = HierarchyBatcherMachine.TestCase
TestHierarchyBatcher.settings = SETTINGS
TestAheadBatcher = AheadBatcherMachine.TestCase
TestAheadBatcher.settings = SETTINGS
TestLateBatcher = LateBatcherMachine.TestCase
TestLateBatcher.settings = SETTINGS
TestLateVtcBatcher = LateVtcBatcherMachine.TestCase
TestLateVtcBatcher.settings = SETTINGS
TestLateAheadBatcher = LateAheadBatcherMachine.TestCase
TestLateAheadBatcher.settings = SETTINGS
TestOptimisticAheadBatcher = OptimisticAheadBatcherMachine.TestCase
TestOptimisticAheadBatcher.settings = SETTINGS
TestOptimisticBatcher = OptimisticBatcherMachine.TestCase
TestOptimisticBatcher.settings = SETTINGS
TestOptimisticVtcBatcher = OptimisticVtcBatcherMachine.TestCase
TestOptimisticVtcBatcher.settings = SETTINGS
TestVtcBatcher = VtcBatcherMachine.TestCase
TestVtcBatcher.settings = SETTINGS


def test_a_request_that_can_never_fit_is_refused_with_the_reason() -> None:
    batcher = make_batcher(pages=4)
    with pytest.raises(TooLong, match=r"sampling.max_tokens.*10 .* 16.*holds 16") as error:
        batcher.queue.submit(make_request([1] * 10, sampling=SamplingParams(max_tokens=16)), 0.0)
    assert "26" in error.value.message
    with pytest.raises(TooLong, match="prompt: at most 512 prompt tokens, got 600"):
        batcher.queue.submit(make_request([1] * 600), 0.0)
    assert (len(batcher.queue.waiting), len(batcher.queue.running)) == (0, 0)


def test_queues_are_bounded_per_client_and_in_all() -> None:
    batcher = make_batcher()
    limits = batcher.queue.limits
    assert limits.max_waiting == limits.max_waiting_per_client == 1000
    requests = [make_request([1], arrival=3 * number) for number in range(1001)]
    for request in requests[:1000]:
        batcher.queue.submit(request, 0.0)
    with pytest.raises(ClientLimit, match="1000 requests waiting; the limit is 1000"):
        batcher.queue.submit(requests[1000], 0.0)
    assert batcher.queue.submit(make_request([1], arrival=3004), 0.0) is requests[999], "the flooder's newest gives way"
    assert len(batcher.queue.waiting) == 1000
    with pytest.raises(QueueFull, match="1000 requests are waiting; the limit is 1000"):
        batcher.queue.submit(make_request([1], arrival=3006), 0.0)
    batcher.check_invariants()


def test_a_tenant_with_many_users_does_not_fill_the_queue() -> None:
    batcher = make_batcher(max_waiting=40, policy="dlpm", levels=FairnessLevels.parse("tenant,user"))
    dropped = list[Request]()
    for number in range(60):
        request = make_request([1], arrival=number)
        request.client = "few/one" if number >= 40 else f"many/{number}"
        if (displaced := batcher.queue.submit(request, 0.0)) is not None:
            dropped.append(displaced)
    assert Counter(request.client.partition("/")[0] for request in batcher.queue.waiting) == {"many": 20, "few": 20}
    assert all(request.client.startswith("many/") for request in dropped)


# --- the theorems ---------------------------------------------------------------------------------------------------

Arrival = tuple[str, int, int, int, int]  # client, prefix, length, output, step


def arrivals_of(clients: Sequence[str]) -> st.SearchStrategy[list[Arrival]]:
    """Return histories of 8 to 40 requests of `clients`, drawn as bytes: to draw each number apart takes far longer."""

    def arrival(drawn: bytes) -> Arrival:
        client, prefix, length, output, step = drawn
        return clients[client % len(clients)], prefix % 4, 1 + length % 14, 1 + output % 20, step % 41

    def split(drawn: bytes) -> list[Arrival]:
        return [arrival(drawn[start : start + 5]) for start in range(0, len(drawn) // 5 * 5, 5)]

    return st.binary(min_size=8 * 5, max_size=40 * 5).map(split)


REQUESTS = arrivals_of("abc")
AHEAD = st.integers(0, 1)
# Most leave before they have used their room, some as soon as they have it.
USED = st.just([1000]) | st.lists(st.sampled_from((0, 1, 5, 1000)), min_size=1, max_size=8)


CHECK_EVERY = 7  # steps of a history from one check of the invariants to the next; the machines above check at each
EQUAL = {"a": 1000, "b": 1000, "c": 1000}
TIERS = {"a": 1000, "b": 3000, "c": 500}


def histories(
    batcher: Batcher,
    arrivals: Sequence[Arrival],
    weights: dict[str, int] = EQUAL,
    ahead: int = 0,
    used: Sequence[int] = (1000,),
) -> list[dict[str, tuple[int, bool]]]:
    """Per step: (service over weight, backlogged) by client.

    With `ahead` each step is planned before the one before it is committed. Of requests in order, around and around,
    no more tokens are `used` than that: then their callers leave.
    """
    launched: deque[Plan] = deque()
    pending = sorted(enumerate(arrivals), key=lambda entry: entry[1][4])
    service: dict[str, int] = defaultdict(int)
    seen: dict[Account, int] = {}  # an account that was forgotten begins again from zero
    rows: list[dict[str, tuple[int, bool]]] = []
    step = 0
    while pending or len(batcher.queue.waiting) or len(batcher.queue.running) or launched:
        while pending and pending[0][1][4] <= step:
            number, (client, prefix, length, output, _) = pending.pop(0)
            request = make_request(
                [prefix] * 8 + [number % 5] * length,
                arrival=number,
                sampling=SamplingParams(max_tokens=output, ignore_eos=True),
            )
            request.client, request.weight = client, weights[client]
            batcher.queue.submit(request, 0.0)
        plan = batcher.plan(0.0)
        hungry = {account.name for account in batcher.queue.accounts.clients if account.hungry}
        if plan is not None:
            launched.append(plan)
        if len(launched) > (ahead if plan is not None else 0):
            done = launched.popleft()
            batcher.commit(done, tokens_for(done))
        for request in [each for each in batcher.queue.running if each.output_tokens >= used[each.arrival % len(used)]]:
            batcher.queue.abort(request)
        for account in batcher.queue.ledger.take_changed():
            service[account.name] += account.weighted - seen.get(account, 0)
            seen[account] = account.weighted
        rows.append({c: (service[c], c in hungry) for c in "abc"})
        if step % CHECK_EVERY == 0:
            batcher.check_invariants()
        step += 1
    batcher.check_invariants()
    return rows


def worst_lead(rows: list[dict[str, tuple[int, bool]]], behind: str, ahead: str, both: bool) -> int:
    """The most that `ahead` gained on `behind` while `behind` (with `both`: each of them) was backlogged."""
    worst, lowest = 0, None
    for row in rows:
        if not row[behind][1] or (both and not row[ahead][1]):
            lowest = None
            continue
        lead = row[ahead][0] - row[behind][0]
        lowest = lead if lowest is None else min(lowest, lead)
        worst = max(worst, lead - lowest)
    return worst


# A regression: DRR's bound was broken when a visit that a lack of memory had interrupted got a second quantum.
INTERRUPTED_VISIT = [
    *[("a", 0, 1, 1, 0), ("c", 0, 1, 1, 0), ("b", 0, 1, 2, 0), ("b", 0, 1, 2, 2), ("a", 1, 2, 1, 1), ("b", 0, 3, 1, 1)],
    *[("a", 0, 4, 7, 0), ("a", 2, 1, 1, 1), ("a", 2, 2, 1, 3), ("c", 0, 2, 1, 1), ("a", 0, 3, 1, 1), ("b", 0, 3, 1, 0)],
    *[("b", 1, 1, 7, 1), ("b", 2, 2, 12, 9), ("b", 0, 1, 13, 11), ("b", 2, 8, 1, 16), ("b", 1, 14, 8, 11)],
    *[("c", 3, 5, 3, 18), ("b", 0, 8, 15, 8), ("b", 0, 9, 12, 1), ("b", 0, 10, 19, 0), ("b", 0, 11, 3, 13)],
    *[("b", 1, 8, 17, 0), ("b", 1, 10, 11, 13), ("b", 1, 11, 10, 17), ("b", 1, 13, 15, 8), ("b", 2, 12, 13, 11)],
    *[("b", 2, 1, 14, 1), ("b", 1, 1, 13, 11), ("a", 2, 1, 1, 3)],
]


@pytest.mark.slow
@pytest.mark.parametrize("weights", [EQUAL, TIERS], ids=["equal", "tiers"])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("admission", AdmissionMode)
@pytest.mark.parametrize("name", ["dlpm", WHOLE_DLPM, "drr", "vtc", WHOLE_VTC])
@settings(max_examples=10, deadline=None)
@given(arrivals=REQUESTS, ahead=AHEAD, used=USED, most_idle=st.sampled_from((0, MOST_IDLE)))
@example(arrivals=INTERRUPTED_VISIT, ahead=0, used=[1000], most_idle=MOST_IDLE)
def test_two_backlogged_clients_differ_by_at_most_the_bound(
    name: str,
    admission: AdmissionMode,
    cost: str,
    weights: dict[str, int],
    arrivals: list[Arrival],
    ahead: int,
    used: list[int],
    most_idle: int,
) -> None:
    """DLPM Theorem 4.1, VTC Theorem 4.4 and section 4.3 (weights), DRR: with the bound that the running policy claims
    for its admission mode, cost function and least weight, whether or not charges lag a step behind, whatever room is
    held and not used, and whether or not clients without requests are forgotten at once."""
    batcher = tight(name, admission, COSTS[cost](), min(weights.values()), most_idle)
    rows = histories(batcher, arrivals, weights, ahead, used)
    bound = batcher.queue.policy.bound_micro
    assert bound is not None
    for f, g in ("ab", "ba", "ac", "ca", "bc", "cb"):
        assert worst_lead(rows, f, g, both=True) <= bound


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dlpm", WHOLE_DLPM, "vtc", WHOLE_VTC])
@settings(max_examples=40, deadline=None)
@given(arrivals=REQUESTS, ahead=AHEAD, used=USED)
def test_no_client_gains_more_than_the_bound_on_a_backlogged_client(
    name: str, arrivals: list[Arrival], ahead: int, used: list[int]
) -> None:
    """DLPM Theorem 4.2: against clients that are not backlogged; VTC Theorem 4.9 has twice the bound of 4.4."""
    batcher = tight(name)
    rows = histories(batcher, arrivals, ahead=ahead, used=used)
    bound = batcher.queue.policy.bound_micro
    assert bound is not None
    for f, g in ("ab", "ba", "ac", "ca", "bc", "cb"):
        assert worst_lead(rows, f, g, both=False) <= (2 * bound if name == WHOLE_VTC else bound)


@pytest.mark.slow
@pytest.mark.parametrize("admission", AdmissionMode)
@settings(max_examples=30, deadline=None)
@given(arrivals=REQUESTS, ahead=AHEAD, used=USED)
def test_a_policy_charges_exactly_the_service(
    admission: AdmissionMode, arrivals: list[Arrival], ahead: int, used: list[int]
) -> None:
    """Each output token and each computed input token is charged once, and so is room beyond a share. LCF's counters
    are never lifted."""
    batcher = tight("lcf", admission)
    rows = histories(batcher, arrivals, ahead=ahead, used=used)
    for client in "abc":
        assert batcher.queue.policy.balance(client) == rows[-1][client][0]
    for account in batcher.queue.accounts.clients:
        assert account.weighted == account.service or used != [1000]
        assert account.weighted >= account.service


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dlpm", WHOLE_DLPM, "drr", "vtc", WHOLE_VTC])
@pytest.mark.parametrize("admission", AdmissionMode)
@settings(max_examples=30, deadline=None)
@given(arrivals=REQUESTS, ahead=AHEAD, used=USED)
def test_the_room_that_a_client_has_not_paid_for_is_at_most_its_share(
    name: str, admission: AdmissionMode, arrivals: list[Arrival], ahead: int, used: list[int]
) -> None:
    """The property holds while the same clients wait. Pages are whole; under optimistic admission they come one at a
    time."""
    batcher = tight(name, admission)
    plan, together = batcher.plan, [True]
    everybody = {arrival[0] for arrival in arrivals}

    def observed(now: float) -> object:
        made = plan(now)
        together[0] &= {request.client for request in batcher.queue.waiting} == everybody
        for client in everybody if together[0] else ():
            mine = [request for request in batcher.queue.running if request.client == client]
            most = PAGES * TIERS[client] // sum(TIERS[each] for each in everybody)
            assert sum(map(unpaid, mine)) <= (most + len(mine)) * BLOCK
        return made

    batcher.plan = observed  # type: ignore[assignment, method-assign]
    histories(batcher, [(*arrival[:4], 0) for arrival in arrivals], TIERS, ahead, used)


def unpaid(request: Request) -> int:
    """Tokens of output that its pages have room for, neither generated nor charged ahead."""
    room = len(request.pages) * BLOCK - request.prompt_tokens
    return max(0, room - max(request.reserved, request.output_tokens))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(arrivals=REQUESTS, ahead=AHEAD, used=USED)
def test_balances_stay_in_the_proved_range(arrivals: list[Arrival], ahead: int, used: list[int]) -> None:
    """DLPM Theorem A.1: -U < q <= Q^u at every step."""
    batcher = tight("dlpm")
    histories(batcher, arrivals, ahead=ahead, used=used)
    bound = batcher.queue.policy.bound_micro
    assert bound is not None
    most = bound // 2 - QUANTUM * MICRO
    for client in "abc":
        assert -most < batcher.queue.policy.balance(client) <= QUANTUM * MICRO


QUANTUM = 64


LONGEST_OUTPUT = 20


def tight(
    policy: str,
    admission: AdmissionMode = AdmissionMode.RESERVE,
    cost: Cost | None = None,
    least_weight: int = 1000,
    most_idle: int = MOST_IDLE,
) -> Batcher:
    """Few pages and slots, so that clients compete at once; a bound far below what a history serves."""
    return make_batcher(
        pages=PAGES,
        token_budget=16,
        max_running=4,
        max_prompt_tokens=24,
        policy=policy,
        admission=admission,
        max_output_tokens=LONGEST_OUTPUT,
        cost=cost,
        least_weight=least_weight,
        most_idle=most_idle,
    )


def serve_step(batcher: Batcher) -> dict[str, int]:
    """One step; the service of the clients that received some, in all."""
    plan = batcher.plan(0.0)
    assert plan is not None
    batcher.commit(plan, tokens_for(plan))
    return {account.name: account.service for account in batcher.queue.ledger.take_changed()}


def test_the_printed_bound_is_false_under_optimistic_admission_and_the_wider_one_holds() -> None:
    """Staggered finishes use the same memory again: outputs M/1, M/2, ... never exceed M tokens at a time, and are
    M times a harmonic number in all. DLPM section 4.2 prints U = w_e L_input + w_q M."""
    longest, count, prompt, pages = 600, 60, 460, 190
    batcher = make_batcher(
        pages=pages,
        max_running=count,
        max_prompt_tokens=prompt,
        policy=WHOLE_DLPM,
        admission=AdmissionMode.OPTIMISTIC,
        max_output_tokens=longest,
    )
    for number in range(count):
        sampling = SamplingParams(max_tokens=longest // (number + 1), ignore_eos=True)
        batcher.queue.submit(make_request([10 + number], arrival=3 * number, sampling=sampling), 0.0)  # c0
    for _ in range(longest // count):  # until memory is full
        serve_step(batcher)
    waiting = make_request([2] * prompt, arrival=1, sampling=SamplingParams(max_tokens=4, ignore_eos=True))  # c1
    batcher.queue.submit(waiting, 0.0)
    before = lead = serve_step(batcher)["c0"]
    while waiting in batcher.queue.waiting:
        lead = serve_step(batcher).get("c0", lead)
    lead -= before
    assert batcher.queue.ledger.recomputed_tokens == 0
    printed = 2 * (prompt + 2 * pages * BLOCK + QUANTUM) * MICRO
    assert lead > printed
    assert batcher.queue.policy.bound_micro is not None
    assert lead <= batcher.queue.policy.bound_micro


@pytest.mark.parametrize("name", LOCAL_POLICIES)
def test_a_step_takes_in_no_more_than_it_can_compute_and_siblings_find_the_prefix(name: str) -> None:
    """Twelve requests arrive at once with a prefix as long as a step: one computes it, the others read it."""
    batcher = make_batcher(pages=PAGES, max_running=12, token_budget=16, policy=name)
    for number in range(12):
        prompt = [*[7] * 16, 20 + number]
        batcher.queue.submit(make_request(prompt, arrival=number, sampling=SamplingParams(max_tokens=3)), 0.0)
    while (plan := batcher.plan(0.0)) is not None:
        assert sum(piece.stop - piece.start for piece in plan.batch.slices) <= 16
        batcher.commit(plan, tokens_for(plan))
        batcher.check_invariants()
    assert (batcher.queue.ledger.prompt_tokens, batcher.queue.ledger.cached_tokens) == (12 * 17, 11 * 16)


def test_a_request_enters_for_the_last_token_of_a_step() -> None:
    batcher = make_batcher(token_budget=5)
    for arrival, tokens in enumerate((4, 1, 1)):
        batcher.queue.submit(make_request([arrival] * tokens, arrival=arrival), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    assert [request.arrival for request in plan.admitted] == [0, 1]


def test_no_more_requests_enter_than_have_a_place() -> None:
    batcher = make_batcher(max_running=2)
    for number in range(5):
        batcher.queue.submit(make_request([number], arrival=number), 0.0)
    assert batcher.plan(0.0) is not None
    assert len(batcher.queue.running) == 2


def test_the_policy_learns_of_blocks_that_a_running_request_computes() -> None:
    batcher = make_batcher(policy="dlpm", max_running=1)
    prompts = {0: [7] * 9, 3: [8] * 9, 6: [*[7] * 8, 9]}  # the last shares two blocks with the first
    for arrival, prompt in prompts.items():
        batcher.queue.submit(make_request(prompt, arrival=arrival, sampling=SamplingParams(max_tokens=1)), 0.0)
    entered = []
    while (plan := batcher.plan(0.0)) is not None:
        entered += [request.arrival for request in plan.admitted]
        batcher.commit(plan, tokens_for(plan))
    assert entered == [0, 6, 3]


def test_a_preempted_request_waits_with_the_match_of_what_it_has_computed() -> None:
    batcher = make_batcher(pages=9, admission=AdmissionMode.OPTIMISTIC)
    sampling = SamplingParams(max_tokens=20, ignore_eos=True)
    older, newer = (make_request([number] * 9, arrival=number, sampling=sampling) for number in range(2))
    for request in (older, newer):
        batcher.queue.submit(request, 0.0)
    while not newer.preemptions:
        serve_step(batcher)
    assert newer.matched_blocks >= newer.prompt_tokens // BLOCK
    assert newer.preemptions == 1, "the number by which its headroom doubles"
    assert batcher.queue.waiting.oldest_since is not None, "it waits, and the queue has an age"


def test_an_account_holds_the_pages_that_its_request_takes_while_it_generates() -> None:
    batcher = make_batcher(policy=WHOLE_DLPM, admission=AdmissionMode.OPTIMISTIC)
    request = make_request([1] * 9, sampling=SamplingParams(max_tokens=99, ignore_eos=True))
    batcher.queue.submit(request, 0.0)
    held = []
    for _ in range(40):
        serve_step(batcher)
        held.append(request.account.pages)
        assert held[-1] == len(request.pages)
    assert len(set(held)) > 3, "it took more several times"


def test_the_headroom_of_a_request_doubles_with_each_preemption_up_to_its_budget() -> None:
    queue = make_batcher(admission=AdmissionMode.OPTIMISTIC).queue
    request = make_request([1] * 10, sampling=SamplingParams(max_tokens=12 * BLOCK))
    entered = []
    for request.preemptions in range(5):
        entered.append(queue.tokens_on_entry(request) - 10)
    assert entered == [BLOCK, 2 * BLOCK, 4 * BLOCK, 8 * BLOCK, 12 * BLOCK]


def test_a_prefix_that_is_being_computed_is_not_computed_again() -> None:
    batcher = make_batcher(policy="dlpm", token_budget=3 * BLOCK)
    family = [make_request([1] * 4 * BLOCK + [number] * 2, arrival=number) for number in range(1, 4)]
    stranger = make_request([9] * 2, arrival=4)
    for request in (*family, stranger):
        batcher.queue.submit(request, 0.0)
    entered: list[Request] = []
    while not all(request.output_tokens for request in family):
        plan = batcher.plan(0.0)
        assert plan is not None
        entered += plan.admitted
        batcher.commit(plan, tokens_for(plan))
        batcher.check_invariants()
    assert entered[:2] == [family[0], stranger], "others do not wait with them"
    assert [request.cached for request in family] == [0, 4 * BLOCK, 4 * BLOCK]


def test_who_computes_a_prefix_and_leaves_makes_nobody_wait() -> None:
    batcher = make_batcher(policy="dlpm", token_budget=2 * BLOCK)
    first, second = (make_request([1] * 4 * BLOCK, arrival=number) for number in range(2))
    for request in (first, second):
        batcher.queue.submit(request, 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    assert plan.admitted == (first,)
    batcher.queue.abort(first)
    plan = batcher.plan(0.0)
    assert plan is not None
    assert plan.admitted == (second,)


@pytest.mark.parametrize("name", LOCAL_POLICIES)
def test_preemption_charges_service_once_and_accounts_recomputed_work_apart(name: str) -> None:
    batcher = make_batcher(pages=PAGES, max_running=6, policy=name, admission=AdmissionMode.OPTIMISTIC)
    requests = [
        make_request([number] * 7, arrival=number, sampling=SamplingParams(max_tokens=30, ignore_eos=True))
        for number in range(6)
    ]
    for request in requests:
        batcher.queue.submit(request, 0.0)
    oldest_first: list[Request] = []
    service: dict[str, int] = {}
    while (plan := batcher.plan(0.0)) is not None:
        oldest_first += [advance.request for advance in batcher.commit(plan, tokens_for(plan)) if advance.finish]
        service |= {account.name: account.service for account in batcher.queue.ledger.take_changed()}
        batcher.check_invariants()
    assert sum(request.preemptions for request in requests) > 0
    assert batcher.queue.ledger.recomputed_tokens > 0
    assert requests[0].preemptions == 0, "the oldest running request is never preempted"
    assert all(request.output_tokens == 30 for request in requests)
    expected = sum(7 - request.cached + 2 * 30 for request in requests) * MICRO
    assert sum(service.values()) == expected
    if name == "lcf":  # its counters are never lifted
        assert sum(map(batcher.queue.policy.balance, service)) == expected


def test_no_request_is_preempted_while_its_token_is_in_flight() -> None:
    """When pages run out, the batcher first waits for the step in flight, so its tokens are not computed twice."""
    batcher = make_batcher(pages=PAGES, max_running=6, admission=AdmissionMode.OPTIMISTIC)
    device = Device(1)
    sampling = SamplingParams(max_tokens=30, ignore_eos=True)
    requests = [make_request([number] * 7, arrival=number, sampling=sampling) for number in range(6)]
    for request in requests:
        batcher.queue.submit(request, 0.0)
    steps: deque[tuple[Plan, CompletedStep]] = deque()
    waited = 0
    while len(batcher.queue.running) or len(batcher.queue.waiting):
        before = sum(request.preemptions for request in requests)
        plan = batcher.plan(0.0)
        if steps:
            assert sum(request.preemptions for request in requests) == before
        if plan is not None:
            steps.append((plan, device.launch(plan.batch)))
        if len(steps) > 1 or plan is None:
            waited += plan is None
            done, computed = steps.popleft()
            batcher.commit(done, computed.wait())
        batcher.check_invariants()
    assert 0 < sum(request.preemptions for request in requests) <= waited
    assert all(request.output_tokens == 30 for request in requests)


def test_a_flood_does_not_delay_a_light_user_by_more_than_the_bound_and_fcfs_does() -> None:
    """The consequence of the theorem for users: the same flood under both policies."""
    flood = [("a", 1, 10, 10, 0)] * 60
    light = [("b", 2, 10, 10, 1)] * 10
    finished: dict[str, int] = {}
    for name in LOCAL_POLICIES:
        rows = histories(tight(name), [*flood, *light])
        finished[name] = next(i for i, row in enumerate(rows) if row["b"][0] == rows[-1]["b"][0])
    assert finished["dlpm"] < finished["fcfs"] / 2
    assert finished["vtc"] < finished["fcfs"] / 2


def test_a_request_that_has_ended_is_forgotten_before_its_deadline() -> None:
    batcher = make_batcher(pages=PAGES)
    here = make_request([1], sampling=SamplingParams(max_tokens=8, ignore_eos=True))
    here.deadline = 1.0
    batcher.queue.submit(here, 0.0)
    for number in range(1, 100):
        request = make_request([1, 2, 3], arrival=number)
        request.deadline = 1000.0
        batcher.queue.submit(request, 0.0)
        batcher.queue.abort(request)
    batcher.check_invariants()  # that few are remembered is one of them
    assert batcher.queue.next_deadline() == 1.0
    assert batcher.queue.expired(2.0) == [here]
    assert batcher.queue.next_deadline() is None


@pytest.mark.parametrize(
    ("prompt", "output", "reserved"),
    [(4, 44, 16), (40, 4, 4), (28, 4, 0)],
    ids=["more pages than its share", "few of them for the output", "its share"],
)
def test_output_for_which_pages_beyond_the_share_are_taken_is_charged_at_once(
    prompt: int, output: int, reserved: int
) -> None:
    """Two clients have a share of 8 pages of 4 tokens each."""
    batcher = make_batcher(pages=16, policy="vtc")
    request = make_request([1] * prompt, sampling=SamplingParams(max_tokens=output, ignore_eos=True))
    batcher.queue.submit(request, 0.0)
    batcher.queue.submit(make_request([2] * 4, arrival=1, sampling=SamplingParams(max_tokens=4)), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    assert request.reserved == reserved
    for generated in range(output):
        assert batcher.queue.policy.balance("c0") == (prompt + 2 * max(reserved, generated)) * MICRO
        batcher.commit(plan, StepResult((0,) * sum(piece.samples for piece in plan.batch.slices)))
        plan = batcher.plan(0.0)
        assert plan is not None or generated + 1 == output
        if plan is None:
            break


def test_a_waiting_request_reserves_for_the_pages_that_it_would_take() -> None:
    batcher = make_batcher(pages=15, policy="vtc")
    for arrival in range(2):
        batcher.queue.submit(make_request([1] * 5, arrival=arrival, sampling=SamplingParams(max_tokens=15)), 0.0)
    serve_step(batcher)
    waiting = make_request([1] * 5, arrival=2, sampling=SamplingParams(max_tokens=39))  # 11 pages; 1 is cached
    batcher.queue.submit(waiting, 0.0)
    assert batcher.queue.reserve(waiting) == range((11 - 1 - 5) * BLOCK)
    assert batcher.queue.reserve(waiting) == range(20, 20), "once"


@pytest.mark.parametrize(
    ("token", "sampling", "finish"),
    [
        (9, SamplingParams(stop_token_ids=(9,)), FinishReason.STOP),
        (8, SamplingParams(stop_token_ids=(9,)), None),
        (EOS, SamplingParams(), FinishReason.STOP),
        (EOS, SamplingParams(ignore_eos=True), None),
        (EOS, SamplingParams(ignore_eos=True, stop_token_ids=(EOS,)), FinishReason.STOP),
        (8, SamplingParams(max_tokens=1), FinishReason.LENGTH),
    ],
)
def test_an_output_ends_with_its_stop_token_or_its_length(
    token: int, sampling: SamplingParams, finish: FinishReason | None
) -> None:
    batcher = make_batcher(eos=(EOS,))
    batcher.queue.submit(make_request([1], sampling=sampling), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    logprobs = SampledLogprobs(-0.5, ())
    [advance] = batcher.commit(plan, StepResult((token,), (logprobs,)))
    assert (advance.finish, advance.logprobs) == (finish, (logprobs,))
    assert len(batcher.queue.running) == (finish is None)


def test_a_run_of_decoding_steps_is_charged_by_its_tokens_and_ends_with_its_last() -> None:
    batcher = make_batcher(policy="lcf", eos=(EOS,), decode_run=2)
    for arrival in range(2):
        batcher.queue.submit(make_request([1], arrival=arrival, sampling=SamplingParams(max_tokens=8)), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    assert plan.lengths == (2, 2)
    ends, goes_on = batcher.commit(plan, StepResult((), runs=((5, EOS), (EOS, 5))))
    assert (ends.finish, goes_on.finish) == (FinishReason.STOP, None)
    assert batcher.queue.policy.balance("c0") == batcher.queue.policy.balance("c1") == (1 + 2 * 2) * MICRO
    batcher.check_invariants()


def test_a_prompt_of_which_a_step_computes_one_token_begins_no_run() -> None:
    batcher = make_batcher(policy="dlpm", token_budget=2, decode_run=4)
    batcher.queue.submit(make_request([1], sampling=SamplingParams(max_tokens=20)), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    batcher.commit(plan, StepResult((), runs=((5, 5, 5, 5),)))
    batcher.queue.submit(make_request([2] * 5, arrival=1, sampling=SamplingParams(max_tokens=8)), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    assert [(piece.stop - piece.start, piece.samples) for _, piece in plan.parts] == [(1, True), (1, False)]
    assert plan.lengths == ()


@pytest.mark.parametrize(
    ("prompt", "output", "lengths"),
    [(1, 8, (4,)), (1, 3, (3,)), (2, 8, ()), (1, 1, ())],
    ids=["longer outputs", "an output that ends before", "a prompt of several tokens", "the last token"],
)
def test_a_run_is_as_long_as_its_outputs_unless_a_prompt_is_computed(
    prompt: int, output: int, lengths: tuple[int, ...]
) -> None:
    batcher = make_batcher(decode_run=4)
    batcher.queue.submit(make_request([1] * prompt, sampling=SamplingParams(max_tokens=output, ignore_eos=True)), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    assert plan.lengths == lengths


def test_an_output_that_cannot_go_on_ends_alone_with_its_failure_and_uncharged() -> None:
    batcher = make_batcher(policy="lcf")
    for arrival in range(2):
        batcher.queue.submit(make_request([arrival] * 3, arrival=arrival), 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    broken, sound = batcher.commit(plan, StepResult((0, 5), failures=((0, "no token fits"),)))
    assert (broken.request.id, broken.tokens, broken.finish, broken.failure) == ("r0", (), None, "no token fits")
    assert (sound.request.id, sound.tokens, sound.failure) == ("r1", (5,), "")
    assert (batcher.queue.policy.balance("c0"), batcher.queue.policy.balance("c1")) == (3 * MICRO, (3 + 2) * MICRO)
    assert len(batcher.queue.running) == 1


def test_the_scores_of_a_prompt_come_with_its_first_token_though_steps_share_them_out() -> None:
    batcher = make_batcher(token_budget=4)
    sampling = SamplingParams(max_tokens=2, ignore_eos=True, prompt_logprobs=0)
    batcher.queue.submit(make_request([1] * 7, sampling=sampling), 0.0)
    scores = [SampledLogprobs(-float(position), ()) for position in range(1, 7)]
    reported = []
    for tokens, scored in (((), scores[:4]), ((5,), scores[4:]), ((5,), ())):
        plan = batcher.plan(0.0)
        assert plan is not None
        assert [len(piece.scored) for piece in plan.batch.slices] == [len(scored)]
        result = StepResult(tokens, scores=(tuple(scored),) if scored else ())
        reported += [advance.prompt_logprobs for advance in batcher.commit(plan, result)]
    assert reported == [scores, None]


def test_a_prompt_that_is_preempted_while_it_is_scored_is_scored_once() -> None:
    batcher = make_batcher(pages=8, token_budget=2, admission=AdmissionMode.OPTIMISTIC)
    writes, scored = SamplingParams(max_tokens=12, ignore_eos=True), SamplingParams(max_tokens=1, prompt_logprobs=0)
    batcher.queue.submit(make_request([1] * 5, sampling=writes), 0.0)
    request = make_request([2] * 16, arrival=1, sampling=scored)
    batcher.queue.submit(request, 0.0)
    reported = []
    while (plan := batcher.plan(0.0)) is not None:
        scores = [
            tuple(SampledLogprobs(-float(place), ()) for place in range(piece.start, piece.start + len(piece.scored)))
            for piece in plan.batch.slices
            if piece.scored
        ]
        result = StepResult(tokens_for(plan).tokens, scores=tuple(scores))
        reported += [advance.prompt_logprobs for advance in batcher.commit(plan, result) if advance.request is request]
    assert request.preemptions == 1
    assert reported == [[SampledLogprobs(-float(place), ()) for place in range(15)]]


def test_a_client_whose_request_has_ended_may_be_forgotten_by_the_policy() -> None:
    batcher = make_batcher(policy="vtc", most_idle=0)
    batcher.queue.submit(make_request([1], sampling=SamplingParams(max_tokens=1)), 0.0)
    serve_step(batcher)
    assert batcher.queue.accounts.of_client("c0"), "the latest is kept until the next event"
    request = make_request([1], arrival=1)
    batcher.queue.submit(request, 0.0)
    assert [account.name for account in batcher.queue.accounts] == [request.client]


def test_the_rate_of_service_and_the_gap_of_clients_that_wait_are_measured() -> None:
    batcher = make_batcher(policy="vtc", max_running=1)
    for arrival in range(9):  # three of each client
        batcher.queue.submit(make_request([arrival] * 4, arrival=arrival, sampling=SamplingParams(max_tokens=1)), 0.0)
    serve_step(batcher)
    assert (batcher.queue.rate.micro_per_second, batcher.queue.ledger.worst_gap) == (0.0, 0)
    plan = batcher.plan(2.0)
    assert plan is not None
    assert batcher.queue.rate.micro_per_second == pytest.approx((2 * 1 + 4) / 2 * MICRO), (
        "the first output and the next prompt"
    )
    assert batcher.queue.ledger.worst_gap == 4 * MICRO, (
        "the prompt of the second client has entered, the third still waits"
    )


def test_an_output_whose_mask_is_late_waits_beside_others_and_pays_for_the_step_that_it_missed() -> None:
    batcher, device = make_batcher(eos=(EOS,)), Device(0)
    slow, other = (make_request([1, 0, 1], arrival=number, sampling=SamplingParams(max_tokens=3)) for number in (0, 1))
    for request in (slow, other):
        batcher.queue.submit(request, 0.0)
    device.late.add(slow.arrival)

    def step() -> tuple[list[int], list[int]]:
        plan = batcher.plan(0.0)
        assert plan is not None
        batcher.commit(plan, device.launch(plan.batch).wait())
        return [piece.request for piece in plan.batch.slices], [entry.request for entry in plan.batch.entered]

    assert step() == ([0, 1], [0, 1])
    assert (slow.output_tokens, other.output_tokens) == (0, 1)
    [account] = [account for account in batcher.queue.accounts.clients if account.name == slow.client]
    assert account.weighted - account.service == 2 * MICRO, "the cost of one output token"
    assert step() == ([1], []), "it takes no place in a step while its mask is late"
    device.late.clear()
    assert step() == ([1], [])
    assert step() == ([0], [0])
    assert slow.tokens[3:] == lone_output([1, 0, 1], 3)[:1]


@pytest.mark.parametrize("policy", ["dlpm", WHOLE_DLPM, "drr", "vtc", WHOLE_VTC, "vtc-predict"])
def test_a_step_that_was_missed_costs_as_much_as_a_token(policy: str) -> None:
    batcher = make_batcher(policy=policy)
    request = make_request([1, 0, 1], sampling=SamplingParams(max_tokens=3))
    batcher.queue.submit(request, 0.0)
    plan = batcher.plan(0.0)
    assert plan is not None
    before = batcher.queue.policy.balance(request.client)
    batcher.commit(plan, StepResult((1,), deferred=(0,)))
    assert abs(batcher.queue.policy.balance(request.client) - before) == 2 * MICRO
    batcher.queue.policy.check_invariants()


def test_the_policy_reads_what_the_cache_has_matched_when_a_request_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    matched = []

    class Watching(Fcfs):
        def arrived(self, request: Request) -> None:
            matched.append(request.matched_blocks)
            super().arrived(request)

    monkeypatch.setitem(POLICIES, "watching", Watching)
    batcher = make_batcher(policy="watching")
    for arrival in range(2):
        sampling = SamplingParams(max_tokens=1, ignore_eos=True)
        batcher.queue.submit(make_request([1] * (2 * BLOCK + 1), arrival=arrival, sampling=sampling), 0.0)
        serve_step(batcher)
    assert matched == [0, 2]
