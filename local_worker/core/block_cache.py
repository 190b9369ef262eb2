"""The interface between the admission of requests and the KV cache that they share."""

from collections.abc import Iterable
from typing import Protocol

from local_worker.core.page_report import PageReport
from local_worker.core.request import Request
from serving.blocks import Link


class BlockChanges:
    """The blocks that a cache has gained and lost; the policy and the scheduler are told of them at different times."""

    def __init__(self) -> None:
        # Since `take_events`, in order of time: digest -> its parent (0: no parent); None when evicted.
        self._latest: dict[int, int | None] = {}
        self._new: list[int] = []

    def cached(self, links: Iterable[Link]) -> None:
        """Record blocks that are cached now, parents first."""
        latest, new = self._latest, self._new
        for digest, parent in links:
            latest.pop(digest, None)
            latest[digest] = parent
            new.append(digest)

    def evicted(self, digests: Iterable[int]) -> None:
        """Record blocks that are not cached any more, children first."""
        latest = self._latest
        for digest in digests:
            latest.pop(digest, None)
            latest[digest] = None

    def take_new(self) -> list[int]:
        """Return the digests that were cached since the last call; some of them may have been evicted again."""
        new, self._new = self._new, []
        return new

    def take_events(self) -> tuple[tuple[Link, ...], tuple[int, ...]]:
        """Return the blocks cached and the digests evicted since the last call; for each digest only its latest change.

        The changes are in order of time: a parent is cached before its children and evicted after them.
        """
        if not self._latest:
            return (), ()
        latest, self._latest = self._latest, {}
        cached = tuple([(digest, parent) for digest, parent in latest.items() if parent is not None])
        return cached, tuple([digest for digest, parent in latest.items() if parent is None])


class BlockCache(Protocol):
    """A KV cache of `pages` pages of `block_tokens` tokens each, with full blocks of earlier prompts and outputs."""

    pages: int
    block_tokens: int
    changes: BlockChanges

    @property
    def tokens_used(self) -> int:
        """The capacity, in tokens, of the pages that running requests use."""

    def pages_for(self, tokens: int) -> int:
        """Return the number of pages that `tokens` tokens occupy; the last page may be partly filled."""

    def arrived(self, request: Request) -> None:
        """Look up the prefix of `request`, which has joined the queue."""

    def match(self, request: Request) -> int:
        """Return the number of `request`'s prompt tokens that are cached now; it is never the whole prompt."""

    def admit(self, request: Request, tokens: int) -> int | None:
        """Give `request` pages for `tokens` tokens; return the number of tokens left to compute, or None if the pages
        do not fit."""

    def is_underway(self, request: Request) -> bool:
        """Return whether a running request is computing the first block that `request` did not match at the last
        lookup, and `request` had better wait for it."""

    def preempted(self, request: Request) -> None:
        """Release the pages of `request`, and look up its prefix again."""

    def withdrawn(self, request: Request) -> None:
        """Forget that `request` waits."""

    def finished(self, request: Request) -> None:
        """Release the pages of `request`; full blocks stay cached until they are evicted."""

    def report(self) -> PageReport:
        """Return who pays for the pages, as of the last second; an empty report if that is not known."""

    def check_invariants(self, running: list[Request]) -> None:
        """Raise AssertionError unless the pages in use are those of the `running` requests."""
