"""A SessionTree against the plain list of everything that sub-agents ever said."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.session_tree import Session, SessionTree

CLIENTS = st.sampled_from(["acme/ann", "acme/bob", "acme/eve"])
SESSIONS = st.sampled_from("abcd")


class Word(NamedTuple):
    """A sub-agent's call."""

    client: str
    session: str
    root: str


class NaiveTree:
    """All that was said, and what counts of it is found anew each time."""

    def __init__(self, per_client: int, total: int, seconds: float) -> None:
        self.per_client = per_client
        self.total = total
        self.seconds = seconds
        self.words: list[Word] = []
        self.last: dict[str, float] = {}  # when a client's sub-agent last called; the latest call comes last

    def root(self, client: str, session: Session, now: float) -> str:
        if not session.parent:
            return session.id
        self.words = [word for word in self.words if now - self.last[word.client] < self.seconds]
        own = [word for word in self.words if word.client == client]
        root = next((word.root for word in own if word.session == session.parent), session.parent)
        kept = [word for word in own if word.session != session.id]
        if root != session.id:
            kept.append(Word(client, session.id, root))
        others = [word for word in self.words if word.client != client]
        self.words = [*others, *kept[-self.per_client :]]
        self.last.pop(client, None)
        self.last[client] = now
        for other in self.last:
            if len(self.words) > self.total:
                self.words = [word for word in self.words if word.client != other]
        return root


class Trees(RuleBasedStateMachine):
    """Both trees hear the same."""

    @initialize(per_client=st.integers(1, 3), others=st.integers(0, 3))
    def begin(self, per_client: int, others: int) -> None:
        self.now = 0.0
        self.tree = SessionTree(per_client=per_client, total=per_client + others, seconds=10.0)
        self.naive = NaiveTree(per_client, per_client + others, seconds=10.0)

    @rule(client=CLIENTS, session=SESSIONS, parent=st.one_of(st.just(""), SESSIONS))
    def call(self, client: str, session: str, parent: str) -> None:
        named = Session(session, parent)
        assert self.tree.root(client, named, self.now) == self.naive.root(client, named, self.now)

    @rule(seconds=st.sampled_from([1.0, 9.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "tree"):
            self.tree.check_invariants()


TestTrees = Trees.TestCase


def test_sub_agents_of_sub_agents_join_the_first_session() -> None:
    tree = SessionTree()
    assert tree.root("ann", Session("main"), 0.0) == "main"
    assert tree.root("ann", Session("child", "main"), 1.0) == "main"
    assert tree.root("ann", Session("grandchild", "child"), 2.0) == "main"
    assert tree.root("bob", Session("grandchild", "child"), 2.0) == "child", "clients share nothing"


@given(st.lists(st.tuples(SESSIONS, SESSIONS)))
def test_sessions_that_name_each_other_end_somewhere(named: list[tuple[str, str]]) -> None:
    tree = SessionTree()
    for session, parent in named:
        assert tree.root("ann", Session(session, parent), 0.0) in "abcd"
        tree.check_invariants()


def test_clients_whose_sub_agents_are_gone_leave_nothing() -> None:
    tree = SessionTree(per_client=2, seconds=10.0)
    for number in range(100):
        tree.root(f"client {number}", Session("child", "main"), float(number))
    assert len(tree) == 10


def test_invented_clients_are_bounded_and_cost_the_others_no_more_than_their_grandchildren() -> None:
    tree = SessionTree(per_client=64, total=1000)
    for client in ("ann", "bob"):
        tree.root(client, Session("child", "main"), 0.0)
    for number in range(10_000):
        tree.root(f"client {number}", Session("child", "main"), 1.0)
        if number % 500 == 0:
            assert tree.root("bob", Session("grandchild", "child"), 1.0) == "main", "whoever calls is remembered"
    tree.check_invariants()
    assert len(tree) < 1000
    assert tree.root("ann", Session("grandchild", "child"), 1.0) == "child", "ann was forgotten"
    assert tree.root("ann", Session("child", "main"), 1.0) == "main", "a child's request names the root itself"


def test_of_a_clients_sub_agents_the_one_that_called_longest_ago_is_forgotten() -> None:
    tree = SessionTree(per_client=2)
    for now, session in enumerate("abac"):
        tree.root("ann", Session(session, "main"), float(now))
    assert tree.root("ann", Session("b", "a"), 5.0) == "main", "a called again after b"
