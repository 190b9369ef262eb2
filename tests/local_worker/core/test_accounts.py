"""Groups of deficit accounts: which leaf is next, and forgotten members, compared with groups that forget none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.fairness_levels import FairnessLevels
from local_worker.core.policies.deficit_accounts import DeficitAccount, DeficitAccounts, DeficitGroup
from local_worker.core.policies.prefix_match_queue import PrefixMatchQueue
from tests.local_worker.engine.driving import make_request

Q = 10
LOWEST = "tenant,user,interaction"
# A client that comes, is charged and leaves, or rounds that pass while nobody is there.
VISIT = st.tuples(st.sampled_from("abcd"), st.integers(0, 60))
ROUNDS = st.integers(1, 4)


def balance(group: DeficitGroup, name: str) -> int:
    account = group.get(name)
    return group.newcomers_balance if account is None else account.balance


def in_credit_after(group: DeficitGroup, name: str) -> int:
    return group.rounds + group.rounds_needed(balance(group, name))


def visit(group: DeficitGroup, name: str, micro: int) -> None:
    account = group.open(name)
    account.charge(micro)
    group.close(account)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(st.one_of(VISIT, VISIT, ROUNDS), max_size=30), most_idle=st.integers(0, 3))
def test_a_forgotten_client_returns_with_no_more_and_no_earlier_credit(
    steps: list[tuple[str, int] | int], most_idle: int
) -> None:
    accounts = DeficitAccounts(Q, most_idle=most_idle)
    alone: dict[str, DeficitGroup] = {}  # by client: its account as it was left, in a group that forgets nobody
    for step in steps:
        if isinstance(step, int):
            for group in [accounts.root, *alone.values()]:
                group.rounds += step
            continue
        client, micro = step
        kept = alone.get(client)
        before = balance(accounts.root, client)
        if kept is not None:
            assert before <= balance(kept, client)
            assert balance(kept, client) > 0 or in_credit_after(accounts.root, client) >= in_credit_after(kept, client)
        alone[client] = own = DeficitAccounts(Q).root
        own.rounds = accounts.root.rounds
        visit(accounts.root, client, micro)
        visit(own, client, micro - before)
        accounts.check_invariants(accounts.quantum)
        assert len(accounts) <= most_idle


def test_a_forgotten_debt_counts_until_its_rounds_have_passed() -> None:
    group = DeficitAccounts(Q, most_idle=0).root
    visit(group, "a", 25)
    assert [balance(group, "a"), balance(group, "newcomer")] == [-25, -25]
    group.rounds += 2
    assert balance(group, "newcomer") == -5
    group.rounds += 1
    assert balance(group, "newcomer") == 0


@pytest.mark.parametrize("levels", [1, 2])
def test_a_client_that_is_busy_again_is_not_forgotten(levels: int) -> None:
    accounts = DeficitAccounts(Q, levels, most_idle=1)
    account = accounts.root.open("a")
    accounts.root.close(account)
    assert accounts.root.open("a") is account
    for visitor in "bc":
        visit(accounts.root, visitor, 0)
    account.charge(5)
    assert (balance(accounts.root, "a"), len(accounts)) == (-5, 2)


def test_users_that_come_once_leave_a_bounded_number_of_accounts_and_no_credit_to_their_tenant() -> None:
    """A tenant whose every call is by a new user: its own account is charged each time, and it is never forgotten."""
    accounts = DeficitAccounts(Q, levels=2, most_idle=5)
    for number in range(100):
        leaf = accounts.open(("tenant", f"tenant/{number}"))
        for account in leaf.path:
            account.charge(7)
        for account in leaf.path:
            account.group.close(account)
        accounts.check_invariants(accounts.quantum)
        assert len(accounts) <= 6
    assert accounts.balance(("tenant",)) == -700
    assert accounts.balance(("tenant", "tenant/newcomer")) <= -7


def test_what_is_below_a_forgotten_account_is_forgotten_with_it() -> None:
    accounts = DeficitAccounts(Q, levels=2, most_idle=1)
    for tenant in "ab":
        leaf = accounts.open((tenant, f"{tenant}/user"))
        leaf.charge(7)
        for account in leaf.path:
            account.group.close(account)
    assert [accounts.balance(("a", "a/user")), accounts.balance(("b", "b/user"))] == [0, -7]
    accounts.open(("a", "a/user"))
    accounts.check_invariants(accounts.quantum)
    assert len(accounts) == 4, "two of a, and two of b"


def waiting(accounts: DeficitAccounts, path: tuple[str, ...], place: int = 0) -> DeficitAccount:
    """Return the leaf of `path`, at which a request waits: the one with the least `place` goes first."""
    leaf, request = accounts.open(path), make_request([1], arrival=place)
    leaf.queue = PrefixMatchQueue(None)
    leaf.queue.add(request, (0, place))
    for account in leaf.path:
        account.waiting += 1
    leaf.rank()
    return leaf


def hold(leaf: DeficitAccount) -> None:
    """Leave the only request of a leaf out of the order."""
    assert leaf.queue is not None
    leaf.queue.hold(leaf.queue.next())
    leaf.rank()


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"])
def test_the_best_request_is_looked_for_again_after_the_users_of_a_tenant_had_a_round(first: str, second: str) -> None:
    accounts = DeficitAccounts(Q, levels=2)
    leaves = {name: waiting(accounts, (name, f"{name}/u"), place) for place, name in enumerate((first, second))}
    assert accounts.next_leaf() is leaves[first]
    assert [accounts.balance((name,)) for name in "ab"] == [Q, Q]
    accounts.check_invariants(Q)


def test_a_round_gives_the_dry_groups_below_the_members_that_have_credit_then_a_round_too() -> None:
    accounts = DeficitAccounts(Q, levels=2)
    _, below = (waiting(accounts, (tenant, f"{tenant}/u")) for tenant in "ab")
    tenant = below.path[-1]
    tenant.charge(Q)
    tenant.rank()
    accounts.root.refill()
    assert [accounts.balance((tenant, f"{tenant}/u")) for tenant in "ab"] == [Q, 0]
    accounts.check_invariants(Q)


def test_a_client_whose_requests_are_held_is_passed_over_until_it_owes_or_waits_no_longer() -> None:
    accounts = DeficitAccounts(Q)
    held, other = (waiting(accounts, (name,), place) for place, name in enumerate("ab"))
    assert accounts.next_leaf() is held
    hold(held)
    assert accounts.next_leaf() is other
    other.charge(Q)
    other.rank()
    assert accounts.next_leaf() is None, "no round while a member has credit"
    held.charge(Q)
    held.rank()
    accounts.check_invariants(Q)
    assert accounts.next_leaf() is other
    assert held.balance == Q, "both had a round"
    held.waiting = 0
    held.rank()
    other.charge(Q)
    other.rank()
    assert accounts.next_leaf() is other, "nobody is held who does not wait"


def test_a_client_whose_requests_are_released_is_next_again() -> None:
    accounts = DeficitAccounts(Q)
    leaf = waiting(accounts, ("a",))
    accounts.root.refill()
    hold(leaf)
    assert accounts.next_leaf() is None
    assert leaf.queue is not None
    leaf.queue.release()
    leaf.rank()
    accounts.check_invariants(Q)
    leaf.charge(Q)
    leaf.rank()
    assert accounts.next_leaf() is leaf


def test_a_barrier_may_be_raised_with_the_least_credit_and_once_in_a_round() -> None:
    accounts = DeficitAccounts(Q)
    leaf = waiting(accounts, ("a",))
    assert not leaf.may_raise_barrier
    accounts.root.refill()
    assert leaf.charge(Q - 1) == 1
    leaf.rank()
    accounts.check_invariants(Q)
    assert leaf.may_raise_barrier
    leaf.raise_barrier()
    assert not leaf.may_raise_barrier
    leaf.charge(1)
    leaf.rank()
    accounts.root.refill()
    assert leaf.may_raise_barrier


def test_accounts_have_one_level_unless_more_are_asked_for() -> None:
    assert DeficitAccounts(Q).open(("a",)).members is None


@pytest.mark.parametrize(("weights", "flat", "below"), [((500, 100), 500, 100), ((100, 500), 100, 100)])
def test_a_users_weight_counts_where_the_highest_level_is_not_the_only_one(
    weights: tuple[int, int], flat: int, below: int
) -> None:
    request = make_request([1])
    request.weight, request.user_weight = weights
    least = [FairnessLevels.parse(text).least_weight(request) for text in ("user", "tenant,user", LOWEST)]
    assert least == [flat, below, below]
