"""A SessionTree against the plain list of everything that sub-agents ever said."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.session_tree import Session, SessionTree

CLIENTS = st.sampled_from(["acme/ann", "acme/bob"])
SESSIONS = st.sampled_from("abcd")


class Word(NamedTuple):
    """A sub-agent's call."""

    client: str
    session: str
    root: str
    said: float


class NaiveTree:
    """All that was said, and what counts of it is found anew each time."""

    def __init__(self, most: int, seconds: float) -> None:
        self.most = most
        self.seconds = seconds
        self.words: list[Word] = []
        self.last: dict[str, float] = {}  # when a client's sub-agent last called

    def root(self, client: str, session: Session, now: float) -> str:
        if not session.parent:
            return session.id
        lasting = self._lasting(client, now)
        root = next((word.root for word in lasting if word.session == session.parent), session.parent)
        kept = [word for word in lasting if word.session != session.id]
        if root != session.id:
            kept.append(Word(client, session.id, root, now))
        others = [word for word in self.words if word.client != client]
        self.words = [*others, *kept[-self.most :]]
        self.last[client] = now
        return root

    def _lasting(self, client: str, now: float) -> list[Word]:
        last = self.last.get(client, now)
        return [word for word in self.words if word.client == client] if now - last < self.seconds else []


class Trees(RuleBasedStateMachine):
    """Both trees hear the same."""

    @initialize(most=st.integers(1, 3))
    def begin(self, most: int) -> None:
        self.now = 0.0
        self.tree = SessionTree(most, seconds=10.0)
        self.naive = NaiveTree(most, seconds=10.0)

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
    tree = SessionTree(most=2, seconds=10.0)
    for number in range(100):
        tree.root(f"client {number}", Session("child", "main"), float(number))
    assert len(tree) == 10
