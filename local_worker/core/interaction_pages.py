"""The pages that the requests of one interaction alone have used: nobody needs them once it has ended."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from local_worker.core.request import Request

Name = tuple[str, str]  # client, id


@dataclass(slots=True, eq=False)
class _Interaction:
    name: Name
    pages: dict[int, None] = field(default_factory=dict)  # in the order in which they were published


class InteractionPages:
    """The published pages of each interaction that no request outside it has used.

    With a page, all pages that follow it are the interaction's, since whoever uses these uses it too.
    """

    def __init__(self) -> None:
        self._interactions: dict[Name, _Interaction] = {}
        self._users: dict[int, _Interaction] = {}  # page -> the interaction that alone has used it

    def published(self, request: Request, page: int) -> None:
        """Record that `request` has filled `page`."""
        if request.interaction:
            name = request.client, request.interaction
            user = self._interactions.get(name)
            if user is None:
                user = self._interactions[name] = _Interaction(name)
            user.pages[page] = None
            self._users[page] = user

    def used(self, request: Request, pages: Sequence[int]) -> None:
        """Record that `request` uses `pages`, a chain or the next page of one. O(pages that nobody else had used)."""
        mine = self._interactions.get((request.client, request.interaction))
        for page in reversed(pages):
            user = self._users.get(page)
            if user is mine or user is None:
                break  # so it is with those before
            self.evicted(page)

    def evicted(self, page: int) -> None:
        """Forget `page`, if it is an interaction's."""
        user = self._users.pop(page, None)
        if user is not None:
            del user.pages[page]
            if not user.pages:
                del self._interactions[user.name]

    def ended(self, request: Request) -> Iterable[int]:
        """Forget and return the pages of the interaction of `request`, each before those that it follows."""
        ended = self._interactions.pop((request.client, request.interaction), None)
        if ended is None:
            return ()
        for page in ended.pages:
            del self._users[page]
        return reversed(ended.pages)

    def check_invariants(self) -> None:
        """Raise AssertionError unless each page is of one interaction that is remembered."""
        users = {page: user for user in self._interactions.values() for page in user.pages}
        assert users == self._users, f"{self._users}, not {users}"
        assert all(user.pages for user in self._interactions.values()), "an interaction without pages is remembered"
