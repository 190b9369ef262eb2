"""The pages for which a tenant, a user or an interaction pays with its part of the KV cache, alone or with others."""

from collections import OrderedDict
from collections.abc import Sequence

from local_worker.core.accounts.account import Path
from local_worker.core.client_pages import ClientPages
from serving.core.priority_queue import PageRanks
from serving.cost import WEIGHT_ONE
from serving.names import tenant_of

MOST_ENDS = 16  # number of prompts of a client that the next one may repeat
PAGE = 1 << 20  # what one page costs: users of the same page pay parts of it
USES = 64  # bits of the number of a use


class PageAccount:
    """What one account pays for, and its place among its siblings.

    An account is here while it is entitled to a part. The sums of those above are kept up to date.
    """

    __slots__ = ("above", "held", "idle", "is_here", "kept", "name", "parent", "path", "ranked", "running", "weight")

    def __init__(self, path: Path = ()) -> None:
        self.path = path
        self.name = "\0".join(path)
        self.parent: PageGroup | None = None
        self.above: tuple[PageGroup, ...] = ()  # the root comes last
        self.weight = 0
        self.is_here = False
        self.held = 0  # what it pays for, in units of PAGE
        self.idle = 0  # number of pages without a running request that nobody beside the account has used
        self.kept = 0  # number of its idle pages that it is likely to use again
        self.running = 0  # number of running requests
        self.ranked: PageRanks[PageAccount] | None = None  # those of the account above among which it is

    @property
    def first_leaf(self) -> "ClientAccount":
        """An account at the end of a path below."""
        raise NotImplementedError

    def ranks(self, parent: "PageGroup") -> "PageRanks[PageAccount] | None":
        """Return those of `parent` among which it belongs: who can give a page that it is unlikely to need, or others
        that can give one; None if it can give none."""
        raise NotImplementedError

    def enter(self, parent: "PageGroup", weight: int) -> bool:
        """Become entitled to a part of what `parent` is entitled to, by `weight`, or change the weight; return False if
        it had this part."""
        if self.is_here and self.weight == weight:
            return False
        if not self.is_here:
            if self.parent is not None:
                self.remove()
            self.belong_to(parent)
            self.is_here, self.weight = True, 0
        parent.weights += weight - self.weight
        self.weight = weight
        return True

    def leave(self, gone: "PageGroup") -> None:
        """Give up the part, and belong to those that are `gone`."""
        parent = self.parent
        assert parent is not None, "the root never leaves"
        self.is_here = False
        parent.weights -= self.weight
        self.remove()
        self.belong_to(gone)

    def remove(self) -> None:
        """Be no member of the account above any longer."""
        assert self.parent is not None, "the root is in no group"
        del self.parent.members[self.name]
        if self.ranked is not None:
            self.ranked.discard(self.name)
            self.ranked = None

    def belong_to(self, parent: "PageGroup") -> None:
        """Be a member of `parent`, and count what the account pays for in it and those above it from now on."""
        held, idle, kept = self.held, self.idle, self.kept
        for account in self.above:
            account.held -= held
            account.idle -= idle
            account.kept -= kept
        self.parent, self.above = parent, (parent, *parent.above)
        parent.members[self.name] = self
        for account in self.above:
            account.held += held
            account.idle += idle
            account.kept += kept

    @property
    def highest(self) -> "PageAccount":
        """The account of its path below the root."""
        return self if len(self.above) < 2 else self.above[-2]

    def pay(self, units: int) -> None:
        """Pay for `units` of PAGE more, or less if it is negative."""
        self.held += units
        for account in self.above:
            account.held += units

    def part(self, units: int) -> int:
        """Return the account's part, by the weights of its siblings, of the `units` of PAGE to which the account above
        it is entitled."""
        assert self.parent is not None, "the root has no siblings"
        return -(-units * self.weight // self.parent.weights)

    def part_of_all(self, pages: int) -> int:
        """Return the account's part of all `pages`, by the weights of all accounts that are here, in units of PAGE."""
        units = pages * PAGE
        for account in (*reversed(self.above[:-1]), self):
            units = account.part(units)
        return units

    def beyond(self, units: int) -> int:
        """Return the number of pages, the last one perhaps in part, that it pays for beyond its part of `units`."""
        return max(0, -((self.part(units) - self.held) // PAGE))

    def rank(self) -> None:
        """Rank the account, and those above it, by what they pay for over their weights: they may pay for more."""
        account, has_moved = self, True
        while (parent := account.parent) is not None:
            has_moved = has_moved and account._moves(parent)
            if account.ranked is not None:
                account.ranked.put(account)
            account = parent

    def rank_by_need(self) -> None:
        """Rank the account, and those above it, when it has or needs other pages and pays for no more."""
        account = self
        while (parent := account.parent) is not None and account._moves(parent):
            if account.ranked is not None:
                account.ranked.put(account)
            account = parent

    def _moves(self, parent: "PageGroup") -> bool:
        """Choose those of `parent` among which to be ranked; return False if they are the ones from before."""
        before, self.ranked = self.ranked, self.ranks(parent)
        if before is self.ranked:
            return False
        if before is not None:
            before.discard(self.name)
        return True

    @property
    def key(self) -> int:
        """Its place among its siblings: who pays for most by weight comes first."""
        return -(self.held * WEIGHT_ONE // self.weight)

    def check_rank(self) -> None:
        """Raise AssertionError unless the account is ranked as what it pays for says."""
        if self.parent is None:
            return
        both, right = (self.parent.gives, self.parent.spares), self.ranks(self.parent)
        found, expected = [[*ranks].count(self) for ranks in both], [ranks is right for ranks in both]
        assert found == expected, f"{self.path}: ranked {found} times, not {expected}"


class PageGroup(PageAccount):
    """An account with others below it."""

    __slots__ = ("gives", "members", "spares", "weights")

    def __init__(self, path: Path = ()) -> None:
        super().__init__(path)
        self.members: dict[str, PageAccount] = {}  # the accounts below that are here
        self.weights = 0  # sum of the members' weights
        self.gives = PageRanks(self.members)  # members with pages that they are unlikely to need
        self.spares = PageRanks(self.members)  # the other members with pages to give

    @property
    def first_leaf(self) -> "ClientAccount":
        return next(iter(self.members.values())).first_leaf

    def ranks(self, parent: "PageGroup") -> PageRanks[PageAccount] | None:
        return parent.gives if self.gives.entries else parent.spares if self.spares.entries else None


class ClientAccount(PageAccount):
    """The account at the end of a path, with the pages that it has used.

    It is likely to need the prefixes of its waiting requests, and its idle pages if its prompts repeat earlier ones or
    find what others have computed: all pages if that is an eighth of the prompts, and fewer below.
    """

    __slots__ = ("_ends", "_likely", "_repeated", "client", "pages", "requests", "tenant", "used")

    def __init__(self, path: Path, client: str, pages: ClientPages) -> None:
        super().__init__(path)
        # Whom reports name: the client, its tenant where the accounts of tenants are the lowest, or nobody where all
        # have one account.
        self.client = next((name for name in (client, tenant_of(client)) if name in path), "")
        self.tenant = tenant_of(self.client)
        self.pages = pages
        self.requests = 0  # number of waiting and running requests
        self.used = 0  # number of its last use
        self._ends: OrderedDict[int, None] = OrderedDict()  # digests of the last blocks of the latest prompts
        self._repeated = 500  # of the blocks of the latest prompts, in thousandths: a moving average
        self._likely = 0  # number of its pages that it is likely to need, as of its last request

    @property
    def first_leaf(self) -> "ClientAccount":
        return self

    def add(self, units: int, idle: int, running: int) -> None:
        """Pay for `units` of PAGE more, and count `idle` pages more that nobody else has used and no running request
        uses, and `running` requests more; less if a number is negative."""
        self.held += units
        self.idle += idle
        self.running += running
        before, self.kept = self.kept, min(self.idle, self._likely)
        kept = self.kept - before
        for account in self.above:
            account.held += units
            account.idle += idle
            account.running += running
            account.kept += kept

    def asked(self, digests: Sequence[int], found: int) -> None:
        """Record a prompt with blocks of these `digests`, each of which stands for all blocks before it; so many were
        `found` cached."""
        if not digests:
            return
        blocks = range(len(digests), found, -1)
        repeated = next((count for count in blocks if digests[count - 1] in self._ends), found)
        self._repeated += (1000 * repeated // len(digests) - self._repeated) // 2
        self._ends[digests[-1]] = None
        if len(self._ends) > MOST_ENDS:
            self._ends.popitem(last=False)

    def ended(self, units: int, idle: int) -> None:
        """Count a running request less, and the others as `add` does; expect that the next prompt repeats as much as
        the last ones have."""
        self._likely = min(1000, 8 * self._repeated) * (self.idle + idle) // 1000
        self.add(units, idle, -1)

    @property
    def unneeded(self) -> int:
        """The number of its pages that it is unlikely to need."""
        unneeded = self.idle - self._likely
        return unneeded if unneeded > 0 and self.pages.gives_unneeded() else 0

    def ranks(self, parent: PageGroup) -> PageRanks[PageAccount] | None:
        if self.idle > self._likely and self.pages.gives_unneeded():
            return parent.gives
        return parent.spares if self.pages.gives_any else None

    @property
    def key(self) -> int:
        """Its place among its siblings, of whom those that have paid for the same give what was used longest ago."""
        return self.used - (self.held * WEIGHT_ONE // self.weight << USES) if self.is_here else self.used

    def check_kept(self) -> None:
        """Raise AssertionError unless the number of pages that it is likely to need is right."""
        assert self.kept == min(self.idle, self._likely), f"{self.path}: {self.kept} of {self.idle} pages are needed"


class SharedPage:
    """What each client pays for one page: together a whole page at least, and nobody more than a page. O(1) per call.

    A client that uses the page pays its equal part from then on, and the one that used it longest ago so much less, if
    that is not below its own part. When a client gives the page up, the one that used it last pays in its place.
    """

    __slots__ = ("_parts", "paid")

    def __init__(self, first: ClientAccount) -> None:
        self._parts: OrderedDict[ClientAccount, int] = OrderedDict({first: PAGE})  # who used it last comes last
        self.paid = PAGE  # by all together, in units of PAGE

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, account: ClientAccount) -> bool:
        return account in self._parts

    @property
    def last(self) -> ClientAccount:
        """The client that used it last."""
        return next(reversed(self._parts))

    def used(self, account: ClientAccount) -> ClientAccount | None:
        """Charge the equal part to `account`, which uses the page. Return the client that pays less for it now, the one
        that used the page longest ago, if there is one."""
        before = self._parts.pop(account, 0)
        others, equal = self.paid - before, PAGE // (len(self._parts) + 1)
        part = max(equal, PAGE - others)
        self._parts[account] = part
        account.pay(part - before)
        first = next(iter(self._parts))
        relief = min(others + part - PAGE, self._parts[first] - equal)
        self.paid = others + part
        if first is account or relief <= 0:
            return None
        self._parts[first] -= relief
        self.paid -= relief
        first.pay(-relief)
        return first

    def given_up(self, account: ClientAccount) -> ClientAccount:
        """Pass what `account` pays on to the client that used the page last, and return that."""
        part = self._parts.pop(account)
        heir = self.last
        before = self._parts[heir]
        after = min(PAGE, before + part)
        self._parts[heir] = after
        self.paid += after - before - part
        account.pay(-part)
        heir.pay(after - before)
        return heir

    def part(self, account: ClientAccount) -> int:
        """Return what `account` pays, in units of PAGE."""
        return self._parts[account]

    def check_invariants(self) -> None:
        """Raise AssertionError unless they pay for the page, and nobody for more."""
        assert self.paid == sum(self._parts.values()) >= PAGE, f"{self.paid} of {PAGE} is paid"
        assert all(0 < part <= PAGE for part in self._parts.values()), f"{self._parts}"
