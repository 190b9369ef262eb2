"""The scheduler's core against naive models: index, fleet, DoubleQ, dispatcher, overload."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fairlead.cost import MICRO, WeightedTokens
from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Assignment, Dispatcher
from global_scheduler.core.fleet import Fleet, Identity, Load, Member
from global_scheduler.core.overload import Overload
from global_scheduler.core.policies import POLICIES, PolicyConfig, Request
from global_scheduler.core.policies.doubleq import DoubleQ

QUANTUM = 100
CONFIG = PolicyConfig(QUANTUM, WeightedTokens())
SLOTS = st.integers(0, 3)
# Chains with shared beginnings: a digest is its whole prefix, as in the real block chain.
CHAINS = st.lists(st.integers(0, 1), max_size=4).map(
    lambda path: tuple(int("1" + "".join(map(str, path[: n + 1])), 2) for n in range(len(path)))
)


def identity(worker: str, model: str = "m", instance: str = "1") -> Identity:
    return Identity(worker, instance, f"{worker}:1", model, block_tokens=16, kv_tokens=1000, max_running=10)


def request(
    name: str,
    *,
    client: str = "ann",
    model: str = "m",
    tokens: int = 10,
    digests: tuple[int, ...] = (),
    attempt: int = 1,
) -> Request:
    return Request(name, 1, client, model, digests, tokens, weight=1000)


def dispatcher(policy: str = "doubleq", workers: tuple[str, ...] = ("a", "b")) -> tuple[Dispatcher, list[Member]]:
    made = Dispatcher(POLICIES[policy](CONFIG), BlockIndex(1000), Fleet(stall_timeout=5))
    return made, [made.attached(identity(worker), (), now=0) for worker in workers]


def placed(assignment: Assignment | None) -> str:
    assert assignment is not None
    return assignment.member.identity.worker


class IndexMachine(RuleBasedStateMachine):
    """BlockIndex against one set of digests per worker."""

    def __init__(self) -> None:
        super().__init__()
        self.index = BlockIndex(1000)
        self.held: dict[int, set[int]] = {slot: set() for slot in range(4)}

    @rule(slot=SLOTS, chain=CHAINS)
    def insert(self, slot: int, chain: tuple[int, ...]) -> None:
        assert set(self.index.insert(slot, chain)) == set(chain) - self.held[slot]
        self.held[slot] |= set(chain)

    @rule(slot=SLOTS, chain=CHAINS)
    def evict(self, slot: int, chain: tuple[int, ...]) -> None:
        self.index.evict(slot, chain)
        self.held[slot] -= set(chain)

    @rule(slot=SLOTS)
    def forget(self, slot: int) -> None:
        self.index.forget(slot)
        self.held[slot] = set()

    @rule(chain=CHAINS, eligible=st.integers(1, 15))
    def match(self, chain: tuple[int, ...], eligible: int) -> None:
        lengths = {}
        for slot in range(4):
            if eligible >> slot & 1:
                missing = [n for n, digest in enumerate(chain) if digest not in self.held[slot]]
                lengths[slot] = missing[0] if missing else len(chain)
        longest = max(lengths.values())
        assert self.index.match(chain, eligible) == (sum(1 << s for s, n in lengths.items() if n == longest), longest)

    @invariant()
    def holds(self) -> None:
        self.index.check_invariants()


class DoubleQMachine(RuleBasedStateMachine):
    """DoubleQ within a dispatcher against Alg. 2 as printed, loops and all, with its misprints corrected."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = DoubleQ(CONFIG)
        self.dispatcher = Dispatcher(self.policy, BlockIndex(1000), Fleet(stall_timeout=5))
        self.members = [self.dispatcher.attached(identity(name), (), now=0) for name in "abc"]
        self.q: dict[str, list[int]] = {client: [0, 0, 0] for client in "xyz"}
        self.s = [0, 0, 0]
        self.held: list[set[int]] = [set(), set(), set()]
        self.running: dict[str, tuple[str, int, int, set[int]]] = {}
        self.count = 0

    @rule(client=st.sampled_from("xyz"), tokens=st.integers(1, 250), chain=CHAINS)
    def arrived(self, client: str, tokens: int, chain: tuple[int, ...]) -> None:
        q = self.q[client]
        while not any(balance > 0 for balance in q):
            for slot in range(3):
                q[slot] += QUANTUM
        lengths = [next((n for n, d in enumerate(chain) if d not in held), len(chain)) for held in self.held]
        available = [slot for slot in range(3) if q[slot] > 0]
        sticky = [slot for slot in available if lengths[slot] == max(lengths)]
        expected = min(sticky or available, key=lambda slot: (self.s[slot], slot))
        self.count += 1
        name = str(self.count)
        assignment = self.dispatcher.dispatch(request(name, client=client, tokens=tokens, digests=chain), now=0)
        assert placed(assignment) == "abc"[expected]
        q[expected] -= tokens
        self.s[expected] += 1
        self.running[name] = (client, expected, tokens, set(chain) - self.held[expected])
        self.held[expected] |= set(chain)

    @rule(pick=st.integers(0, 1000), output=st.integers(0, 200), started=st.booleans())
    def left(self, pick: int, output: int, started: bool) -> None:
        if not self.running:
            return
        name = sorted(self.running)[pick % len(self.running)]
        client, slot, tokens, speculative = self.running.pop(name)
        self.dispatcher.ended(self.members[slot], name, 1, started, output)
        self.s[slot] -= 1
        if started:
            self.q[client][slot] -= 2 * output
        else:
            self.q[client][slot] = min(QUANTUM, self.q[client][slot] + tokens)
            self.held[slot] -= speculative

    @invariant()
    def accounts_agree(self) -> None:
        self.dispatcher.check_invariants()
        for client, q in self.q.items():
            for slot in range(3):
                assert self.policy.balance(client, "m", slot) == q[slot] * MICRO


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestDoubleQ = DoubleQMachine.TestCase
TestDoubleQ.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_a_full_index_drops_the_oldest_chain_from_its_end() -> None:
    index = BlockIndex(max_blocks=5)
    index.insert(0, (1, 2, 3))
    index.insert(0, (4, 5, 6))
    assert index.match((1, 2, 3), 1) == (1, 2)
    assert index.match((4, 5, 6), 1) == (1, 3)
    assert len(index) == 5


def test_a_prefix_sticks_to_its_worker_until_the_quantum_is_spent() -> None:
    made, _ = dispatcher()
    placements = [placed(made.dispatch(request(str(n), tokens=40, digests=(7,)), 0)) for n in range(4)]
    assert placements == ["a", "a", "a", "b"]


@pytest.mark.parametrize("policy", sorted(POLICIES))
class TestEveryPolicy:
    def test_never_chooses_who_is_no_candidate(self, policy: str) -> None:
        made, (_, b) = dispatcher(policy, ("a", "b"))
        other = made.attached(identity("other", model="n"), (), 0)
        excluded = Request("1", 1, "ann", "m", (), 10, 1000, excluded=("a",))
        assert placed(made.dispatch(excluded, 0)) == "b"
        assert placed(made.dispatch(request("2", model="n"), 0)) == other.identity.worker
        made.reported(b, Load(draining=True), 0)
        assert [placed(made.dispatch(request(str(n)), 0)) for n in range(3, 6)] == ["a", "a", "a"]
        assert made.dispatch(request("6", model="nobody's"), 0) is None
        made.check_invariants()

    def test_stale_members_get_nothing_until_they_report(self, policy: str) -> None:
        made, (a, _) = dispatcher(policy)
        assert made.dispatch(request("1"), now=6) is None
        made.reported(a, Load(), now=6)
        assert placed(made.dispatch(request("1"), now=6)) == "a"

    def test_what_is_said_twice_or_of_the_unknown_changes_nothing(self, policy: str) -> None:
        made, members = dispatcher(policy)
        first = made.dispatch(request("1"), 0)
        assert made.dispatch(request("1"), 0) is first
        assert first is not None
        stranger = next(m for m in members if m is not first.member)
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
        made.dispatch(request("1", digests=(7,)), 0)
        new = made.attached(identity("a", instance="2"), (), 0)
        made.lost(old)
        made.ended(old, "1", 1, True, 5)
        made.progressed(old, (7,), ())
        again = made.dispatch(request("1", digests=(7,)), 0)
        assert again is not None
        assert (again.member, again.matched_tokens, new.outstanding) == (new, 0, 1)
        made.check_invariants()


def test_round_robin_takes_turns_and_least_loaded_the_shortest_queue() -> None:
    turns, _ = dispatcher("round-robin", ("a", "b", "c"))
    assert [placed(turns.dispatch(request(str(n)), 0)) for n in range(4)] == ["a", "b", "c", "a"]
    least, (_, b) = dispatcher("least-loaded")
    assert [placed(least.dispatch(request(str(n)), 0)) for n in range(2)] == ["a", "b"]
    least.ended(b, "1", 1, True, 1)
    assert placed(least.dispatch(request("2"), 0)) == "b"


def test_models_have_separate_accounts() -> None:
    made, _ = dispatcher(workers=("a",))
    other = made.attached(identity("n1", model="n"), (), 0)
    made.dispatch(request("1", tokens=1000), 0)
    assert placed(made.dispatch(request("2", model="n"), 0)) == other.identity.worker
    policy = made._policy
    assert isinstance(policy, DoubleQ)
    assert policy.balance("ann", "m", 0) == (QUANTUM - 1000) * MICRO
    assert policy.balance("ann", "n", other.slot) == (QUANTUM - 10) * MICRO


PRESSED = [
    Load(waiting=1, kv_tokens_used=900),
    Load(waiting=1, running=10),
    Load(queue_seconds=1.0),
]


@pytest.mark.parametrize("load", PRESSED)
def test_overload_begins_and_ends_with_hysteresis(load: Load) -> None:
    overload, member = Overload(), Member(0, identity("a"), reported_at=0)
    member.load = Load(kv_tokens_used=1000, running=9)
    assert not overload.update([member], now=0), "nobody waits"
    member.load = load
    assert overload.update([member], now=0)
    member.load = Load(kv_tokens_used=850)
    assert overload.update([member], now=0), "above the lower threshold"
    member.load = Load(kv_tokens_used=799, running=7, queue_seconds=0.7)
    assert not overload.update([member], now=0)


def test_the_worst_tenth_decides_and_stale_is_unknown() -> None:
    members = [Member(slot, identity(str(slot)), reported_at=0) for slot in range(20)]
    members[0].load = Load(queue_seconds=9)
    assert not Overload().update(members, now=0)
    members[1].load = Load(queue_seconds=9)
    assert Overload().update(members, now=1.0)
    assert not Overload().update(members, now=1.1)
