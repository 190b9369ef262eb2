"""The accounts that are entitled to a part of the KV cache: those with requests, and those that had one in the window.

Who pauses keeps its part, and who has left holds nothing for ever. The window is in seconds, so that nobody else's
requests can make it shorter.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping

from local_worker.core.accounts.account import Path
from local_worker.core.client_pages import ClientPages
from local_worker.core.page_account import ClientAccount, PageAccount, PageGroup
from local_worker.core.request import CachedBlock, Request

BACKGROUND = ""  # above the paths of the background class
WINDOW_SECONDS = 60.0  # for which an account without requests keeps its part
MOST_QUIET = 8192  # accounts without requests that keep their part; one takes about two kilobytes


class PageTree:
    """The tree of page accounts. Accounts that have left keep their pages until others take them.

    `blocks` holds the blocks of all published pages, `by_digest` the same by their digests.
    """

    def __init__(self, blocks: Mapping[int, CachedBlock], by_digest: Mapping[int, CachedBlock]) -> None:
        self._blocks = blocks
        self._by_digest = by_digest
        self.root = PageGroup()
        self.gone = PageGroup()  # above all that have left, and those of the background class, who are never here
        self._leaves: dict[Path, ClientAccount] = {}
        self._quiet: OrderedDict[ClientAccount, float] = OrderedDict()  # without requests -> time of the last one
        self._now = 0.0

    def __iter__(self) -> Iterator[ClientAccount]:
        """Iterate over the accounts at the ends of paths."""
        return iter(self._leaves.values())

    def named(self, name: Callable[[ClientAccount], str]) -> Iterator[tuple[str, PageAccount]]:
        """Iterate over the names of all leaves, each with an account above all or some that have it and no others."""
        groups = deque([self.root, self.gone])
        while groups:
            for member in groups.popleft().members.values():
                found = name(member.first_leaf)
                if isinstance(member, PageGroup) and found not in member.path:
                    groups.append(member)
                else:
                    yield found, member

    def arrived(self, request: Request, path: Path) -> ClientAccount:
        """Count a new `request` of the account at the end of `path`, and return that."""
        path = (BACKGROUND, *path) if request.background else path
        leaf = self._leaves.get(path)
        if leaf is None:
            leaf = self._leaves[path] = ClientAccount(path, request.client, ClientPages(self._blocks, self._by_digest))
            if request.background:
                leaf.belong_to(self.gone)
        self._quiet.pop(leaf, None)
        leaf.requests += 1
        if not request.background:
            self._enter(leaf, request)
        return leaf

    def _enter(self, leaf: ClientAccount, request: Request) -> None:
        parent, weight, changed = self.root, request.weight, False
        for account in reversed(leaf.above[:-1]) if leaf.is_here else self._above(leaf.path):
            changed |= account.enter(parent, weight)
            parent, weight = account, request.user_weight
        if leaf.enter(parent, weight) or changed:
            leaf.rank()

    def _above(self, path: Path) -> Iterator[PageGroup]:
        """Yield the accounts above the end of `path` from the root's member on, new ones where there are none."""
        group = self.root
        for depth in range(1, len(path)):
            member = group.members.get("\0".join(path[:depth])) or PageGroup(path[:depth])
            assert isinstance(member, PageGroup), "all paths have the same levels"
            yield member
            group = member

    def ended(self, leaf: ClientAccount) -> None:
        """Count a request less of `leaf`."""
        leaf.requests -= 1
        if leaf.requests:
            return
        if not leaf.is_here:
            self.forget_empty(leaf)
            return
        self._quiet[leaf] = self._now
        if len(self._quiet) > MOST_QUIET:
            self._leave_early()

    def _leave_early(self) -> None:
        """Let half of the quiet accounts leave of the highest account that has most of them, the longest quiet first:
        names that are made up bound neither memory nor the window of others."""
        highest, quiet = Counter(leaf.highest for leaf in self._quiet).most_common(1)[0]
        leaving = [leaf for leaf in self._quiet if leaf.highest is highest]
        for leaf in leaving[: max(1, quiet // 2)]:
            del self._quiet[leaf]
            self._leave(leaf)

    def advance(self, now: float) -> None:
        """Let those leave that had no request for the window before `now`, in seconds."""
        self._now = now
        while self._quiet:
            leaf, since = next(iter(self._quiet.items()))
            if now < since + WINDOW_SECONDS:
                break
            del self._quiet[leaf]
            self._leave(leaf)

    def _leave(self, leaf: ClientAccount) -> None:
        above = leaf.above
        leaf.leave(self.gone)
        leaf.rank()
        for account in above[:-1]:
            if account.members:
                account.rank()
                break
            account.leave(self.gone)
            account.remove()
        self.forget_empty(leaf)

    def forget_empty(self, leaf: ClientAccount) -> None:
        """Forget `leaf`, which has left, if it has no pages any more."""
        if not leaf.requests and not len(leaf.pages):
            leaf.remove()
            del self._leaves[leaf.path]

    def check_invariants(self) -> None:
        """Raise AssertionError when an account is in a wrong place, or a sum is wrong."""
        here = [leaf for leaf in self if leaf.is_here]
        assert {*here} == {*self} - {*self.gone.members.values()}, "somebody is neither here nor has left"
        assert {leaf for leaf in here if not leaf.requests} == {*self._quiet}, "somebody is not quiet"
        for leaf in self:
            leaf.pages.check_invariants()
            leaf.check_kept()
            assert leaf.is_here or leaf.requests or len(leaf.pages), f"{leaf.path} has left without pages"
        groups = {group for leaf in self for group in leaf.above}
        for group in groups:
            weights = sum(member.weight for member in group.members.values() if member.is_here)
            assert group.weights == weights, f"weights of {group.path}"
            group.gives.check_invariants()
            group.spares.check_invariants()
        accounts: set[PageAccount] = {*self, *groups}
        for account in accounts:
            account.check_rank()
        for name in ("held", "idle", "kept", "running"):
            totals = Counter[PageAccount]()
            for leaf in self:
                totals.update(dict.fromkeys((leaf, *leaf.above), getattr(leaf, name)))
            for account in accounts:
                value = getattr(account, name)
                assert value == totals[account], f"{account.path}: {name} {value}, not {totals[account]}"
