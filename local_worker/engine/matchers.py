"""The constrained outputs of the running requests: which tokens each of them allows next."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from local_worker.core.batch import Batch, Slice
from local_worker.engine.grammars import ConstraintBroken, Grammars, Matcher
from serving.constraint import Constraint


class TokenMasks(NamedTuple):
    """The tokens that the rows of a step allow; rows that are not in it allow all.

    `allowed` has one bit per token (see Matcher.allowed). The outputs of the rows in `failures` cannot go on, for the
    reasons that it gives (see StepResult).
    """

    allowed: Mapping[int, bytes]
    failures: tuple[tuple[int, str], ...]


class Followed:
    """A constrained output, whose matcher has accepted the tokens before position `read` of its request."""

    def __init__(self, constraint: Constraint, matcher: Matcher, read: int) -> None:
        self._constraint = constraint
        self._matcher = matcher
        self.read = read
        self.failure = ""  # why the output cannot go on

    def accept(self, tokens: Sequence[int]) -> None:
        """Append `tokens`, unless the output cannot go on anyway."""
        if not self.failure and tokens:
            try:
                self._matcher.accept(list(tokens))
            except ConstraintBroken as error:
                self._fail(error)

    def allowed(self) -> bytes | None:
        """Return the mask of the next token (see Matcher.allowed); None if the output cannot go on."""
        if not self.failure:
            try:
                return self._matcher.allowed()
            except ConstraintBroken as error:
                self._fail(error)
        return None

    def _fail(self, error: ConstraintBroken) -> None:
        self.failure = f"{self._constraint.field}: the output cannot go on: {error}"


class Matchers:
    """The matchers of the running requests, each a function of the constraint and the known tokens alone.

    So a request that enters the batch again, or at another worker, goes on as if it had never left.
    """

    def __init__(self, grammars: Grammars | None) -> None:
        """Follow constraints that `grammars` compiles; None: no request has one."""
        self._grammars = grammars
        self._followed: dict[int, Followed] = {}  # by Slice.request

    def follow(self, batch: Batch) -> None:
        """Begin with the requests that have entered the batch, and forget those that have left."""
        for request in batch.left:
            self._followed.pop(request, None)
        entered = dict(batch.entered)
        for piece in batch.slices:
            if piece.sampling.constraint is not None and piece.request in entered:
                self._followed[piece.request] = self._begun(piece, entered[piece.request])

    def _begun(self, piece: Slice, tokens: Sequence[int]) -> Followed:
        constraint = piece.sampling.constraint
        assert constraint is not None
        assert self._grammars is not None, "the backend refuses what nothing compiles"
        followed = Followed(constraint, self._grammars.compile(constraint).matcher(), len(tokens))
        followed.accept(tokens[piece.prompt_tokens - piece.seed_position :])
        return followed

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
