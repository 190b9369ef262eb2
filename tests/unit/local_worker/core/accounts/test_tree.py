"""The tree of accounts, compared with a model that counts everything again at every event."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from local_worker.core.accounts.account import Account, Path
from local_worker.core.accounts.tree import AccountTree, FairnessLevels
from local_worker.core.request import Request
from tests.unit.local_worker.engine.driving import make_request

PAGES = 24
CLIENTS = ("a", "b", "c/u", "c/v")
WEIGHTS = st.sampled_from((1, 500, 1000, 3000))
NUMBERS = st.integers(0, 20)


def prefixes(path: Path) -> list[Path]:
    return [path[:end] for end in range(1, len(path) + 1)]


def request_of(client: str, arrival: int, *, exempt: bool = False, interaction: str = "") -> Request:
    request = make_request([1], arrival=arrival)
    request.client, request.interaction, request.is_exempt = client, interaction, exempt
    return request


def submit(tree: AccountTree, request: Request) -> Request:
    request.path = tree.path(request)
    tree.arrived(request)
    return request


class TreeMachine(RuleBasedStateMachine):
    """Requests that come, enter, grow, are preempted, and leave from wherever they are."""

    levels = FairnessLevels.parse("user")

    @initialize(most_idle=st.integers(0, 3))
    def begin(self, most_idle: int) -> None:
        self.tree = AccountTree(self.levels, most_idle)
        self.most_idle = most_idle
        self.waiting: list[Request] = []
        self.running: dict[Request, int] = {}  # with the pages found cached
        self.latest: dict[Path, int] = {}  # the weight of each account's latest request
        # Paths of idle accounts by level, and the names of idle clients; what became idle first comes first.
        self.idle: list[list[Path]] = [[] for _ in self.levels.levels]
        self.idle_clients: list[str] = []
        self.arrivals = 0

    @rule(
        client=st.sampled_from(CLIENTS),
        interaction=st.sampled_from("ij"),
        weight=WEIGHTS,
        user_weight=WEIGHTS,
        exempt=st.booleans(),
    )
    def arrive(self, client: str, interaction: str, weight: int, user_weight: int, exempt: bool) -> None:
        request = request_of(client, self.arrivals, exempt=exempt, interaction=interaction)
        request.weight, request.user_weight = weight, user_weight
        self.arrivals += 1
        self.forget()
        submit(self.tree, request)
        highest, *below = prefixes(request.path)
        self.latest |= {highest: weight, **dict.fromkeys(below, user_weight)}
        self.idle = [[each for each in level if each not in (highest, *below)] for level in self.idle]
        self.idle_clients = [each for each in self.idle_clients if each != client]
        self.waiting.append(request)

    @precondition(lambda self: self.waiting)
    @rule(number=NUMBERS, cached=st.integers(0, 4), fresh=st.integers(0, 9))
    def enter(self, number: int, cached: int, fresh: int) -> None:
        request = self.waiting.pop(number % len(self.waiting))
        request.pages, request.shared = [0] * (cached + fresh), cached
        self.running[request] = cached
        self.tree.admitted(request)

    @precondition(lambda self: self.running)
    @rule(number=NUMBERS, pages=st.integers(1, 2))
    def grow_and_publish(self, number: int, pages: int) -> None:
        request = list(self.running)[number % len(self.running)]
        request.pages += [0] * pages
        request.shared = len(request.pages)
        self.tree.grew(request, pages)

    @precondition(lambda self: self.running)
    @rule(number=NUMBERS)
    def preempt(self, number: int) -> None:
        request = list(self.running)[number % len(self.running)]
        del self.running[request]
        self.waiting.append(request)
        request.pages, request.preemptions = [], request.preemptions + 1
        self.tree.preempted(request)

    @precondition(lambda self: self.waiting or self.running)
    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        here = [*self.waiting, *self.running]
        request = here[number % len(here)]
        self.forget()
        if request in self.running:
            self.tree.finished(request)
        else:
            self.tree.withdrawn(request)
        self.waiting = [other for other in self.waiting if other is not request]
        self.running.pop(request, None)
        open_paths = {path for other in self.here for path in prefixes(other.path)}
        for level, path in enumerate(prefixes(request.path)):
            if path not in open_paths:
                self.idle[level].append(path)
        if request.client not in {other.client for other in self.here}:
            self.idle_clients.append(request.client)

    @property
    def here(self) -> list[Request]:
        return [*self.waiting, *self.running]

    def forget(self) -> None:
        """Forget the idle accounts beyond `most_idle` of each level, with all below them."""
        for level in range(len(self.levels)):
            while len(self.idle[level]) > self.most_idle:
                path = self.idle[level].pop(0)
                self.idle = [[each for each in paths if each[: level + 1] != path] for paths in self.idle]
        self.idle_clients = self.idle_clients[max(0, len(self.idle_clients) - self.most_idle) :]

    @invariant()
    def accounts_are_those_of_requests_and_the_latest_idle_ones(self) -> None:
        self.tree.check_invariants(self.waiting, self.running)
        known = {path for request in self.here for path in prefixes(request.path)}
        assert {account.path for account in self.tree} == known.union(*self.idle)
        assert len(self.tree) == len(known.union(*self.idle))
        clients = {request.client for request in self.here}.union(self.idle_clients)
        if not self.levels.are_clients_highest:
            assert {account.name for account in self.tree.clients} == clients
        for client in CLIENTS:
            account, waiting = self.tree.by_client.get(client), [each for each in self.waiting if each.client == client]
            running = [each for each in self.running if each.client == client]
            found = (0, 0) if account is None else (account.waiting, account.running)
            assert found == (len(waiting), len(running))

    @invariant()
    def shares_are_by_weight_of_those_who_are_here(self) -> None:
        here = {path for request in self.here for path in prefixes(request.path)}
        for request in self.here:
            share, over, is_alone = PAGES, list[int](), True
            for account in reversed(request.account.lineage):
                siblings = {other for other in here if other[:-1] == account.path[:-1]}
                share = share * self.latest[account.path] // sum(self.latest[other] for other in siblings)
                held = sum(len(each.pages) - n for each, n in self.running.items() if account in each.account.lineage)
                is_alone = is_alone and siblings == {account.path}
                if not is_alone:
                    over.append(held - share)
                assert account.share(PAGES) == share
                assert account.pages == held
            for pages in (0, 1, PAGES):
                beyond = request.account.beyond_share(PAGES, pages)
                assert beyond == max([0, *(each + pages for each in over)])

    @invariant()
    def the_longest_queue_is_found_by_a_search_of_all_requests(self) -> None:
        droppable = [request for request in self.waiting if not request.is_exempt and not request.preemptions]
        assert self.tree.droppable == len(droppable)
        never = Counter(request.path[0] for request in self.waiting if request.is_exempt)
        assert self.tree.exempt == never.total()
        assert {name: account.exempt for name, account in self.tree.root.members.items() if account.exempt} == never
        for client in (*CLIENTS, "new"):
            for exempt in (False, True):
                probe = request_of(client, self.arrivals, exempt=exempt, interaction="i")
                probe.path = self.tree.path(probe)
                expected, chosen = longest_leaves(droppable, probe), self.tree.leaf_to_drop_from(probe)
                assert chosen in expected if expected else chosen is None


class TreeOfTenantsMachine(TreeMachine):
    """The same with three levels."""

    levels = FairnessLevels.parse("tenant,user,interaction")


class TreeOfTenantsAloneMachine(TreeMachine):
    """The same where clients are no level."""

    levels = FairnessLevels.parse("tenant")


TestTree = TreeMachine.TestCase
TestTreeOfTenants = TreeOfTenantsMachine.TestCase
TestTreeOfTenantsAlone = TreeOfTenantsAloneMachine.TestCase
TestTree.settings = TestTreeOfTenants.settings = TestTreeOfTenantsAlone.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)


def longest_leaves(droppable: list[Request], request: Request) -> set[Account]:
    """Return every leaf that may be chosen; the tree decides ties between accounts."""
    own = request.path
    for depth in range(len(own)):
        siblings = [other for other in droppable if other.path[:depth] == own[:depth]]
        of_own = [other for other in siblings if other.path[depth] == own[depth]]
        longest = longest_below(siblings, depth)
        if longest and len(longest[0]) > (0 if request.is_exempt else len(of_own)):
            for below in range(depth + 1, len(own)):
                longest = [queue for above in longest for queue in longest_below(above, below)]
            return {queue[-1].account for queue in longest}
    return set()


def longest_below(requests: list[Request], depth: int) -> list[list[Request]]:
    """Return the longest queues of the accounts at `depth` in the paths of `requests`."""
    queues: dict[str, list[Request]] = {}
    for request in requests:
        queues.setdefault(request.path[depth], []).append(request)
    most = max(map(len, queues.values()), default=0)
    return [queue for queue in queues.values() if len(queue) == most]


def test_a_tenant_with_many_users_loses_a_request_of_its_longest_user() -> None:
    tree = AccountTree(FairnessLevels.parse("tenant,user"))
    many = [submit(tree, request_of(f"many/{number}", number)) for number in (0, 1, 2, 3, 0)]
    for number in range(5, 8):
        submit(tree, request_of("few/one", number))

    def drops_from(client: str) -> Account | None:
        probe = request_of(client, 9)
        probe.path = tree.path(probe)
        return tree.leaf_to_drop_from(probe)

    assert drops_from("few/one") is many[0].account, "few/one has the longest queue of a user"
    assert drops_from("many/1") is many[0].account, "within the longest tenant"
    assert drops_from("many/0") is None


def test_a_request_that_ran_at_another_worker_is_never_dropped() -> None:
    tree, moved = AccountTree(), request_of("a", 1)
    moved.is_exempt = True
    submit(tree, moved)
    assert (tree.exempt, tree.droppable) == (1, 0)


@pytest.mark.parametrize(
    ("levels", "same"), [("user", True), ("user,interaction", True), ("tenant,user", False), ("tenant", False)]
)
def test_a_client_has_one_account_with_the_weight_of_the_highest_level(levels: str, same: bool) -> None:
    tree, request = AccountTree(FairnessLevels.parse(levels)), request_of("t/u", 1)
    request.weight, request.user_weight = 2000, 500
    submit(tree, request)
    client = tree.by_client.get("t/u")
    assert client is request.accounts[-1]
    assert client is not None
    assert (client.name, client.weight, client.waiting) == ("t/u", 2000, 1)
    assert (client is request.account.lineage[-1]) == same
    assert request.accounts[: len(request.path)] == request.account.lineage


def test_a_balance_is_found_by_its_path_and_is_that_of_a_newcomer_where_there_is_no_account() -> None:
    tree = AccountTree(FairnessLevels.parse("tenant,user"), most_idle=0, quantum=10)
    for client, micro in (("t/u", 7), ("t/v", 3)):
        request = submit(tree, request_of(client, 1))
        request.account.charge(micro)
        request.account.lineage[-1].charge(2 * micro)
    tree.withdrawn(request)
    submit(tree, request_of("t/w", 2))
    paths = (("t",), ("t", "t/u"), ("t", "t/v"), ("u",), ("u", "u/u"), ("t", "t/u", "i"))
    assert [tree.balance(path) for path in paths] == [-20, -7, -3, 0, 0, 0]
