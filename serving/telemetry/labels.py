"""A cap on label values that callers or operators choose: each distinct value makes a permanent time series."""

OTHER = "other"


class CappedLabel:
    """A label that keeps its first `most` distinct values and replaces later ones by `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()  # never iterated: its order is not deterministic

    def value(self, given: str) -> str:
        """Return the label's value for `given`."""
        if given not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(given)
        return given
