"""A BoundedClientMap against a list of clients in the order in which they rested."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from serving.bounded_client_map import BoundedClientMap

CLIENTS = st.sampled_from("abcde")


class NaiveTable:
    """Values by client; the idle ones stand in a list, the one that rested last at its end."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.values: dict[str, int] = {}
        self.idle: list[str] = []

    def activate(self, client: str) -> None:
        self.idle = [other for other in self.idle if other != client]

    def rest(self, client: str) -> int | None:
        self.activate(client)
        self.idle.append(client)
        return self.values.pop(self.idle.pop(0)) if len(self.idle) > self.most else None

    def forget(self, client: str) -> None:
        self.activate(client)
        del self.values[client]


class Tables(RuleBasedStateMachine):
    """Both tables hear the same."""

    @initialize(most=st.integers(0, 3))
    def begin(self, most: int) -> None:
        self.table: BoundedClientMap[str, int] = BoundedClientMap(most)
        self.naive = NaiveTable(most)

    @rule(client=CLIENTS, value=st.integers(0, 9))
    def put(self, client: str, value: int) -> None:
        self.table[client] = self.naive.values[client] = value

    @rule(client=CLIENTS)
    def activate(self, client: str) -> None:
        self.table.activate(client)
        self.naive.activate(client)

    @rule(client=CLIENTS)
    def rest(self, client: str) -> None:
        if client in self.naive.values:
            assert self.table.rest(client) == self.naive.rest(client)

    @rule(client=CLIENTS)
    def forget(self, client: str) -> None:
        if client in self.naive.values:
            self.table.forget(client)
            self.naive.forget(client)

    @invariant()
    def agree(self) -> None:
        self.table.check_invariants()
        known = self.naive.values
        assert dict(self.table.items()) == known
        assert (list(self.table), list(self.table.values())) == ([*known], [*known.values()])
        assert len(self.table) == len(known)
        assert list(self.table.latest_idle()) == self.naive.idle[::-1]
        for client in "abcde":
            assert self.table.get(client) == known.get(client)
            assert (client in self.table) == (client in known)
            assert self.table.is_idle(client) == (client in self.naive.idle)
            assert client not in known or self.table[client] == known[client]


Tables.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTables = Tables.TestCase
