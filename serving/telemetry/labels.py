"""Labels whose values others choose, with a cap: every distinct value is a time series for ever."""

OTHER = "other"


class CappedLabel:
    """The first `most` values stand for themselves, later ones for `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()  # only counted and looked up

    def value(self, given: str) -> str:
        """What to use as the label."""
        if given not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(given)
        return given
