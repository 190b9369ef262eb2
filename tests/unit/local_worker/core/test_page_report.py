"""What operators see of the cache: whose pages are whose, and for whom pages were evicted."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from local_worker.core.page_account import PAGE
from local_worker.core.page_report import MOST_NAMED, MOST_PAIRS, OTHERS, EvictedPages, PageShare
from local_worker.core.page_tree import WINDOW_SECONDS
from local_worker.core.prefix_cache import REPORT_SECONDS, PrefixCache
from local_worker.core.request import Request
from tests.unit.local_worker.core.test_fair_pages import blocks_of, request_of
from tests.unit.local_worker.engine.driving import BLOCK

PAGES = 12
LEVELS = [(1,), (0, 1), (0, 1, 2), (0, 2)]  # which of tenant, user and interaction have accounts


class Asking:
    """A cache of PAGES pages, at a time that goes on until the next report."""

    def __init__(self) -> None:
        self.cache = PrefixCache(PAGES, BLOCK)
        self.now = 0.0

    def begin(self, client: str, *blocks: int) -> Request:
        request = request_of((client.partition("/")[0], client), blocks)
        request.client = client
        assert self.cache.admit(request, request.budget) is not None
        self.cache.publish(request, len(request.tokens))
        return request

    def ask(self, client: str, *blocks: int) -> None:
        self.cache.finished(self.begin(client, *blocks))

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.cache.advance(self.now)

    def shares(self) -> tuple[PageShare, ...]:
        self.after(REPORT_SECONDS)
        return self.cache.report().clients


def test_a_report_tells_what_each_client_pays_for_and_its_part() -> None:
    asking = Asking()
    asking.ask("t/ann", 1, 2, 3, 4)
    asking.ask("t/bob", 1, 2, 7)
    running = asking.begin("u/eve", 20)
    assert asking.shares() == (("t/ann", 3.0, 3.0), ("t/bob", 2.0, 3.0), ("u/eve", 2.0, 6.0)), "two are shared"
    assert asking.cache.report().tenants == (("t", 5.0, 6.0), ("u", 2.0, 6.0))
    asking.cache.finished(running)
    asking.after(WINDOW_SECONDS)
    asking.ask("t/bob", 1, 2, 7)
    assert asking.shares() == (("t/ann", 3.0, 0.0), ("t/bob", 2.0, 12.0), ("u/eve", 1.0, 0.0)), "two have left"


def test_a_report_tells_for_which_tenant_pages_were_evicted_and_whose_they_were() -> None:
    asking = Asking()
    asking.ask("q/ann", *range(1, 7))
    for number in range(4):
        asking.ask("f/bob", *range(100 + 4 * number, 103 + 4 * number))
    asking.cache.flush()
    asking.shares()
    [evicted] = asking.cache.report().evicted
    assert evicted == EvictedPages("f", "f", 7), "a flood evicts its own pages, and a flush is for nobody"
    for number in range(8):
        asking.ask("f/bob", 200 + number)
    asking.ask("q/ann", *range(1, 7))
    asking.shares()
    assert asking.cache.report().evicted[1:] == (EvictedPages("q", "f", 3),)


def test_names_that_are_made_up_lengthen_no_report() -> None:
    asking = Asking()
    for number in range(3 * MOST_PAIRS):
        asking.ask(f"t{number}", number + 1)
    asking.after(REPORT_SECONDS)
    report = asking.cache.report()
    assert len(report.tenants) == len(report.clients) == MOST_NAMED + 1
    assert report.tenants[-1].name == OTHERS
    assert len(report.evicted) == MOST_PAIRS + 1
    assert sum(each.pages for each in report.evicted) == 3 * MOST_PAIRS - (PAGES - 1), "one is free"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(LEVELS))
def test_a_report_sums_up_what_all_accounts_of_a_client_pay_for(seed: int, levels: tuple[int, ...]) -> None:
    random, asking = Random(seed), Asking()
    for _ in range(60):
        client = f"t{random.randrange(3)}/u{random.randrange(3)}"
        names = client.partition("/")[0], client, f"{random.randrange(3)}"
        request = request_of(tuple(names[level] for level in levels), blocks_of(random))
        request.client, request.background = client, random.random() < 0.1
        if asking.cache.admit(request, request.budget) is not None:
            asking.cache.publish(request, len(request.tokens))
            asking.cache.finished(request)
        asking.after(random.choice((REPORT_SECONDS, WINDOW_SECONDS / 3)))
        held, parts = Counter[str](), Counter[str]()
        for leaf in asking.cache._fair._tree:
            held[leaf.client] += leaf.held
            parts[leaf.client] += leaf.part_of_all(PAGES) if leaf.is_here else 0
        shares = {share.name: share for share in asking.cache.report().clients}
        assert {name: share.pages * PAGE for name, share in shares.items()} == held
        assert all(abs(share.part - parts[name] / PAGE) < 0.01 for name, share in shares.items())
        asking.cache.check_invariants([])


def test_there_is_news_when_a_new_report_says_something_else() -> None:
    asking = Asking()
    asking.ask("t/ann", 1)
    asking.after(REPORT_SECONDS)
    assert asking.cache.has_new_report
    asking.cache.report()
    asking.after(REPORT_SECONDS)
    assert not asking.cache.has_new_report, "nothing has happened"
    asking.after(WINDOW_SECONDS)
    assert asking.cache.has_new_report, "the client has left"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_all_clients_together_pay_for_what_is_used_and_their_parts_are_all_pages(seed: int) -> None:
    random, asking = Random(seed), Asking()
    clients = [f"t{number % 5}/u{number}" for number in range(random.choice((4, 50)))]
    for _ in range(60):
        asking.ask(random.choice(clients), *blocks_of(random))
        if random.random() < 0.1:
            asking.after(random.uniform(1, 50))
        shares = asking.shares()
        asking.cache.check_invariants([])
        used = len(asking.cache.snapshot())
        for found in (shares, asking.cache.report().tenants):
            assert used - 0.01 <= sum(share.pages for share in found) <= used + 0.5 * len(clients)
            assert abs(sum(share.part for share in found) - PAGES) < 0.01 or not any(share.part for share in found)
