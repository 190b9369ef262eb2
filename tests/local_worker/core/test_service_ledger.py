"""The clients whose service a worker remembers."""

from hypothesis import given
from hypothesis import strategies as st

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
