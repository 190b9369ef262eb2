"""What a request's progress costs: its prompt without what is cached, its output without what is charged ahead."""

import pytest

from local_worker.core.accounts.service_ledger import Charging
from local_worker.core.request import Request
from serving.cost import MICRO, Cost, Normalized, Profiled, WeightedTokens
from tests.unit.local_worker.engine.driving import make_request

PROMPT = 10


def generated(output: int, reserved: int = 0) -> Request:
    request = make_request([1] * PROMPT)
    request.tokens += [2] * output
    request.reserved = reserved
    return request


@pytest.mark.parametrize(
    ("system", "computed", "units"),
    [(6, 10, 4 + 2 * 6), (6, 7, 4 + 2 * 3), (6, 4, 4), (6, 2, 2), (10, 3, 2 * 3), (0, 10, 10), (6, 0, 0)],
)
def test_system_messages_come_first_in_a_prompt_and_are_cached_first(system: int, computed: int, units: int) -> None:
    request = generated(0)
    request.system_tokens = system
    assert Charging(Normalized(1, 2, 1)).extend(request, computed) == units * MICRO


def test_a_token_costs_by_its_place_in_the_output() -> None:
    cost = Profiled()
    assert Charging(cost).decode(generated(6), 2) == cost.decode(2, PROMPT, 4)
    assert Charging(cost).output(generated(0), 4, 6) == cost.decode(2, PROMPT, 4)


@pytest.mark.parametrize(("reserved", "begin"), [(0, 4), (3, 4), (4, 4), (5, 5), (6, 6), (9, 6)])
def test_of_generated_tokens_those_are_due_that_were_not_charged_ahead(reserved: int, begin: int) -> None:
    cost = Profiled()
    assert Charging(cost).due(generated(6, reserved), 2) == cost.decode(6 - begin, PROMPT, begin)


def test_the_next_output_token_costs_as_much_as_when_it_is_generated() -> None:
    charging, request = Charging(Profiled()), make_request([1] * 40)
    for _ in range(3):
        expected = charging.next_output(request)
        request.tokens.append(0)
        assert charging.decode(request, 1) == expected > 0


@pytest.mark.parametrize(
    ("cost", "most"), [(WeightedTokens(3, 1), 3), (Profiled(), 2.1), (Normalized(2, 1, 9), 2), (Normalized(1, 2, 9), 2)]
)
def test_a_token_of_a_prompt_costs_at_most_as_much_as_the_dearer_kind(cost: Cost, most: float) -> None:
    assert Charging(cost).most_per_token == most * MICRO
