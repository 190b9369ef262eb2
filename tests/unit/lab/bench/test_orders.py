"""The benchmark of DLPM's orders: each order is the policy's for as long as it is tried."""

import pytest

from lab.bench.orders import ORDERS, ordered


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_the_policys_until_its_figures_are_taken(name: str) -> None:
    owner, part, other = ORDERS[name]
    before = getattr(owner, part)
    with ordered(name):
        assert getattr(owner, part) is other
    assert getattr(owner, part) is before
