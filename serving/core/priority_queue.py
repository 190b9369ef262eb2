"""Priority queues of what has a name and a key that changes often; the smallest key comes first."""

import heapq
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

SPARE = 16  # entries of changed keys that are always kept, so that few names rarely pay for a new heap


class PriorityQueue:
    """A heap with lazy deletion: the old entry of a changed key is dropped at the top. O(log n) amortised."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tuple[int, ...], str]] = {}  # client -> its key, and the client
        self._heap: list[tuple[tuple[int, ...], str]] = []  # these entries, and earlier ones

    def __contains__(self, client: str) -> bool:
        return client in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the clients in the order of their keys; the queue must not change meanwhile. O(log n) each."""
        heap = self._heap
        ahead = [(heap[0], 0)] if heap else []
        while ahead:
            entry, place = heapq.heappop(ahead)
            if self._entries.get(entry[1]) is entry:
                yield entry[1]
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                heapq.heappush(ahead, (heap[child], child))

    def put(self, client: str, key: tuple[int, ...]) -> None:
        """Add `client`, or change its key."""
        old = self._entries.get(client)
        if old is not None and old[0] == key:
            return
        entry = self._entries[client] = key, client
        if old is not None and self._heap[0] is old:
            heapq.heapreplace(self._heap, entry)
        elif len(self._heap) > 2 * len(self._entries) + SPARE:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, entry)

    def key(self, client: str) -> tuple[int, ...] | None:
        """Return the key of `client`; None if it is not in the queue."""
        entry = self._entries.get(client)
        return None if entry is None else entry[0]

    def discard(self, client: str) -> None:
        """Remove `client`, if it is in the queue."""
        self._entries.pop(client, None)

    def take_least(self) -> tuple[tuple[int, ...], list[str]]:
        """Remove all clients that have the smallest key; return the key and them. The queue must not be empty."""
        first = self.first()
        assert first is not None, "the queue is empty"
        least, taken = first[0], []
        while self._heap and self._heap[0][0] == least:
            entry = heapq.heappop(self._heap)
            if self._entries.get(entry[1]) is entry:
                taken.append(entry[1])
                del self._entries[entry[1]]
        return least, taken

    def least(self) -> str | None:
        """Return the client with the smallest key; None when the queue is empty."""
        first = self.first()
        return None if first is None else first[1]

    def first(self) -> tuple[tuple[int, ...], str] | None:
        """Return the smallest key and its client; None when the queue is empty."""
        heap, entries = self._heap, self._entries
        while heap:
            first = heap[0]
            if entries.get(first[1]) is first:
                return first
            heapq.heappop(heap)
        return None


class Ranked(Protocol):
    """A member of a group."""

    name: str

    @property
    def key(self) -> int:
        """Its place among the others: the smallest comes first, and of equal ones that of the first name."""


Member = TypeVar("Member", bound=Ranked)


class PageRanks(Generic[Member]):
    """A heap of some of the `members` of a group, with at least one entry for each, which may be earlier than its key.

    A member has to be `put` when its key gets smaller. A larger key is seen when the member's entry comes to the top:
    who gives pages, or releases them, need not be put. O(log n) amortised.
    """

    __slots__ = ("_heap", "_members", "entries")

    def __init__(self, members: Mapping[str, Member]) -> None:
        self._members = members
        self.entries: dict[str, tuple[int, str]] = {}  # name -> the earliest entry of the member
        self._heap: list[tuple[int, str]] = []  # these entries, and others

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the members in the order of their keys; none must change meanwhile. O(log n) each."""
        heap = self._heap
        ahead = [(heap[0], 0)] if heap else []
        while ahead:
            entry, place = heapq.heappop(ahead)
            if place == len(heap):  # a key that was not in the heap
                yield self._members[entry[1]]
                continue
            if self.entries.get(entry[1]) is entry:
                member = self._members[entry[1]]
                if (key := member.key) == entry[0]:
                    yield member
                else:
                    heapq.heappush(ahead, ((key, entry[1]), len(heap)))
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                heapq.heappush(ahead, (heap[child], child))

    def put(self, member: Member) -> None:
        """Add `member`, or note that its key may be smaller than before."""
        key, entries = member.key, self.entries
        entry = entries.get(member.name)
        if entry is not None and entry[0] <= key:
            return
        entry = entries[member.name] = key, member.name
        if len(self._heap) > 2 * len(entries) + SPARE:
            self._heap = list(entries.values())
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, entry)

    def discard(self, name: str) -> None:
        """Remove the member of this name, if it is here."""
        self.entries.pop(name, None)

    def first(self) -> Member | None:
        """Return the member with the smallest key; None if there is no member."""
        heap, entries = self._heap, self.entries
        while entries:
            first = heap[0]
            earliest, name = first
            if entries.get(name) is not first:
                heapq.heappop(heap)
                continue
            member = self._members[name]
            key = member.key
            if key == earliest:
                return member
            entries[name] = entry = key, name
            heapq.heapreplace(heap, entry)
        return None

    def check_invariants(self) -> None:
        """Raise AssertionError when a member would come later than its key says."""
        for name, entry in self.entries.items():
            assert entry[0] <= self._members[name].key, f"{name}: {entry[0]} is later than its key"
            assert entry in self._heap, f"{name} is not in the heap"
