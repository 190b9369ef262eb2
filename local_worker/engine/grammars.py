"""Constraints of outputs as automata over a tokenizer's vocabulary, which llguidance compiles and runs.

llguidance compiles lazily: what it makes of a constraint is small at first, and grows with the masks that are computed.
Its limits bound both, as fuel, which is the same on every machine; an output is refused when it exceeds them by itself.
They do not bound everything, so all of this happens in a Sandbox.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from fairlead.errors import InvalidRequest
from local_worker.json_schemas.conditions import Exclusion
from local_worker.json_schemas.options import json_options
from local_worker.json_schemas.plain import check_schema, plain
from local_worker.json_schemas.refusal import OVERLAPPING, grammar_refusal, schema_refusal
from serving.constraint import Constraint

if TYPE_CHECKING:
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
    """The compiled constraints for one vocabulary: those that somebody holds, and the MOST_CACHED used last."""

    def __init__(self, vocabulary: Callable[[], "LLTokenizer"]) -> None:
        """Prepare to compile; `vocabulary` is called for each constraint that is not known."""
        self._vocabulary = vocabulary
        self._known: WeakValueDictionary[Constraint, Grammar] = WeakValueDictionary()
        self._recent: OrderedDict[Constraint, Grammar] = OrderedDict()

    def compile(self, constraint: Constraint) -> Grammar:
        """Return the grammar of `constraint`; raise InvalidRequest, which names the field and the library's reason."""
        grammar = self._known.get(constraint)
        if grammar is None:
            grammar = Grammar(self._compiled(constraint))
        self._known[constraint] = self._recent[constraint] = grammar
        self._recent.move_to_end(constraint)
        if len(self._recent) > MOST_CACHED:
            self._recent.popitem(last=False)
        return grammar

    def compile_anew(self, constraint: Constraint) -> Grammar:
        """Return a grammar of `constraint` that shares nothing with others, and forget the known one."""
        self._known.pop(constraint, None)
        self._recent.pop(constraint, None)
        return Grammar(self._compiled(constraint))

    def error(self, constraint: Constraint) -> str:
        """Return why `constraint` cannot be compiled; empty if it can be."""
        try:
            self._compiled(constraint)
        except InvalidRequest as error:
            return error.message.removeprefix(f"{constraint.field}: ")
        return ""

    def _compiled(self, constraint: Constraint) -> "LLMatcher":
        try:
            matcher = self._matcher(_source(constraint))
            error = matcher.get_error()
            if OVERLAPPING in error:
                schema = plain(json.loads(constraint.texts[0]))
                matcher = self._matcher(_of_schema(Exclusion(schema).exclusive(schema)))
        except (ValueError, RecursionError) as wrong:
            raise InvalidRequest(_reason(str(wrong)), constraint.field) from wrong
        if matcher.is_error():
            is_schema, text = constraint.kind == "json_schema", "".join(constraint.texts)
            reason = schema_refusal(error, json.loads(text)) if is_schema else grammar_refusal(error, text)
            raise InvalidRequest(_reason(reason), constraint.field)
        return matcher

    def _matcher(self, source: str) -> "LLMatcher":
        from llguidance import LLMatcher, LLParserLimits

        return LLMatcher(self._vocabulary(), source, log_level=0, limits=LLParserLimits(**LIMITS))


def _source(constraint: Constraint) -> str:
    """Return `constraint` as llguidance reads it; raise ValueError or RecursionError for what is not JSON."""
    from llguidance import LLMatcher

    match constraint.kind, constraint.texts:
        case "json_object", _:
            return _of_schema({"type": "object"})
        case "json_schema", [text]:
            schema = json.loads(text)
            check_schema(schema)
            return _of_schema(plain(schema))
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
