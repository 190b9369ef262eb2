"""Preemption without loss: requests that give their places and pages to a request of an account with credit.

A victim keeps its tokens and waits in its old place in the queue; its pages stay cached until they are needed. It has
no token in flight when it leaves, so that its stream has no gap and no repeat.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from local_worker.core.accounts.account import Account
from local_worker.core.plan import InFlight
from local_worker.core.policies.dlpm import depth
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request

PATIENCE = 32  # H: number of steps after which a blocked request goes first, and gets its account's share of pages
MOST_REPEATED = 0.1  # e: largest part of the work that may be repeated for fairness
MAX_TRIES = 4  # number of blocked requests for which a step looks for victims


class Preemption:
    """The victims of the steps of one batch, and the work that is repeated for them."""

    def __init__(
        self,
        queue: RequestQueue[PrefixCache],
        policy: SlicedDlpm,
        in_flight: InFlight,
        has_part: Callable[[Request], bool],
        take_back: Callable[[Request], None],
    ) -> None:
        self.served = 0  # number of tokens that steps gave to the requests of the policy
        self.repeated = 0  # number of them that were computed again
        self.is_deferred = False  # whether the guard forbade a preemption in this step
        self._queue = queue
        self._policy = policy
        self._in_flight = in_flight
        self._has_part = has_part  # whether the step computes a part of the request's prompt
        self._take_back = take_back
        self._now = 0.0
        self._tries = 0
        self.mine: Collection[Request] = ()  # running requests of the policy
        self._others: list[Request] = []  # running requests of another class that give way to those of this one
        self._most_pages = 0  # most pages of a request to which they give way
        self._found: list[Request] | None = None  # the step's candidates, once it has looked for them
        self.beyond: set[Account] = set()  # those at the end of paths that have an account at least P in debt
        self.yielding: set[Request] = set()  # they take no part in this step: they have left, or can leave in the next
        self._entered: set[Request] = set()
        self._promised: set[Request] = set()  # they can enter in the next step, in which those of the other class leave
        self._lost: dict[Request, int] = {}  # preempted request that waits -> its tokens, which may have to be repeated

    def begin(self, now: float, mine: Collection[Request], others: Iterable[Request] = (), most_pages: int = 0) -> None:
        """Begin a step in which `mine` are the running requests of the policy.

        `others`, of another class, give way to each that needs at most `most_pages`; first those that were asked to in
        the last step.
        """
        self._now = now
        self.mine = mine
        self.beyond = self._policy.beyond({request.account for request in mine})
        self._others = sorted(others, key=lambda request: (request not in self.yielding, depth(request)))
        self._most_pages = most_pages
        self._tries = MAX_TRIES
        self._found = None
        self.is_deferred = False
        self.yielding, self._entered, self._promised = set(), set(), set()

    def entered(self, request: Request) -> None:
        self._entered.add(request)
        self._lost.pop(request, None)

    def is_yielding(self, request: Request) -> bool:
        """Return whether `request` takes no part in this step: it has left the batch, or can leave in the next one."""
        return request in self.yielding

    def patient(self, blocked: Mapping[Request, int]) -> Request | None:
        """Return the first of `blocked` that was blocked for PATIENCE steps and may go first; None if there is none."""
        waiting = self._queue.waiting
        due = (request for request, steps in blocked.items() if steps >= PATIENCE and request in waiting)
        return next((request for request in due if self._policy.has_credit(request)), None)

    def make_room(self, entering: Request, steps: int) -> bool:
        """Preempt the requests whose leaving lets in `entering`, which was blocked for `steps` steps; return whether
        there is room now.

        Victims are requests of the other class that give way; then those of accounts at least P in debt. Where these do
        not suffice, an account within its share of places takes one from accounts in debt that are beyond theirs, and
        after PATIENCE steps an account within its share of pages takes pages in the same way. Deepest debt first,
        latest arrival first, only as many as needed.
        """
        others = self._others_for(entering)
        return self._leave_for(
            entering, self._enough(entering, iter(others)) or self._with_mine(entering, steps, others)
        )

    def displace(self, entering: Request) -> bool:
        """Preempt requests of the other class alone if that lets in `entering`; return whether there is room now."""
        return self._leave_for(entering, self._enough(entering, iter(self._others_for(entering))))

    def _leave_for(self, entering: Request, chosen: list[Request] | None) -> bool:
        """Preempt `chosen`, or let them pause if they have a token in flight; return whether they have left."""
        if not chosen:
            return False
        self.yielding.update(chosen)
        for request in chosen:
            self._take_back(request)
        if any(request in self._in_flight for request in chosen):
            if not any(request in self.mine for request in chosen):
                self._promised.add(entering)
            return False
        for request in chosen:
            if request in self.mine:
                self._lost[request] = len(request.tokens)
            self._queue.preempt(request, self._now)
        return True

    def is_promised(self, entering: Request) -> bool:
        """Return whether requests of another class pause in this step so that `entering` can enter in the next one."""
        return entering in self._promised

    def _others_for(self, entering: Request) -> list[Request]:
        if not self._others or self._pages(entering) > self._most_pages:
            return []
        return [request for request in self._others if self._can_leave(request)]

    def _with_mine(self, entering: Request, steps: int, others: Sequence[Request]) -> list[Request] | None:
        """Return the victims among `others` and the own class; None if there are not enough."""
        takes_pages = steps >= PATIENCE and self.is_within_share(entering)
        if not self._tries or not self._policy.has_preemption or not (takes_pages or self._candidates()):
            return None
        self._tries -= 1
        chosen = self._enough(entering, chain(others, self._beyond_debt()))
        if chosen is None and self._is_within_places(entering):
            chosen = self._enough(entering, chain(others, self._beyond_share(entering, takes_pages)))
        may_leave = chosen and self._may_repeat([request for request in chosen if request in self.mine])
        return chosen if may_leave else None

    @property
    def has_victims(self) -> bool:
        """Whether a request may still give its place to another in this step."""
        return self.has_others or self._has_mine

    @property
    def has_others(self) -> bool:
        """Whether a request of the other class may still give its place to another in this step."""
        return any(map(self._can_leave, self._others))

    @property
    def free_places(self) -> int:
        """The number of places that are free, or that requests of the other class may still give up in this step."""
        held = len(self._queue.running) - sum(map(self._can_leave, self._others))
        return self._queue.limits.max_running - held

    @property
    def _has_mine(self) -> bool:
        return self._policy.has_preemption and self._tries > 0 and bool(self._candidates())

    def _candidates(self) -> list[Request]:
        """Return the running requests of which an account is at least P in debt or holds more than its share of places;
        the deepest debt first."""
        if self._found is None:
            leaves, places = {request.account for request in self.mine}, self._queue.limits.max_running
            accounts = {account for leaf in leaves for account in leaf.lineage if account.running > 1}
            large = {account for account in accounts if account.running > account.share(places)}
            found = (
                self.beyond.union(leaf for leaf in leaves if not large.isdisjoint(leaf.lineage))
                if large
                else self.beyond
            )
            self._found = sorted([each for each in self.mine if each.account in found], key=depth)
        return self._found

    def _can_leave(self, request: Request) -> bool:
        return (
            request in self._queue.running
            and request not in self.yielding
            and request not in self._entered
            and not self._has_part(request)
        )

    def _beyond_debt(self) -> Iterator[Request]:
        """Iterate over the requests of which an account is at least P in debt: while others are blocked, they would not
        go on anyway."""
        for victim in self._candidates():
            if victim.account in self.beyond and self._can_leave(victim):
                yield victim

    def _beyond_share(self, entering: Request, takes_pages: bool) -> Iterator[Request]:
        """Iterate over the requests of accounts in debt that hold more than their share of places, or of pages if it
        `takes_pages`, where their paths part from that of `entering`; down to that share."""
        places, pages, is_full = self._queue.limits.max_running, self._queue.cache.pages, not self.free_places
        fewer, less = Counter[Account](), Counter[Account]()  # what the accounts give
        for victim in sorted(self.mine, key=depth) if takes_pages else self._candidates():
            mine = _apart(victim, entering) if self._can_leave(victim) else None
            if mine is None or not self._policy.owes(mine):
                continue
            has_too_many = is_full and mine.running - fewer[mine] > max(1, mine.share(places))
            if has_too_many or (takes_pages and mine.pages - less[mine] > mine.share(pages)):
                fewer[mine] += 1
                less[mine] += len(victim.pages) - victim.shared
                yield victim

    @property
    def _is_full(self) -> bool:
        return len(self._queue.running) >= self._queue.limits.max_running

    def _enough(self, entering: Request, victims: Iterator[Request]) -> list[Request] | None:
        """Return the first of `victims` that have to leave so that `entering` fits; None if all do not suffice."""
        chosen: list[Request] = []
        if self._is_full:
            if (first := next(victims, None)) is None:
                return None
            chosen.append(first)
        needed = self._queue.cache.fits(entering, self._queue.tokens_on_entry(entering), chain(chosen, victims))
        return None if needed is None else needed or chosen

    def _may_repeat(self, victims: Iterable[Request]) -> bool:
        """Return whether the work that `victims` may have to repeat is within MOST_REPEATED and once the memory."""
        self._lost = {request: tokens for request, tokens in self._lost.items() if request in self._queue.waiting}
        repeated = self.repeated + sum(self._lost.values())
        repeated += sum(len(request.tokens) for request in victims)
        cache = self._queue.cache
        if repeated <= MOST_REPEATED * self.served + cache.pages * cache.block_tokens:
            return True
        self._policy.preemption_deferred()
        self._queue.ledger.deferred_preemptions += not self.is_deferred
        self.is_deferred = True
        return False

    def is_within_share(self, entering: Request) -> bool:
        """Return whether the accounts of `entering` stay within their shares of places and pages if it enters."""
        cache = self._queue.cache
        fresh = self._pages(entering)
        return self._is_within_places(entering) and all(
            account.pages + fresh <= account.share(cache.pages) for account in entering.account.lineage
        )

    def _pages(self, entering: Request) -> int:
        """Return the number of pages that `entering` needs and that were not found cached."""
        return self._queue.cache.pages_for(self._queue.tokens_on_entry(entering)) - entering.matched_blocks

    def _is_within_places(self, entering: Request) -> bool:
        most = self._queue.limits.max_running
        return all(account.running < max(1, account.share(most)) for account in entering.account.lineage)


def _apart(victim: Request, entering: Request) -> Account | None:
    """Return the highest account of `victim` that `entering` does not share; None if they have the same path."""
    pairs = zip(reversed(victim.account.lineage), reversed(entering.account.lineage), strict=True)
    return next((mine for mine, other in pairs if mine is not other), None)
