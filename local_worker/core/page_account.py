"""The pages of a tenant, a user or an interaction, for which it pays with its part of the KV cache."""

from collections import OrderedDict
from collections.abc import Sequence

from local_worker.core.accounts.account import Path
from local_worker.core.client_pages import ClientPages
from serving.core.priority_queue import PriorityQueue
from serving.cost import WEIGHT_ONE
from serving.names import tenant_of

MOST_ENDS = 16  # number of prompts of a client that the next one may repeat
PAGE = 1 << 20  # what one page costs: users of the same page pay parts of it


class PageAccount:
    """What one account pays for, and its place among its siblings.

    An account is here while it is entitled to a part. The sums of those above are kept up to date.
    """

    __slots__ = (
        "above",
        "gives",
        "held",
        "idle",
        "is_here",
        "kept",
        "members",
        "name",
        "parent",
        "path",
        "running",
        "spares",
        "weight",
        "weights",
    )

    def __init__(self, path: Path = ()) -> None:
        self.path = path
        self.name = "\0".join(path)
        self.parent: PageAccount | None = None
        self.above: tuple[PageAccount, ...] = ()  # the root comes last
        self.members: dict[str, PageAccount] = {}  # the accounts below that are here
        self.weights = 0  # sum of the members' weights
        self.weight = 0
        self.is_here = False
        self.held = 0  # what it pays for, in units of PAGE
        self.idle = 0  # number of pages without a running request that nobody beside the account has used
        self.kept = 0  # number of its idle pages that it is likely to use again
        self.running = 0  # number of running requests
        self.gives = PriorityQueue()  # members with pages that they are unlikely to need; who pays most comes first
        self.spares = PriorityQueue()  # the other members with pages to give

    def enter(self, parent: "PageAccount", weight: int) -> None:
        """Become entitled to a part of what `parent` is entitled to, by `weight`; or change the weight."""
        if not self.is_here:
            if self.parent is not None:
                self.remove()
            self.belong_to(parent)
            self.is_here, self.weight = True, 0
        parent.weights += weight - self.weight
        self.weight = weight

    def leave(self, gone: "PageAccount") -> None:
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
        self.parent.gives.discard(self.name)
        self.parent.spares.discard(self.name)

    def belong_to(self, parent: "PageAccount") -> None:
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

    def count_running(self, requests: int) -> None:
        """Count `requests` more that run, or less if it is negative."""
        self.running += requests
        for account in self.above:
            account.running += requests

    def part(self, pages: int) -> int:
        """Return the account's part of `pages`, by the weights of all accounts that are here, in units of PAGE."""
        units = pages * PAGE
        for above, account in zip(reversed(self.above), (*reversed(self.above[:-1]), self), strict=True):
            units = -(-units * account.weight // above.weights)
        return units

    def beyond(self, pages: int) -> int:
        """Return the number of pages, the last one perhaps in part, that it pays for beyond its part of `pages`."""
        return max(0, -((self.part(pages) - self.held) // PAGE))

    def rank(self) -> None:
        """Rank the account, and those above it, by what they pay for over their weights."""
        account = self
        while (parent := account.parent) is not None:
            name = account.name
            ranks, others = (parent.gives, parent.spares) if account.has_unneeded() else (parent.spares, parent.gives)
            others.discard(name)
            if ranks is parent.gives or account.has_pages():
                ranks.put(name, account._key)
            else:
                ranks.discard(name)
            account = parent

    def has_unneeded(self) -> bool:
        """Return whether it can give a page that it is unlikely to need."""
        return len(self.gives) > 0

    def has_pages(self) -> bool:
        """Return whether it can give a page, if need be one that it is likely to need."""
        return len(self.spares) > 0

    @property
    def _key(self) -> tuple[int, ...]:
        return (-(self.held * WEIGHT_ONE // self.weight),)

    def check_rank(self) -> None:
        """Raise AssertionError unless the account is ranked as what it pays for says."""
        if self.parent is None:
            return
        key, gives = self._key, self.has_unneeded()
        ranked = self.parent.gives.key(self.name), self.parent.spares.key(self.name)
        expected = (key, None) if gives else (None, key if self.has_pages() else None)
        assert ranked == expected, f"{self.path}: ranked by {ranked} in place of {expected}"


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

    def count_idle(self, pages: int) -> None:
        """Count `pages` more that nobody else has used and no running request uses, or less if it is negative."""
        self.idle += pages
        more = min(self.idle, self._likely) - self.kept
        self.kept += more
        for account in self.above:
            account.idle += pages
            account.kept += more

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

    def ended(self) -> None:
        """Expect that the next prompt repeats as much as the last ones have."""
        self._likely = min(1000, 8 * self._repeated) * self.idle // 1000
        self.count_idle(0)

    def has_unneeded(self) -> bool:
        """See PageAccount."""
        return self.pages.gives_unneeded() and self.idle > self._likely

    def has_pages(self) -> bool:
        """See PageAccount."""
        return self.pages.gives_unneeded() or self.pages.has_spared

    @property
    def _key(self) -> tuple[int, ...]:
        return -(self.held * WEIGHT_ONE // self.weight) if self.is_here else 0, self.used

    def check_kept(self) -> None:
        """Raise AssertionError unless the number of pages that it is likely to need is right."""
        assert self.kept == min(self.idle, self._likely), f"{self.path}: {self.kept} of {self.idle} pages are needed"
