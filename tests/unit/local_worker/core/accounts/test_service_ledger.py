"""The service that a worker counts."""

from local_worker.core.accounts.service_ledger import ServiceLedger
from local_worker.core.accounts.tree import AccountTree, FairnessLevel, FairnessLevels
from local_worker.core.request import Request
from serving.cost import MICRO, WeightedTokens
from tests.unit.local_worker.core.accounts.test_tree import submit
from tests.unit.local_worker.engine.driving import make_request

LEVELS = FairnessLevels.parse("tenant,user,interaction")


class Calls:
    """A ledger with all levels, and requests that arrive at it."""

    def __init__(self) -> None:
        self.tree = AccountTree(LEVELS)
        self.ledger = ServiceLedger(WeightedTokens(), self.tree)
        self.count = 0

    def arrives(self, client: str, tokens: int = 1) -> Request:
        self.count += 1
        request = make_request([1] * tokens, arrival=self.count)
        request.client = client
        return self.submit(request)

    def submit(self, request: Request) -> Request:
        submit(self.tree, request)
        self.ledger.arrived(request)
        return request

    def start(self, request: Request) -> None:
        self.tree.admitted(request)
        self.ledger.admitted(request, request.cached)
        self.tree.planned(request)
        request.charged = request.prompt_tokens
        self.ledger.extended(request, (request.prompt_tokens - request.cached) * MICRO)

    def served(self, client: str, tokens: int) -> Request:
        request = self.arrives(client, tokens)
        self.start(request)
        return request

    def generates(self, request: Request, tokens: int) -> None:
        request.tokens += [1] * tokens
        self.ledger.generated(request, tokens)

    def weighted(self) -> list[list[int]]:
        """The service over weight of the accounts of each level, the highest first, in cost units."""
        levels = range(1, len(LEVELS) + 1)
        return [[each.weighted // MICRO for each in self.tree if len(each.path) == level] for level in levels]


def test_service_counts_at_each_level_by_its_weight() -> None:
    calls = Calls()
    request = make_request([1] * 9)
    request.client, request.weight, request.user_weight, request.cached = "s/u", 2000, 500, 1
    calls.start(calls.submit(request))
    assert calls.weighted() == [[4], [16], [16]]
    calls.generates(request, 3)
    assert calls.weighted() == [[4 + 3], [16 + 12], [16 + 12]]
    [account] = calls.tree.clients
    assert (account.service, account.weighted) == (14 * MICRO, 7 * MICRO)
    assert (request.service, calls.ledger.weighted) == (14 * MICRO, 7 * MICRO)
    assert (calls.ledger.prompt_tokens, calls.ledger.cached_tokens) == (9, 1)


def test_output_that_is_charged_ahead_counts_for_fairness_at_once_and_as_service_when_it_is_generated() -> None:
    calls = Calls()
    request = calls.served("s/u", 4)
    calls.ledger.reserved(request, range(2, 5))
    assert request.reserved == 5
    assert calls.weighted() == [[4 + 6]] * 3
    calls.generates(request, 6)
    [account] = calls.tree.clients
    assert (account.service, account.weighted) == (16 * MICRO, 12 * MICRO), "the first two and the last are due"
    assert calls.weighted() == [[12]] * 3


def test_a_request_that_was_preempted_is_not_charged_again() -> None:
    calls = Calls()
    request = calls.served("s/u", 4)
    calls.ledger.preempted(request)
    calls.ledger.readmitted(request)
    calls.ledger.recomputed(request, 3, 0)
    assert (calls.ledger.recomputed_tokens, calls.ledger.prompt_tokens) == (3, 4)
    assert calls.weighted() == [[4]] * 3
    [account] = calls.tree.clients
    assert account.service == 4 * MICRO


def test_slices_that_are_computed_again_count_for_fairness_and_not_as_service() -> None:
    calls = Calls()
    request = calls.served("s/u", 4)
    calls.ledger.recomputed(request, 3, 3 * MICRO)
    assert calls.weighted() == [[4 + 3]] * 3
    [account] = calls.tree.clients
    assert (account.service, request.service) == (4 * MICRO, 4 * MICRO)


def test_the_gap_of_a_level_is_between_siblings_that_wait() -> None:
    calls = Calls()
    ledger = calls.ledger
    waiting = [calls.arrives(client) for client in ("s/u", "s/v", "t/w")]
    ledger.observe()
    calls.served("s/u", 10)
    ledger.observe()
    calls.served("t/w", 25)
    ledger.observe()
    gaps = {level.value: gap.worst // MICRO for level, gap in ledger.gaps.items()}
    assert gaps == {"tenant": 25, "user": 10, "interaction": 0}
    assert ledger.worst_gap == 25 * MICRO
    for request in waiting[:2]:
        calls.start(request)
    ledger.observe()
    calls.arrives("t/x")
    calls.arrives("t/w")
    ledger.observe()
    calls.served("t/x", 40)
    ledger.observe()
    assert ledger.gaps[FairnessLevel.USER].worst == 40 * MICRO, "the users of another tenant take their place"


def test_accounts_that_changed_are_told_once_in_order_of_their_first_change() -> None:
    calls = Calls()
    first, second = calls.served("s/u", 4), calls.served("s/v", 4)
    calls.generates(first, 1)
    assert [account.name for account in calls.ledger.take_changed()] == ["s/u", "s/v"]
    calls.generates(second, 1)
    assert [account.name for account in calls.ledger.take_changed()] == ["s/v"]
    assert list(calls.ledger.take_changed()) == []
