"""What the accounts of a request pay for its output in advance, in both modes."""

from local_worker.core.charging import OutputCharge
from local_worker.core.policies.deficit_accounts import DeficitAccount, DeficitAccounts
from local_worker.core.policies.deposits import Deposits, draw
from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.request import Request
from serving.cost import MICRO, WeightedTokens
from serving.sampling_params import SamplingParams
from tests.local_worker.engine.driving import make_request

TOKEN = 2 * MICRO  # the cost of one output token


def deposits(mode: OutputCharge) -> Deposits:
    config = QueuePolicyConfig(
        quantum_tokens=64,
        cost=WeightedTokens(),
        max_input_tokens=16,
        max_output_tokens=16,
        most_output_tokens=64,
        block_tokens=4,
        charge=mode,
    )
    return Deposits(config)


def of_two_levels(*paths: tuple[str, str]) -> list[tuple[DeficitAccount, ...]]:
    """The accounts of each path: the user's, and its tenant's."""
    accounts = DeficitAccounts(64 * MICRO, levels=2)
    return [accounts.open(path).path for path in paths]


def asking_for(tokens: int, weight: int = 1000, user_weight: int = 1000) -> Request:
    request = make_request([1], sampling=SamplingParams(max_tokens=tokens))
    request.weight, request.user_weight = weight, user_weight
    return request


def balances(path: tuple[DeficitAccount, ...]) -> list[int]:
    return [account.balance for account in path]


def test_each_account_pays_for_the_whole_output_by_its_weight_and_once() -> None:
    [path] = of_two_levels(("s", "s/u"))
    made, request = deposits(OutputCharge.RESERVED), asking_for(8, weight=2000, user_weight=500)
    for _ in range(2):
        made.make(request, path)
        assert balances(path) == [-16 * TOKEN, -4 * TOKEN]
        assert made.of(request) == dict(zip(path, [16 * TOKEN, 4 * TOKEN], strict=True))
    made.check_invariants()


def test_output_is_paid_out_of_the_deposit_as_far_as_it_reaches_and_the_rest_is_given_back() -> None:
    [path] = of_two_levels(("s", "s/u"))
    made, request = deposits(OutputCharge.RESERVED), asking_for(8)
    made.make(request, path)
    user, tenant = path
    deposit = made.of(request)
    assert deposit is not None
    assert draw(deposit, user, 3 * TOKEN) == 0
    assert draw(deposit, tenant, 9 * TOKEN) == TOKEN
    assert made.give_back(request)
    assert balances(path) == [-3 * TOKEN, -8 * TOKEN]
    assert made.of(request) is None
    assert not made.give_back(request)


def test_nothing_is_paid_in_advance_for_output_that_is_charged_as_it_is_generated() -> None:
    [path] = of_two_levels(("s", "s/u"))
    made, request = deposits(OutputCharge.GENERATED), asking_for(8)
    made.make(request, path)
    assert (balances(path), made.of(request), made.give_back(request)) == ([0, 0], None, False)


def test_room_and_output_that_are_charged_already_are_not_paid_again() -> None:
    [path] = of_two_levels(("s", "s/u"))
    made = deposits(OutputCharge.RESERVED)
    with_room, all_room, continued = asking_for(8), asking_for(8), asking_for(8)
    with_room.reserved, all_room.reserved = 5, 8
    continued.tokens += [1] * 6
    for request, left in ((with_room, 3), (all_room, None), (continued, 2)):
        made.make(request, path)
        assert made.of(request) == (None if left is None else dict.fromkeys(path, left * TOKEN))
    assert balances(path) == [-5 * TOKEN] * 2


def test_the_deposits_of_an_account_are_those_of_all_requests_below_it() -> None:
    one, two, other = of_two_levels(("s", "one"), ("s", "two"), ("t", "one"))
    made = deposits(OutputCharge.RESERVED)
    for path, tokens in ((one, 1), (one, 2), (two, 4), (other, 8)):
        made.make(asking_for(tokens), path)
    paths = (("s",), ("t",), ("s", "one"), ("s", "two"), ("t", "one"), ("one", "s"), ())
    assert [made.at(path) // TOKEN for path in paths] == [7, 8, 3, 4, 8, 0, 0]
