"""Reservations of calls in progress are found once, and the oldest is forgotten when there are too many."""

from throttler.core.budget import LIFETIME, BudgetAccount, TokenUse
from throttler.core.budgets import UNRESERVED, BookedAmount, Reservation
from throttler.core.throttle import Caller
from throttler.open_reservations import OpenReservations

ACCOUNT = BudgetAccount("tokens:minute:user:t/ann", 10, LIFETIME)
ANN, BOB = Caller("t", "t/ann", "a"), Caller("t", "t/bob", "a")


def reservation(tokens: int) -> Reservation:
    return Reservation(TokenUse(tokens, tokens), (BookedAmount(ACCOUNT, 0, 0),), False)


def test_a_reservation_is_found_once_by_its_caller() -> None:
    found = OpenReservations()
    found.add((ANN, "a"), reservation(1))
    found.add((ANN, ""), reservation(2))
    found.add((ANN, "unlimited"), UNRESERVED)
    assert found.take((BOB, "a")) is None
    assert found.take((ANN, "a")) == reservation(1)
    assert found.take((ANN, "a")) is None
    assert found.take((ANN, "")) is None, "a call without an id cannot be found"
    assert found.take((ANN, "unlimited")) is None


def test_the_oldest_is_forgotten() -> None:
    found = OpenReservations(most=2)
    for name in "aba":
        found.add((ANN, name), reservation(1))
    found.add((ANN, "c"), reservation(3))
    assert found.take((ANN, "b")) is None, "a was added again"
    assert found.take((ANN, "a")) == reservation(1)
    assert found.take((ANN, "c")) == reservation(3)
