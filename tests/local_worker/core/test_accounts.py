"""Groups of deficit accounts that forget idle members, compared with groups that do not."""

from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.policies.deficit_accounts import DeficitAccounts, DeficitGroup

Q = 10
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


def test_a_client_that_is_busy_again_is_not_forgotten() -> None:
    accounts = DeficitAccounts(Q, most_idle=1)
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
