"""One constrained output: which tokens it allows next."""

from collections.abc import Sequence

from local_worker.engine.grammars import ConstraintBroken, Grammars
from serving.constraint import Constraint


class FollowedOutput:
    """A constrained output, whose matcher has accepted its tokens so far.

    Outputs under the same constraint share what the library learns about it, and its limits bound all of that. So an
    output that fails goes on with a matcher of its own: whether it ends is then its own doing.
    """

    def __init__(self, constraint: Constraint, grammars: Grammars, output: Sequence[int]) -> None:
        self.failure = ""  # why the output cannot go on
        self._constraint = constraint
        self._grammars = grammars
        self._matcher = grammars.compile(constraint).matcher()
        self._is_own = False  # whether no other output shares the matcher's limits
        self._output: list[int] = []
        self.accept(output)

    def accept(self, tokens: Sequence[int]) -> None:
        """Append `tokens`, unless the output cannot go on anyway."""
        self._output += tokens
        if not self.failure:
            try:
                self._matcher.accept(list(tokens))
            except ConstraintBroken as error:
                self._broken(error)

    def allowed(self) -> bytes | None:
        """Return the mask of the next token (see Matcher.allowed); None if the output cannot go on."""
        while not self.failure:
            try:
                return self._matcher.allowed()
            except ConstraintBroken as error:
                self._broken(error)
        return None

    def _broken(self, error: ConstraintBroken) -> None:
        """Replace a shared matcher by one of its own, which takes as long as to compile; note why it is broken, too."""
        if not self._is_own:
            self._is_own = True
            self._matcher = self._grammars.compile_anew(self._constraint).matcher()
            try:
                self._matcher.accept(self._output)
                return
            except ConstraintBroken as own:
                error = own
        self.failure = f"{self._constraint.field}: the output cannot go on: {error}"
