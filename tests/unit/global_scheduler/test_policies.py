"""What every global policy must do, and what tells them apart."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Member, OutstandingTable, WorkerLoad
from global_scheduler.core.policies import RouteRequest
from global_scheduler.core.policies.base import Candidates
from global_scheduler.core.policies.per_client_round_robin import PerClientRoundRobin
from serving.blocks import pack_digests, runs
from simulation.spec import GLOBAL_POLICIES
from tests.unit.global_scheduler.driving import CONFIG, dispatcher, identity, placed, request

WORKERS = ("a", "b", "c")
Step = tuple[str, int, int, str]  # client, prompt tokens, cached blocks, fate
STEPS = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(1, 200), st.integers(0, 3), st.sampled_from(["keep", "end", "undo"])),
    max_size=40,
)


def asked(number: int, step: Step) -> RouteRequest:
    client, tokens, blocks, _ = step
    return request(str(number), client=client, prompt_tokens=tokens, digests=pack_digests(range(1, blocks + 1)))


def reported(made: Dispatcher, member: Member, number: int, step: Step, cached_tokens: int) -> None:
    """What `member` reports of its request, up to the request's fate."""
    client, tokens, blocks, fate = step
    chain = range(1, blocks + 1)
    made.accepted(member, request(str(number), client=client, prompt_tokens=tokens), 0, cached_tokens)
    if fate == "end":
        made.progressed(member, runs(zip(chain, (0, *chain), strict=False)), b"")
    if fate != "keep":
        made.ended(member, str(number), 1, fate == "end", 3)
    made.check_invariants()


def probed(made: Dispatcher) -> list[str]:
    """Where requests of each client would go now."""
    return [placed(made.dispatch(request(f"probe {n}", client=client), 0)) for n, client in enumerate("xyzxyz")]


@pytest.mark.parametrize("policy", sorted(GLOBAL_POLICIES))
class TestEveryPolicy:
    def test_never_chooses_who_is_no_candidate(self, policy: str) -> None:
        made, (_, b) = dispatcher(policy, ("a", "b"))
        other = made.attached(identity("other", "n"), (), 0)
        assert placed(made.dispatch(request("1", excluded=("a",)), 0)) == "b"
        assert placed(made.dispatch(request("2", model="n"), 0)) == other.identity.worker
        made.reported(b, WorkerLoad(draining=True), 0)
        assert [placed(made.dispatch(request(str(n)), 0)) for n in range(3, 6)] == ["a", "a", "a"]
        made.reported(b, WorkerLoad(stalled_seconds=31), 0)
        assert [placed(made.dispatch(request(str(n)), 0)) for n in range(7, 10)] == ["a", "a", "a"], "makes no steps"
        assert made.dispatch(request("6", model="nobody's"), 0) is None
        made.check_invariants()

    def test_stale_members_get_nothing_until_they_report(self, policy: str) -> None:
        made, (a, b) = dispatcher(policy)
        assert made.dispatch(request("1"), now=6) is None
        made.reported(a, WorkerLoad(), now=6)
        assert placed(made.dispatch(request("1"), now=6)) == "a"
        assert made.expired(6) == [b]
        made.reported(b, WorkerLoad(stalled_seconds=31), now=6)
        assert (made.expired(6), made.live(6)) == ([], [a]), "it talks, but makes no steps"
        made.reported(b, WorkerLoad(), now=6)
        assert made.live(6) == [a, b]
        made.check_invariants()

    def test_repeated_events_and_events_of_unknown_requests_change_nothing(self, policy: str) -> None:
        made, members = dispatcher(policy)
        first = made.dispatch(request("1"), 0)
        assert made.dispatch(request("1"), 0) is first
        assert first is not None
        stranger = next(m for m in members if m is not first.member)
        made.accepted(stranger, request("1"), 0)
        made.ended(stranger, "1", 1, True, 5)
        assert first.member.outstanding == 1
        for _ in range(2):
            made.ended(first.member, "1", 1, True, 5)
            made.withdrawn("1", 1)
            made.withdrawn("unknown", 1)
        assert [m.outstanding for m in members] == [0, 0]
        made.check_invariants()

    def test_a_returning_worker_is_a_new_one(self, policy: str) -> None:
        made, (old,) = dispatcher(policy, ("a",))
        chain = pack_digests([7])
        made.dispatch(request("1", digests=chain), 0)
        new = made.attached(identity("a", instance="2"), (), 0)
        made.lost(old)
        made.reported(old, WorkerLoad(draining=True), 0)
        made.accepted(old, request("0"), 0)
        made.ended(old, "1", 1, True, 5)
        made.progressed(old, runs([(7, 0)]), b"")
        again = made.dispatch(request("1", digests=chain), 0)
        assert again is not None
        assert (again.member, again.matched_tokens, new.outstanding) == (new, 0, 1)
        assert placed(made.dispatch(request("2", excluded=("a",)), 0)) == "a", "the one that failed is gone"
        assert made.dispatch(request("3", excluded=("2",)), 0) is None
        made.check_invariants()

    def test_a_larger_worker_gets_no_less(self, policy: str) -> None:
        made, _ = dispatcher(policy, ())
        for name, capacity in (("a", 10), ("b", 30)):
            made.attached(identity(name, max_running=capacity), (), 0)
        placements = [placed(made.dispatch(request(str(n), client=str(n % 7)), 0)) for n in range(84)]
        assert placements.count("b") >= 42
        if policy in ("least-loaded", "preble", "doubleq"):
            assert placements.count("b") == 63, "in proportion to capacity"

    @settings(max_examples=40, deadline=None)
    @given(steps=STEPS)
    def test_the_same_history_gives_the_same_choices(self, policy: str, steps: list[Step]) -> None:
        first, second = self.choices(policy, steps), self.choices(policy, steps)
        assert first == second
        assert len(first) == len(steps), "somebody is always chosen"

    @settings(max_examples=40, deadline=None)
    @given(steps=STEPS)
    def test_who_hears_what_workers_say_decides_as_the_leader_would(self, policy: str, steps: list[Step]) -> None:
        leader, leaders = dispatcher(policy, WORKERS)
        standby, members = dispatcher(policy, WORKERS)
        for number, step in enumerate(steps):
            assignment = leader.dispatch(asked(number, step), 0)
            assert assignment is not None
            for made, its in ((leader, leaders), (standby, members)):
                reported(made, its[assignment.member.slot], number, step, assignment.matched_tokens)
        assert probed(standby) == probed(leader)

    def choices(self, policy: str, steps: list[Step]) -> list[str]:
        made, _ = dispatcher(policy, WORKERS)
        chosen = []
        for number, (client, tokens, blocks, fate) in enumerate(steps):
            chain = pack_digests(range(1, blocks + 1))
            assignment = made.dispatch(request(str(number), client=client, prompt_tokens=tokens, digests=chain), 0)
            chosen.append(placed(assignment))
            assert assignment is not None
            if fate != "keep":
                made.ended(assignment.member, str(number), 1, fate == "end", 3)
            made.check_invariants()
        return chosen


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_least_delay_takes_over_from_a_leader_of_another_policy_with_accounts_of_its_own(
    steps: list[Step],
) -> None:
    """As in an update of two schedulers, one by one. It decides as if it had placed these requests where they are."""
    leader, leaders = dispatcher("doubleq", WORKERS)
    standby, members = dispatcher("least-delay", WORKERS)
    alone, others = dispatcher("least-delay", WORKERS)
    for number, step in enumerate(steps):
        assignment = leader.dispatch(asked(number, step), 0)
        assert assignment is not None
        elsewhere = tuple(worker for worker in WORKERS if worker != placed(assignment))
        alone.dispatch(replace(asked(number, step), excluded=elsewhere), 0)
        for made, its in ((leader, leaders), (standby, members), (alone, others)):
            reported(made, its[assignment.member.slot], number, step, assignment.matched_tokens)
    assert probed(standby) == probed(alone)


def test_round_robin_takes_turns_and_least_loaded_the_shortest_queue() -> None:
    turns, _ = dispatcher("round-robin", WORKERS)
    assert [placed(turns.dispatch(request(str(n)), 0)) for n in range(4)] == ["a", "b", "c", "a"]
    least, (_, b) = dispatcher("least-loaded")
    assert [placed(least.dispatch(request(str(n)), 0)) for n in range(2)] == ["a", "b"]
    least.ended(b, "1", 1, True, 1)
    assert placed(least.dispatch(request("2"), 0)) == "b"


def test_per_client_round_robin_spreads_each_client_whatever_others_do() -> None:
    made, _ = dispatcher("per-client-round-robin", WORKERS)
    order = [placed(made.dispatch(request(str(n), client="xxy"[n % 3]), 0)) for n in range(9)]
    assert [worker for n, worker in enumerate(order) if n % 3 == 2] == ["a", "b", "c"]
    assert [worker for n, worker in enumerate(order) if n % 3 != 2] == ["a", "b", "c", "a", "b", "c"]


def test_per_client_round_robin_forgets_the_client_that_was_away_longest_for_one_too_many() -> None:
    policy = PerClientRoundRobin(replace(CONFIG, most_idle=2))
    for client in ("first", "second", "first", "third"):
        policy.placed(request("1", client=client), 0, 0b11, 0)
    choice = Candidates([(0b11, 0)], block_tokens=16, waiting=0, queues=OutstandingTable())
    assert policy.select(request("1", client="first"), choice) == 1
    assert policy.select(request("1", client="second"), choice) == 0


@pytest.mark.parametrize("policy", ["round-robin", "least-loaded", "per-client-round-robin"])
def test_a_policy_without_accounts_books_nothing(policy: str) -> None:
    made, _ = dispatcher(policy, WORKERS)
    assignment = made.dispatch(request("1"), 0)
    assert assignment is not None
    assert assignment.booked == 0


def test_preble_exploits_a_long_match_explores_with_a_short_one_and_rebalances() -> None:
    made, (a, _) = dispatcher("preble")
    made.progressed(a, runs([(7, 0), (8, 7)]), b"")
    chain = pack_digests([7, 8])
    assert placed(made.dispatch(request("0", digests=chain, prompt_tokens=40), 0)) == "a"
    assert placed(made.dispatch(request("1", digests=chain, prompt_tokens=40), 0)) == "a"
    half = request("2", digests=pack_digests([7]), prompt_tokens=32)
    assert placed(made.dispatch(half, 0)) == "b", "half is not more than half"
    assert placed(made.dispatch(request("3", digests=chain, prompt_tokens=40), 0)) == "a"
    assert placed(made.dispatch(request("4", digests=chain, prompt_tokens=40), 0)) == "a", "3 is at most 1.5 times 2"
    assert placed(made.dispatch(request("5", digests=chain, prompt_tokens=40), 0)) == "b"


def test_a_worker_of_another_revision_is_not_believed_to_hold_a_prefix() -> None:
    deciding, _ = dispatcher(workers=())
    member = deciding.attached(replace(identity("a"), revisions={"m": "r1"}), (), now=0)
    for number, (revision, matched) in enumerate([("r2", 0), ("r2", 0), ("r1", 0), ("r1", 16)]):
        chain = pack_digests([1 if revision == "r1" else 2])
        asked = request(str(number), digests=chain, revision=revision, prompt_tokens=20)
        assignment = deciding.dispatch(asked, now=0)
        assert assignment is not None
        assert assignment.matched_tokens == matched
        deciding.ended(member, str(number), 1, started=True, output_tokens=1)
        deciding.check_invariants()
