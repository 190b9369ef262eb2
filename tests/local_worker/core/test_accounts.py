"""Deficit accounts that forget idle clients, compared with accounts that do not."""

from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.policies.deficit_accounts import DeficitAccounts

Q = 10
# A client that comes, is charged and leaves, or rounds that pass while nobody is there.
VISIT = st.tuples(st.sampled_from("abcd"), st.integers(0, 60))
ROUNDS = st.integers(1, 4)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(st.one_of(VISIT, VISIT, ROUNDS), max_size=30), most_idle=st.integers(0, 3))
def test_a_forgotten_client_returns_with_no_more_and_no_earlier_credit(
    steps: list[tuple[str, int] | int], most_idle: int
) -> None:
    accounts = DeficitAccounts(Q, most_idle)
    alone: dict[str, DeficitAccounts] = {}  # by client: its account as it was left, in books that forget nobody
    for step in steps:
        if isinstance(step, int):
            for books in [accounts, *alone.values()]:
                books.advance(step)
            continue
        client, micro = step
        kept = alone.get(client)
        if kept is not None:
            assert accounts.balance(client) <= kept.balance(client)
            assert kept.balance(client) > 0 or accounts.in_credit_after(client) >= kept.in_credit_after(client)
        accounts.busy(client)
        accounts.charge(client, micro)
        alone[client] = own = DeficitAccounts(Q)
        own.advance(accounts.rounds)
        own.busy(client)
        own.charge(client, own.balance(client) - accounts.balance(client))
        accounts.idle(client)
        accounts.check_invariants()
        assert len(accounts) <= most_idle


def test_a_forgotten_debt_counts_until_its_rounds_have_passed() -> None:
    accounts = DeficitAccounts(Q, most_idle=0)
    accounts.busy("a")
    accounts.charge("a", 25)
    accounts.idle("a")
    assert [accounts.balance("a"), accounts.balance("newcomer")] == [-25, -25]
    accounts.advance(2)
    assert accounts.balance("newcomer") == -5
    accounts.advance(1)
    assert accounts.balance("newcomer") == 0


def test_a_client_that_is_busy_again_is_not_forgotten() -> None:
    accounts = DeficitAccounts(Q, most_idle=1)
    accounts.busy("a")
    accounts.idle("a")
    accounts.busy("a")
    for visitor in "bc":
        accounts.busy(visitor)
        accounts.idle(visitor)
    accounts.charge("a", 5)
    assert (accounts.balance("a"), len(accounts)) == (-5, 2)
