"""The service that a worker counts, and the clients for whom it remembers it."""

from hypothesis import given
from hypothesis import strategies as st

from local_worker.core.fairness_levels import FairnessLevel, FairnessLevels
from local_worker.core.request import Request
from local_worker.core.service_ledger import ServiceLedger
from serving.cost import MICRO, WeightedTokens
from tests.local_worker.engine.driving import make_request

MOST_IDLE = 2


def request_of(client: str, arrival: int) -> Request:
    request = make_request([1], arrival=arrival)
    request.client = client
    return request


# A client that comes, or one whose earliest request leaves.
@given(steps=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40))
def test_of_idle_clients_the_latest_are_remembered(steps: list[tuple[str, bool]]) -> None:
    ledger = ServiceLedger(WeightedTokens(), MOST_IDLE)
    running: dict[str, list[Request]] = {client: [] for client in "abcd"}
    served: dict[str, int] = {}
    idle: list[str] = []
    for arrival, (client, comes) in enumerate(steps):
        if comes:
            request = request_of(client, arrival)
            ledger.arrived(request)
            ledger.admitted(request)
            running[client].append(request)
            served[client] = served.get(client, 0) + MICRO
            idle = [each for each in idle if each != client]
        elif running[client]:
            ledger.finished(running[client].pop(0))
            if not running[client]:
                idle.append(client)
            if len(idle) > MOST_IDLE:
                del served[idle.pop(0)]
        for account in ledger.take_changed():
            if account.client in served:
                assert account.service == served[account.client]
                assert account.running == len(running[account.client])
    assert sorted(ledger._accounts) == sorted(served)


LEVELS = FairnessLevels.parse("tenant,user,interaction")


class Calls:
    """A ledger with all levels, and requests that arrive at it."""

    def __init__(self, most_idle: int = 100) -> None:
        self.ledger = ServiceLedger(WeightedTokens(), most_idle, LEVELS)
        self.count = 0

    def arrives(self, client: str, tokens: int = 1) -> Request:
        self.count += 1
        request = make_request([1] * tokens, arrival=self.count)
        request.client = client
        self.ledger.arrived(request)
        return request

    def served(self, client: str, tokens: int) -> Request:
        request = self.arrives(client, tokens)
        self.ledger.admitted(request)
        return request

    def generates(self, request: Request, tokens: int) -> None:
        request.tokens += [1] * tokens
        self.ledger.generated(request, tokens)

    def weighted(self) -> list[list[int]]:
        """The service over weight of the accounts of each level, the highest first, in cost units."""
        shares = self.ledger.shares
        return [[account.weighted // MICRO for account in shares.accounts(level)] for level in range(len(LEVELS))]


def test_service_counts_at_each_level_by_its_weight() -> None:
    calls = Calls()
    request = make_request([1] * 9)
    request.client, request.weight, request.user_weight, request.cached = "s/u", 2000, 500, 1
    calls.ledger.arrived(request)
    calls.ledger.admitted(request)
    assert calls.weighted() == [[4], [16], [16]]
    calls.generates(request, 3)
    assert calls.weighted() == [[4 + 3], [16 + 12], [16 + 12]]
    [account] = calls.ledger.accounts
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
    [account] = calls.ledger.accounts
    assert (account.service, account.weighted) == (16 * MICRO, 12 * MICRO), "the first two and the last are due"
    assert calls.weighted() == [[12]] * 3


def test_a_request_that_was_preempted_waits_again_and_is_not_charged_again() -> None:
    calls = Calls()
    request = calls.served("s/u", 4)
    calls.ledger.preempted(request)
    [account] = calls.ledger.accounts
    assert (account.waiting, account.running, calls.ledger.waiting("s/u")) == (1, 0, 1)
    assert [[each.waiting for each in calls.ledger.shares.accounts(level)] for level in range(3)] == [[1]] * 3
    calls.ledger.readmitted(request, 3)
    assert (account.waiting, account.running, calls.ledger.recomputed_tokens) == (0, 1, 3)
    assert [[each.waiting for each in calls.ledger.shares.accounts(level)] for level in range(3)] == [[0]] * 3
    assert calls.weighted() == [[4]] * 3


def test_what_a_withdrawn_request_has_prepaid_counts_as_service_of_its_client() -> None:
    calls = Calls()
    request = calls.arrives("s/u")
    request.weight, request.prepaid = 2000, 10 * MICRO
    assert calls.ledger.waiting("s/u") == 1
    calls.ledger.withdrawn(request)
    [account] = calls.ledger.accounts
    assert (account.service, account.weighted, account.waiting) == (0, 5 * MICRO, 0)
    assert calls.weighted() == [[5], [10], [10]]
    assert (calls.ledger.waiting("s/u"), calls.ledger.waiting("nobody")) == (0, 0)


def test_accounts_without_requests_are_forgotten_at_every_level() -> None:
    calls = Calls(most_idle=0)
    first, second = calls.served("s/u", 1), calls.arrives("s/u")
    calls.ledger.finished(first)
    assert calls.weighted() == [[1]] * 3, "one still waits"
    calls.ledger.withdrawn(second)
    assert calls.weighted() == [[]] * 3
    assert list(calls.ledger.accounts) == []
    running = calls.served("s/u", 1)
    calls.ledger.withdrawn(calls.arrives("s/u"))
    assert len(calls.ledger.accounts) == 1, "one still runs"
    calls.ledger.finished(running)
    assert list(calls.ledger.accounts) == []


def test_the_gap_of_a_level_is_between_siblings_that_wait() -> None:
    calls = Calls()
    shares = calls.ledger.shares
    waiting = [calls.arrives(client) for client in ("s/u", "s/v", "t/w")]
    shares.observe()
    calls.served("s/u", 10)
    shares.observe()
    calls.served("t/w", 25)
    shares.observe()
    gaps = {level.value: gap // MICRO for level, gap in shares.worst_gaps}
    assert gaps == {"tenant": 25, "user": 10, "interaction": 0}
    assert shares.worst_gap == 25 * MICRO
    for request in waiting[:2]:
        calls.ledger.admitted(request)
    shares.observe()
    calls.arrives("t/x")
    calls.arrives("t/w")
    shares.observe()
    calls.served("t/x", 40)
    shares.observe()
    assert dict(shares.worst_gaps)[FairnessLevel.USER] == 40 * MICRO, "the users of another tenant take their place"


def test_an_account_that_has_requests_again_is_not_forgotten() -> None:
    calls = Calls(most_idle=1)
    calls.ledger.finished(calls.served("s/u", 5))
    calls.arrives("s/u")
    for client in ("t/v", "t/w"):
        calls.ledger.finished(calls.served(client, 1))
    assert [5 in units for units in calls.weighted()] == [True] * 3
    assert [account.client for account in calls.ledger.accounts] == ["s/u", "t/w"]


def test_a_withdrawn_request_waits_no_longer_at_any_level() -> None:
    calls = Calls()
    calls.arrives("s/u")
    calls.ledger.withdrawn(calls.arrives("s/u"))
    assert [[each.waiting for each in calls.ledger.shares.accounts(level)] for level in range(3)] == [[1]] * 3


def test_accounts_that_changed_are_told_once_in_order_of_their_first_change() -> None:
    calls = Calls()
    first, second = calls.served("s/u", 4), calls.served("s/v", 4)
    calls.generates(first, 1)
    assert [account.client for account in calls.ledger.take_changed()] == ["s/u", "s/v"]
    calls.generates(second, 1)
    assert [account.client for account in calls.ledger.take_changed()] == ["s/v"]
    assert list(calls.ledger.take_changed()) == []
