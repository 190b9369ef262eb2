"""Constraints of outputs as automata over a tokenizer's vocabulary, which llguidance compiles and runs.

llguidance compiles lazily: what it makes of a constraint is small at first, and grows with the masks that are computed.
Its limits bound both, as fuel, which is the same on every machine; an output is refused when it exceeds them by itself.
They do not bound everything: a Sandbox shows first that a caller's constraint compiles in the time that it may take.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from importlib.util import find_spec
from textwrap import shorten
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from fairlead.errors import InvalidRequest
from local_worker.json_options import json_options
from local_worker.sandbox_process import Setup
from local_worker.schema_size import check_schema
from serving.constraint import Constraint

if TYPE_CHECKING:  # a worker without it refuses constraints
    from llguidance import LLMatcher, LLTokenizer

MOST_CACHED = 32
LONGEST_SHOWN = 40  # characters of a value in an error
LONGEST_REASON = 500  # characters of what the library complains of
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 1_000_000,  # about 20 ms
    "max_grammar_size": 10_000,
    "max_lexer_states": 10_000,  # up to 2 kB each
    "step_lexer_fuel": 50_000,  # about 4 ms
    "step_max_items": 10_000,  # less than 1 ms
    "verbose_errors": False,
}
CPU_SECONDS = 1.0  # of one compilation; what honest callers send takes milliseconds
MEMORY_BYTES = 1 << 30
NICENESS = 10  # of all work on constraints: steps come first where they share a core
DEAD_ENDS = ("NoExtension", "NoExtensionBias")  # the library's words for it


class ConstraintBroken(Exception):
    """An output cannot go on under its constraint: a limit is exceeded, or its tokens do not match."""


class Matcher:
    """The state of one output, which is a function of the constraint and of the tokens so far."""

    def __init__(self, matcher: "LLMatcher") -> None:
        self._matcher = matcher

    def accept(self, tokens: list[int]) -> None:
        """Append `tokens` to the output; raise ConstraintBroken unless they match.

        After a whole output that nothing continues they are ignored: they are the end, which an engine that runs ahead
        appends before it is known that the output has ended.
        """
        if self._matcher.is_error() or not self._matcher.is_stopped():
            self._matcher.consume_tokens(tokens)
            self._check()

    def allowed(self) -> bytes:
        """Return one bit per token, the lowest of each byte first: whether it may come next.

        After a whole output these are the tokens that end a sequence. Raises ConstraintBroken.
        """
        mask: bytes = self._matcher.compute_bitmask()
        self._check()
        return mask

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = _reason(self._matcher.get_error())
            raise ConstraintBroken("no token continues it" if reason in DEAD_ENDS else reason)


class Grammar:
    """A compiled constraint; any number of outputs may follow it, and share its limits."""

    def __init__(self, initial: "LLMatcher") -> None:
        self._initial = initial

    def matcher(self) -> Matcher:
        """Return the state of an empty output."""
        return Matcher(self._initial.deep_copy())


class Grammars:
    """The compiled constraints for one vocabulary: those that somebody holds, and the MOST_CACHED used last.

    Any thread may call its methods.
    """

    def __init__(self, vocabulary: Callable[[], "LLTokenizer"]) -> None:
        """Prepare to compile; `vocabulary` is called at the first constraint and raises ValueError if it has none."""
        self._make_vocabulary = vocabulary
        self._vocabulary: LLTokenizer | None = None
        self._known: WeakValueDictionary[Constraint, Grammar] = WeakValueDictionary()
        self._recent: OrderedDict[Constraint, Grammar] = OrderedDict()
        self._lock = Lock()

    def known(self, constraint: Constraint) -> Grammar | None:
        """Return the grammar of `constraint` if it is compiled."""
        return self._known.get(constraint)

    def setup(self) -> Setup:
        """Return what a Sandbox needs to compile as this object does; it takes up to a second."""
        vocabulary = self._loaded()
        ids = range(vocabulary.vocab_size)
        return Setup(
            [vocabulary.decode_bytes([token]) for token in ids],
            [token for token in ids if vocabulary.is_special_token(token)],
            vocabulary.eos_tokens,
            LIMITS,
            CPU_SECONDS,
            MEMORY_BYTES,
            NICENESS,
        )

    def source(self, constraint: Constraint) -> str:
        """Return `constraint` as llguidance reads it; raise InvalidRequest for what is known to be wrong or too much.

        Nothing is compiled yet.
        """
        if find_spec("llguidance") is None:
            raise InvalidRequest("is not supported by this worker, which lacks llguidance", constraint.field)
        try:
            return _source(constraint)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(_reason(str(error)), constraint.field) from error

    def compile(self, constraint: Constraint) -> Grammar:
        """Return the grammar of `constraint`, which takes as long as in a Sandbox if it is not known.

        Raises InvalidRequest, which names the field and the library's reason.
        """
        grammar = self._known.get(constraint)
        if grammar is None:
            grammar = Grammar(self._compiled(constraint))
        with self._lock:
            self._known[constraint] = self._recent[constraint] = grammar
            self._recent.move_to_end(constraint)
            if len(self._recent) > MOST_CACHED:
                self._recent.popitem(last=False)
        return grammar

    def compile_anew(self, constraint: Constraint) -> Grammar:
        """Return a grammar of `constraint` that shares nothing with others, and forget the known one."""
        with self._lock:
            self._known.pop(constraint, None)
            self._recent.pop(constraint, None)
        return Grammar(self._compiled(constraint))

    def _compiled(self, constraint: Constraint) -> "LLMatcher":
        source = self.source(constraint)
        from llguidance import LLMatcher, LLParserLimits

        try:
            vocabulary = self._loaded()
        except ValueError as error:
            raise InvalidRequest(_reason(str(error)), constraint.field) from error
        matcher = LLMatcher(vocabulary, source, log_level=0, limits=LLParserLimits(**LIMITS))
        if matcher.is_error():
            raise refused(matcher.get_error(), constraint)
        return matcher

    def _loaded(self) -> "LLTokenizer":
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = self._make_vocabulary()
            return self._vocabulary


def refused(error: str, constraint: Constraint) -> InvalidRequest:
    """Return the refusal of `constraint` for an error of the library."""
    return InvalidRequest(_reason(error), constraint.field)


def _source(constraint: Constraint) -> str:
    """Return `constraint` as llguidance reads it; raise ValueError or RecursionError for what is not JSON."""
    from llguidance import LLMatcher

    match constraint.kind, constraint.texts:
        case "json_object", _:
            return _of_schema({"type": "object"})
        case "json_schema", [text]:
            schema = json.loads(text)
            check_schema(schema)
            return _of_schema(schema)
        case "regex", [text]:
            return LLMatcher.grammar_from_regex(text)
        case "choice", texts:
            return LLMatcher.grammar_from_lark(f"start: {' | '.join(map(json.dumps, texts))}")
        case "grammar" | "calls", [text]:
            return LLMatcher.grammar_from_lark(text)
        case kind, _:
            raise AssertionError(f"unknown constraint {kind}")


def _of_schema(schema: Any) -> str:
    from llguidance import LLMatcher

    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise ValueError(f"a schema must be a JSON object or true, got {shorten(repr(schema), LONGEST_SHOWN)}")
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=json_options())  # type: ignore[arg-type]


def _reason(error: str) -> str:
    return shorten(error.removesuffix("<non-verbose/>"), LONGEST_REASON, placeholder=" ...")
