"""Balances, their refills, and forgotten accounts, compared with siblings of whom none is forgotten; and the order of
leaves."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.accounts.account import Account
from local_worker.core.accounts.tree import AccountTree, FairnessLevels
from local_worker.core.policies.dlpm import DeficitOrder
from local_worker.core.policies.prefix_match_queue import PrefixMatchQueue
from local_worker.core.request import Request
from tests.unit.local_worker.core.accounts.test_tree import request_of, submit
from tests.unit.local_worker.engine.driving import make_request

Q = 10
USER, TENANTS = FairnessLevels.parse("user"), FairnessLevels.parse("tenant,user")
LOWEST = "tenant,user,interaction"
# A client that comes, is charged and leaves, or rounds that pass while nobody is there.
VISIT = st.tuples(st.sampled_from("abcd"), st.integers(0, 60))
ROUNDS = st.integers(1, 4)


def in_credit_after(tree: AccountTree, name: str) -> int:
    return tree.root.rounds + tree.root.rounds_needed(tree.balance((name,)))


def visit(tree: AccountTree, client: str, micro: int, arrival: int = 0) -> None:
    """Come, be charged `micro` at each level, and leave; what is idle beyond that is forgotten."""
    request = submit(tree, request_of(client, arrival))
    for account in request.account.lineage:
        account.charge(micro)
    tree.withdrawn(request)


def forget_idle(tree: AccountTree) -> None:
    """Let something happen, at which idle accounts are forgotten; none of those that stay idle is another one."""
    request = submit(tree, request_of("last", 0))
    tree.withdrawn(request)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(st.one_of(VISIT, VISIT, ROUNDS), max_size=30), most_idle=st.integers(0, 3))
def test_a_forgotten_client_returns_with_no_more_and_no_earlier_credit(
    steps: list[tuple[str, int] | int], most_idle: int
) -> None:
    tree = AccountTree(USER, most_idle, Q)
    alone: dict[str, AccountTree] = {}  # by client: its account as it was left, in a tree that forgets nobody
    for step in steps:
        if isinstance(step, int):
            for each in [tree, *alone.values()]:
                each.root.rounds += step
            continue
        client, micro = step
        kept = alone.get(client)
        before = tree.balance((client,))
        if kept is not None:
            assert before <= kept.balance((client,))
            assert kept.balance((client,)) > 0 or in_credit_after(tree, client) >= in_credit_after(kept, client)
        alone[client] = own = AccountTree(USER, quantum=Q)
        own.root.rounds = tree.root.rounds
        visit(tree, client, micro)
        visit(own, client, own.balance((client,)) - tree.balance((client,)))
        tree.check_invariants([], [])
        assert len(tree) <= most_idle + 1


def test_a_forgotten_debt_counts_until_its_rounds_have_passed() -> None:
    tree = AccountTree(USER, 0, Q)
    visit(tree, "a", 25)
    assert (tree.balance(("a",)), tree.balance(("newcomer",))) == (-25, 0)
    forget_idle(tree)
    assert [tree.balance((name,)) for name in ("a", "newcomer")] == [-25, -25]
    tree.root.rounds += 2
    assert tree.balance(("newcomer",)) == -5
    tree.root.rounds += 1
    assert tree.balance(("newcomer",)) == 0


@pytest.mark.parametrize("levels", [USER, TENANTS])
def test_a_client_that_is_busy_again_is_not_forgotten(levels: FairnessLevels) -> None:
    tree = AccountTree(levels, 1, Q)
    visit(tree, "a", 0)
    request = submit(tree, request_of("a", 1))
    for visitor in "bcd":
        visit(tree, visitor, 0)
    request.account.charge(5)
    assert tree.balance(request.path) == -5
    assert len(tree) == 3 * len(levels), "one that is busy, and of the idle ones one more than is kept"


def test_users_that_come_once_leave_a_bounded_number_of_accounts_and_no_credit_to_their_tenant() -> None:
    """A tenant whose every call is by a new user: its own account is charged each time, and it is never forgotten."""
    tree = AccountTree(TENANTS, 5, Q)
    for number in range(100):
        visit(tree, f"tenant/{number}", 7)
        assert len(tree) <= 1 + 6
        assert len(tree.clients) <= 6
    assert tree.balance(("tenant",)) == -700
    assert tree.balance(("tenant", "tenant/newcomer")) <= -7


def test_accounts_below_a_forgotten_account_are_forgotten_with_it() -> None:
    tree = AccountTree(TENANTS, 1, Q)
    for tenant in "abc":
        visit(tree, f"{tenant}/user", 7)
    assert [tree.balance((name, f"{name}/user")) for name in "abc"] == [0, -7, -7]
    tree.check_invariants([], [])
    assert len(tree) == 4, "two of b, and two of c"


class Order:
    """Requests that wait at an order of deficits; the one with the least arrival goes first."""

    def __init__(self, levels: FairnessLevels) -> None:
        self.tree = AccountTree(levels, quantum=Q)
        self.order = DeficitOrder(self.tree.root)
        self.requests: list[Request] = []

    def waits(self, client: str) -> Account:
        request = submit(self.tree, request_of(client, len(self.requests)))
        queue = self.order.queues[request.account] = PrefixMatchQueue(None)
        queue.add(request, (0, request.arrival))
        self.requests.append(request)
        self.order.rank(request.account)
        return request.account

    def hold(self, leaf: Account) -> None:
        """Leave the only request of a leaf out of the order."""
        self.order.queues[leaf].hold(self.order.queues[leaf].next())
        self.order.rank(leaf)

    def charge(self, leaf: Account, micro: int) -> int:
        left = leaf.charge(micro)
        self.order.rank(leaf)
        return left

    def leave(self, leaf: Account) -> None:
        [request] = [each for each in self.requests if each.account is leaf]
        self.tree.withdrawn(request)
        self.requests.remove(request)
        self.order.rank(leaf)

    def check(self) -> None:
        self.tree.check_invariants(self.requests, [])
        for account in self.tree:
            assert account.balance <= Q
            self.order.check_rank(account)


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"])
def test_the_best_request_is_looked_for_again_after_the_users_of_a_tenant_had_a_round(first: str, second: str) -> None:
    order = Order(TENANTS)
    leaves = {name: order.waits(f"{name}/u") for name in (first, second)}
    assert order.order.next_leaf() is leaves[first]
    assert [order.tree.balance((name,)) for name in "ab"] == [Q, Q]
    order.check()


def test_a_round_gives_the_dry_siblings_below_the_accounts_that_have_credit_then_a_round_too() -> None:
    order = Order(TENANTS)
    above, below = order.waits("a/u"), order.waits("b/u")
    tenant = below.lineage[-1]
    tenant.charge(Q)
    order.order.rank(below)
    assert order.order.next_leaf() is above
    assert [leaf.balance for leaf in (above, below)] == [Q, 0]
    order.check()


def test_a_client_whose_requests_are_held_is_passed_over_until_it_owes_or_waits_no_longer() -> None:
    order = Order(USER)
    held, other = order.waits("a"), order.waits("b")
    assert order.order.next_leaf() is held
    order.hold(held)
    assert order.order.next_leaf() is other
    order.charge(other, Q)
    assert order.order.next_leaf() is None, "no round while one that waits has credit"
    order.charge(held, Q)
    order.check()
    assert order.order.next_leaf() is other
    assert held.balance == Q, "both had a round"
    order.leave(held)
    order.charge(other, Q)
    assert order.order.next_leaf() is other, "nobody is held who does not wait"


def test_a_client_whose_requests_are_released_is_next_again() -> None:
    order = Order(USER)
    leaf = order.waits("a")
    assert order.order.next_leaf() is leaf
    order.hold(leaf)
    assert order.order.next_leaf() is None
    order.order.queues[leaf].release()
    order.order.rank(leaf)
    order.check()
    order.charge(leaf, Q)
    assert order.order.next_leaf() is leaf


def test_accounts_have_one_level_unless_more_are_asked_for() -> None:
    assert submit(AccountTree(), request_of("t/u", 0)).account.members is None


@pytest.mark.parametrize(("weights", "flat", "below"), [((500, 100), 500, 100), ((100, 500), 100, 100)])
def test_a_users_weight_counts_where_the_highest_level_is_not_the_only_one(
    weights: tuple[int, int], flat: int, below: int
) -> None:
    request = make_request([1])
    request.weight, request.user_weight = weights
    least = [FairnessLevels.parse(text).least_weight(request) for text in ("user", "tenant,user", LOWEST)]
    assert least == [flat, below, below]
