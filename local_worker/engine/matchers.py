"""The constrained outputs of the running requests: which tokens each of them allows next."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from local_worker.core.batch import Batch, Slice
from local_worker.engine.grammars import ConstraintBroken, Grammars
from serving.constraint import Constraint


class TokenMasks(NamedTuple):
    """The tokens that the rows of a step allow; rows that are not in it allow all.

    `allowed` has one bit per token (see Matcher.allowed). The outputs of the rows in `failures` cannot go on, for the
    reasons that it gives (see StepResult).
    """

    allowed: Mapping[int, bytes]
    failures: tuple[tuple[int, str], ...]


class FollowedOutput:
    """A constrained output, whose matcher has accepted the tokens before position `read` of its request.

    Outputs under the same constraint share what the library learns about it, and its limits bound all of that. So an
    output that fails goes on with a matcher of its own: whether it ends is then its own doing.
    """

    def __init__(self, constraint: Constraint, grammars: Grammars, output: Sequence[int], read: int) -> None:
        self.read = read
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


class Matchers:
    """The matchers of the running requests, each a function of the constraint and the known tokens alone.

    So a request that enters the batch again, or at another worker, goes on as if it had never left.
    """

    def __init__(self, grammars: Grammars | None) -> None:
        """Follow constraints that `grammars` compiles; None: no request has one."""
        self._grammars = grammars
        self._followed: dict[int, FollowedOutput] = {}  # by Slice.request

    def follow(self, batch: Batch) -> None:
        """Begin with the requests that have entered the batch, and forget those that have left."""
        for request in batch.left:
            self._followed.pop(request, None)
        entered = dict(batch.entered)
        for piece in batch.slices:
            if piece.sampling.constraint is not None and piece.request in entered:
                self._followed[piece.request] = self._begun(piece, entered[piece.request])

    def _begun(self, piece: Slice, tokens: Sequence[int]) -> FollowedOutput:
        constraint = piece.sampling.constraint
        assert constraint is not None
        assert self._grammars is not None, "the backend refuses what nothing compiles"
        output = tokens[piece.prompt_tokens - piece.seed_position :]
        return FollowedOutput(constraint, self._grammars, output, len(tokens))

    def needs_samples(self, pieces: Sequence[Slice]) -> bool:
        """Return whether the tokens of the previous batch must be known for the masks of `pieces`."""
        return any(piece.sampling.constraint is not None and piece.source is not None for piece in pieces)

    def masks(self, pieces: Sequence[Slice], before: Sequence[int]) -> TokenMasks:
        """Return the masks of `pieces`, the slices that sample; `before` are the tokens of the previous batch.

        `before` may be empty if `needs_samples` returns False.
        """
        allowed: dict[int, bytes] = {}
        failures: list[tuple[int, str]] = []
        for row, piece in enumerate(pieces):
            if piece.sampling.constraint is not None:
                followed = self._followed[piece.request]
                if piece.stop > followed.read:
                    followed.accept(piece.tokens if piece.source is None else [before[piece.source]])
                    followed.read = piece.stop
                mask = followed.allowed()
                if mask is None:
                    failures.append((row, followed.failure))
                else:
                    allowed[row] = mask
        return TokenMasks(allowed, tuple(failures))
