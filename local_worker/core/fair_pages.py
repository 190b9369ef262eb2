"""Who pays for which page of the KV cache, and whose page is evicted: of the account that pays for most by weight.

Each account of the fairness tree is entitled to a part of the pages by its weight. A victim is found by a descent from
the root: at each level the account that pays for most by weight, as long as it is above its part. Who has left goes
before all others, and before that what an interaction alone has used that has ended. Nobody within its part loses a
page while another one is above its part and has one to give. See docs/fairness.md, "Pages".
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from operator import attrgetter

from local_worker.core.accounts.account import Path
from local_worker.core.client_pages import InteractionPages
from local_worker.core.page_account import PAGE, ClientAccount, PageAccount, PageGroup, SharedPage
from local_worker.core.page_report import EvictionCounts, PageReport, shares_of
from local_worker.core.page_tree import PageTree
from local_worker.core.request import CachedBlock, Request

MOST_AT_ONCE = 16  # pages that one client gives before it is compared with others again


class Leaving:
    """What running requests release when they leave."""

    def __init__(self) -> None:
        self.uses = Counter[int]()  # page -> number of the requests that use it
        self.free = 0  # number of pages that become free
        self.freed = Counter[PageAccount]()  # account -> number of these for which it pays
        self.idle = 0  # number of pages that become idle
        self.running = Counter[PageAccount]()  # account -> number of the requests
        self.pages = Counter[PageAccount]()  # account -> number of pages that become idle and that nobody else has used
        self.unneeded = Counter[PageAccount]()  # account -> number of idle pages that they may need when they wait

    def of(self, account: PageAccount) -> int:
        """Return the number of idle pages that nobody beside `account` has used."""
        return account.idle + self.pages.get(account, 0)

    def unlikely(self, account: PageAccount) -> int:
        """Return the number of idle pages that nobody of `account` is likely to use again."""
        return account.idle - account.kept - self.unneeded.get(account, 0)


NOBODY = Leaving()


class FairPages:
    """The accounts of `pages` pages, of which `references` has the numbers of running requests.

    `blocks` holds the blocks of all published pages, `by_digest` the same by their digests. Without `is_fair` all
    clients have one account, whose least recently used page is evicted first.
    """

    def __init__(
        self,
        references: list[int],
        blocks: Mapping[int, CachedBlock],
        by_digest: Mapping[int, CachedBlock],
        is_fair: bool = True,
    ) -> None:
        self._references = references
        self._units = len(references) * PAGE
        self._is_fair = is_fair
        self._tree = PageTree(blocks, by_digest)
        # By page: who pays for it; None for the pages that are not published, and those for which nobody pays.
        self._payers: list[ClientAccount | SharedPage | None] = [None] * len(references)
        self._accounts: dict[Request, ClientAccount] = {}  # of requests that wait or run
        self._interactions = InteractionPages(len(references))
        self._unpaid: dict[int, None] = {}  # pages of interactions that have ended; those that follow others come first
        self._uses = 0
        self._evicted = EvictionCounts()
        self.idle = 0  # number of published pages that no running request uses

    def advance(self, now: float) -> None:
        """Let accounts leave that had no request for long; see PageTree."""
        self._tree.advance(now)

    def waits(self, request: Request) -> None:
        """Give up last what `request`, which waits, matches now."""
        account = self._account(request)
        if self._is_fair:
            account.pages.spare(request)
            account.rank_by_need()

    def matched(self, request: Request) -> None:
        """Give up last what `request` matches now, if it waits."""
        account = self._accounts.get(request)
        if account is not None and account.pages.is_waiting(request) and account.pages.spare(request):
            account.rank_by_need()

    def withdrawn(self, request: Request) -> None:
        """Forget a request that has waited."""
        account = self._accounts.pop(request, None)
        if account is not None:
            account.pages.left(request)
            account.rank_by_need()
            self._tree.ended(account)

    def _account(self, request: Request) -> ClientAccount:
        account = self._accounts.get(request)
        if account is None:
            path: Path = request.path if self._is_fair else ()
            account = self._accounts[request] = self._tree.arrived(request, path or ("",))
        return account

    def admitted(self, request: Request, matched: Sequence[int], fresh: int) -> None:
        """Charge for the pages of `request`, which runs: those that it matched, and `fresh` others."""
        account = self._account(request)
        if not request.preemptions:
            account.asked(request.digests, len(matched))
        idle = self._use(request, account, matched)
        account.pages.left(request)  # now that it spares none of the pages that it uses
        account.add(fresh * PAGE, -idle, 1)
        self._note_use(account)
        account.rank()

    def grew(self, request: Request, pages: int) -> None:
        """Charge for `pages` more of a running `request`."""
        account = self._accounts[request]
        account.pay(pages * PAGE)
        account.rank()

    def published(self, request: Request, pages: Sequence[int]) -> None:
        """Record that `pages`, which `request` has filled, are available to others."""
        account = self._accounts[request]
        account.pages.use(pages)
        for page in pages:
            self._payers[page] = account
        self._interactions.published(request, pages)

    def adopted(self, request: Request, page: int) -> None:
        """Record that `request` uses the published `page` in place of one of its own."""
        account = self._accounts[request]
        account.add(-PAGE, -self._use(request, account, (page,)), 0)
        account.rank()

    def _use(self, request: Request, account: ClientAccount, pages: Sequence[int]) -> int:
        """Let a running `request` of `account` use published `pages`; return how many of them were idle and its own."""
        references, payers, own = self._references, self._payers, 0
        self._interactions.used(request, pages)
        if self._unpaid:
            self._pay_again(account, pages)
        relieved: dict[ClientAccount, None] = {}
        for page in pages:
            payer, count = payers[page], references[page]
            references[page] = count + 1
            if payer is account:
                own += not count
                continue
            self.idle -= not count
            if isinstance(payer, ClientAccount):
                if not count:
                    payer.add(0, -1, 0)
                payer = payers[page] = SharedPage(payer)
            assert payer is not None, "somebody pays for what is published"
            if (other := payer.used(account)) is not None:
                relieved[other] = None
        self.idle -= own
        account.pages.use(pages)
        for other in relieved:
            other.rank_by_need()
        return own

    def _pay_again(self, account: ClientAccount, pages: Sequence[int]) -> None:
        """Let `account` pay for those of `pages`, a chain or the next page of one, for which nobody does."""
        unpaid, count = self._unpaid, 0
        for page in reversed(pages):
            if page not in unpaid:
                break  # nor are those before, since they are given up later
            del unpaid[page]
            self._payers[page] = account
            count += 1
        if count:
            account.add(count * PAGE, count, 0)

    def preempted(self, request: Request) -> None:
        """Release the published pages of `request`, which runs no longer."""
        account = self._accounts.pop(request)
        self._ended(request, account, self._release(request, account))

    def finished(self, request: Request) -> None:
        """Release the published pages of `request`, which has ended, maybe with its interaction."""
        account = self._accounts.pop(request)
        idle = self._release(request, account)
        if request.ends_interaction and self._is_fair:
            self._end_interaction(request, account)
        self._ended(request, account, idle)

    def _release(self, request: Request, account: ClientAccount) -> int:
        """Release the published pages of `request`, the last one first; return how many of those that nobody else has
        used become idle."""
        references, payers, idle, own = self._references, self._payers, 0, 0
        pages = request.pages[request.shared - 1 :: -1] if request.shared else []
        for page in pages:
            count = references[page] = references[page] - 1
            if not count:
                idle += 1
                own += payers[page] is account  # any other payer shares the page, since a user of it pays
        self.idle += idle
        account.pages.release(pages)
        return own

    def _ended(self, request: Request, account: ClientAccount, idle: int) -> None:
        """Let `account` pay no longer for the private pages of `request`, which runs no longer; `idle` pages more of
        its own are idle."""
        account.ended((request.shared - len(request.pages)) * PAGE, idle)
        self._note_use(account)
        account.rank_by_need()
        self._tree.ended(account)

    def _end_interaction(self, request: Request, account: ClientAccount) -> None:
        """Let `account` pay no longer for idle pages that the interaction of `request` alone has used."""
        unneeded = [
            page
            for page in self._interactions.ended(request)
            if not self._references[page] and self._payers[page] is account
        ]
        for page in unneeded:
            self._payers[page] = None
            account.pages.drop(page)
            self._unpaid[page] = None
        account.add(-len(unneeded) * PAGE, -len(unneeded), 0)

    def _note_use(self, account: ClientAccount) -> None:
        self._uses += 1
        account.used = self._uses

    def available(self, request: Request, most: int, leaving: Leaving = NOBODY) -> int:
        """Return how many idle pages `request` may take when those `leaving` have left, or a number of at least `most`.

        While an account of its path has running requests, it takes nothing from siblings within their parts but what
        they are unlikely to need. The only request of an account, or of the background class, may take any page: it
        could never run otherwise.
        """
        root, gone, account = self._tree.root, self._tree.gone, self._account(request)
        count, units = leaving.of(gone) + len(self._unpaid), self._units
        if not account.is_here:
            if gone.running == leaving.running.get(gone, 0):
                return self.idle + leaving.idle
            return count + max(leaving.unlikely(root), self._surplus(root, account, units, most - count, leaving))
        running: list[tuple[PageGroup, PageAccount]] = []
        for group, mine in zip(reversed(account.above), (*reversed(account.above[:-1]), account), strict=True):
            if mine.running == leaving.running.get(mine, 0):
                if group is root:
                    return self.idle + leaving.idle
                count += leaving.of(group)
                break
            running.append((group, mine))
        else:
            count += leaving.of(account)
        for group, mine in running:
            if count >= most:
                break
            unlikely = leaving.unlikely(group) - leaving.unlikely(mine)
            count += max(unlikely, self._surplus(group, mine, units, most - count, leaving))
            units = mine.part(units)
        return count

    def _surplus(self, group: PageGroup, mine: PageAccount, units: int, most: int, leaving: Leaving) -> int:
        """Return how many idle pages siblings of `mine` have above their parts of the `units` of `group`, up to about
        `most`."""
        count = sum(
            min(leaving.of(member), max(0, member.beyond(units) - leaving.freed[member]))
            for member in leaving.pages
            if member.parent is group and member is not mine
        )
        for ranks in (group.gives, group.spares):
            for member in ranks:
                beyond = member.beyond(units)
                if not beyond or count >= most:
                    break
                if member is not mine and member not in leaving.pages:
                    count += min(member.idle, beyond)
        return count

    def leave(self, leaving: Leaving, request: Request, kept: Collection[int]) -> None:
        """Count in `leaving` a running `request`; the pages that are `kept` do not become idle."""
        account, uses, references = self._accounts[request], leaving.uses, self._references
        uses.update(request.pages)
        freed = [
            page for page in request.pages[: request.shared] if uses[page] == references[page] and page not in kept
        ]
        private = len(request.pages) - request.shared
        leaving.free += private
        leaving.idle += len(freed)
        own = sum(self._payers[page] is account for page in freed)
        unneeded = 0 if account in leaving.running else account.idle - account.kept
        for each in (account, *account.above):
            leaving.unneeded[each] += unneeded
            leaving.running[each] += 1
            leaving.freed[each] += private
            leaving.pages[each] += own

    def evict(self, request: Request | None, count: int) -> list[int]:
        """Return the next `count` pages to evict, for `request` if it is given; so many must be idle. A client gives
        several in a row if it stays above its part until it gives the last one."""
        taker = None if request is None else self._account(request)
        found = [*islice(self._unpaid, count)] if self._unpaid else []
        for page in found:
            del self._unpaid[page]
        while len(found) < count:
            account, most = self._victim(taker)
            given = self._give_up(account, min(count - len(found), most))
            account.rank_by_need()
            if taker is not None and given:
                self._evicted.count(taker.tenant, account.tenant, len(given))
            if not account.is_here:
                self._tree.forget_empty(account)
            found += given
        self.idle -= count
        return found

    def _victim(self, taker: ClientAccount | None) -> tuple[ClientAccount, int]:
        """Return the account that gives pages up, and how many before others are looked at: more than one only as long
        as it is above all its parts."""
        gone, units, most = self._tree.gone, self._units, MOST_AT_ONCE
        account = (gone.gives.first() or gone.spares.first() if gone.members else None) or self._tree.root
        while isinstance(account, PageGroup):
            account, units = self._furthest(account, units, taker)
            most = min(most, -((units - account.held) // PAGE))
        assert isinstance(account, ClientAccount), "a path ends at a client"
        return account, max(1, most)

    def _furthest(self, group: PageGroup, units: int, taker: ClientAccount | None) -> tuple[PageAccount, int]:
        """Return the member of `group`, of which `units` are its part, that gives a page, and its part: the furthest
        above its part, or else that of `taker`."""
        found = None
        for ranks in (group.gives, group.spares):
            if ranks.entries and (member := ranks.first()) is not None:
                if member.held > (part := member.part(units)):
                    return member, part
                found = found or member
        mine = next((each for each in (taker, *taker.above) if each.parent is group), None) if taker else None
        if mine is not None and mine.ranked is not None:
            return mine, mine.part(units)
        assert found is not None, "a group above pages to give has a member with some"
        return found, found.part(units)

    def _give_up(self, account: ClientAccount, most: int) -> list[int]:
        """Let `account` give up at most `most` pages, either some that it is unlikely to need or others; return those
        that nobody else has used."""
        payers, found, unneeded = self._payers, list[int](), account.unneeded
        pages = account.pages.pop_unneeded(min(most, unneeded)) if unneeded else account.pages.pop(most)
        for page in pages:
            payer = payers[page]
            if isinstance(payer, SharedPage):
                self._pass_on(page, payer, account)
            else:
                payers[page] = None
                found.append(page)
        self._interactions.evicted(found)
        account.add(-len(found) * PAGE, -len(found), 0)
        return found

    def _pass_on(self, page: int, payer: SharedPage, account: ClientAccount) -> None:
        """Let the others that have used `page` pay for it, since `account` gives it up."""
        heir = payer.given_up(account)
        if len(payer) == 1:
            self._payers[page] = heir
            if not self._references[page]:
                heir.add(0, 1, 0)
        heir.rank()

    def report(self) -> PageReport:
        """Return who pays for the pages, and all evictions so far. O(clients, and accounts that have left)."""
        pages = len(self._references)
        tenants, clients = (shares_of(self._tree.named(attrgetter(name)), pages) for name in ("tenant", "client"))
        return PageReport(tenants, clients, self._evicted.all())

    def check_invariants(self, running: Sequence[Request]) -> None:
        """Raise AssertionError unless each page is paid for by those that have used it, and all sums are right."""
        held = dict.fromkeys(self._tree, 0)
        idle = dict.fromkeys(self._tree, 0)
        for request in running:
            held[self._accounts[request]] += (len(request.pages) - request.shared) * PAGE
        for account in self._tree:
            for page in account.pages:
                payer = self._payers[page]
                if isinstance(payer, SharedPage):
                    payer.check_invariants()
                    assert len(payer) > 1, f"one client shares page {page}"
                held[account] += payer.part(account) if isinstance(payer, SharedPage) else PAGE
                idle[account] += payer is account and not self._references[page]
        for account in self._tree:
            assert account.held == held[account], f"{account.path} pays {account.held}, not {held[account]}"
            assert account.idle == idle[account], f"{account.path}: {account.idle} idle, not {idle[account]}"
        private = sum(len(request.pages) - request.shared for request in running)
        paid = {page: payer for page, payer in enumerate(self._payers) if payer is not None}
        shared = [payer for payer in paid.values() if isinstance(payer, SharedPage)]
        owed = (len(paid) - len(shared) + private) * PAGE + sum(page.paid for page in shared)
        assert sum(held.values()) == owed, f"{sum(held.values())} is paid for pages that cost {owed}"
        idle_pages = sum(not self._references[page] for page in paid) + len(self._unpaid)
        assert self.idle == idle_pages, f"{self.idle} pages are idle, not {idle_pages}"
        assert not any(self._references[page] for page in self._unpaid), "nobody pays for a page that is used"
        assert not self._unpaid.keys() & paid.keys(), "somebody pays for the page of an ended interaction"
        self._interactions.check_invariants()
        self._tree.check_invariants()
