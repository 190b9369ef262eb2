"""What the accounts of a request pay for its output in advance, in both modes."""

from local_worker.core.accounts.charging import OutputCharge
from local_worker.core.accounts.levels import FairnessLevels
from local_worker.core.accounts.tree import AccountTree
from local_worker.core.policies.deposits import Deposits, draw
from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.request import Request
from serving.cost import MICRO, WeightedTokens
from serving.sampling_params import SamplingParams
from tests.local_worker.core.accounts.test_tree import submit
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


class Callers:
    """Requests of users of tenants."""

    def __init__(self) -> None:
        self.tree = AccountTree(FairnessLevels.parse("tenant,user"), quantum=64 * MICRO)

    def ask(self, tokens: int, client: str = "s/u", weight: int = 1000, user_weight: int = 1000) -> Request:
        request = make_request([1], sampling=SamplingParams(max_tokens=tokens))
        request.client, request.weight, request.user_weight = client, weight, user_weight
        return submit(self.tree, request)


def balances(request: Request) -> list[int]:
    """The balance of the user, and of its tenant."""
    return [account.balance for account in request.account.lineage]


def test_each_account_pays_for_the_whole_output_by_its_weight_and_once() -> None:
    made, request = deposits(OutputCharge.RESERVED), Callers().ask(8, weight=2000, user_weight=500)
    for _ in range(2):
        made.make(request)
        assert balances(request) == [-16 * TOKEN, -4 * TOKEN]
        assert made.of(request) == dict(zip(request.account.lineage, [16 * TOKEN, 4 * TOKEN], strict=True))
    made.check_invariants()


def test_output_is_paid_out_of_the_deposit_as_far_as_it_reaches_and_the_rest_is_given_back() -> None:
    made, request = deposits(OutputCharge.RESERVED), Callers().ask(8)
    made.make(request)
    user, tenant = request.account.lineage
    deposit = made.of(request)
    assert deposit is not None
    assert draw(deposit, user, 3 * TOKEN) == 0
    assert draw(deposit, tenant, 9 * TOKEN) == TOKEN
    assert made.give_back(request)
    assert balances(request) == [-3 * TOKEN, -8 * TOKEN]
    assert made.of(request) is None
    assert not made.give_back(request)


def test_nothing_is_paid_in_advance_for_output_that_is_charged_as_it_is_generated() -> None:
    made, request = deposits(OutputCharge.GENERATED), Callers().ask(8)
    made.make(request)
    assert (balances(request), made.of(request), made.give_back(request)) == ([0, 0], None, False)


def test_room_and_output_that_are_charged_already_are_not_paid_again() -> None:
    made, callers = deposits(OutputCharge.RESERVED), Callers()
    with_room, all_room, continued = (callers.ask(8) for _ in range(3))
    with_room.reserved, all_room.reserved = 5, 8
    continued.tokens += [1] * 6
    for request, left in ((with_room, 3), (all_room, None), (continued, 2)):
        made.make(request)
        lineage = request.account.lineage
        assert made.of(request) == (None if left is None else dict.fromkeys(lineage, left * TOKEN))
    assert balances(with_room) == [-5 * TOKEN] * 2


def test_the_deposits_of_an_account_are_those_of_all_requests_below_it() -> None:
    made, callers = deposits(OutputCharge.RESERVED), Callers()
    for client, tokens in (("s/one", 1), ("s/one", 2), ("s/two", 4), ("t/one", 8)):
        made.make(callers.ask(tokens, client))
    paths = (("s",), ("t",), ("s", "s/one"), ("s", "s/two"), ("t", "t/one"), ("s/one", "s"), ())
    assert [made.at(path) // TOKEN for path in paths] == [7, 8, 3, 4, 8, 0, 0]
