"""Every place of every body at which a caller's text may stand, found in the types of the bodies."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from gateway.http.chat_completions import ChatCompletionRequest
from gateway.http.completions import CompletionRequest
from gateway.http.messages import Conversation, MessagesRequest
from gateway.http.responses_request import ResponsesRequest
from gateway.http.tokens import DetokenizeRequest, TokenizeRequest
from tests.unit.gateway.http.bodies import BASE
from tests.unit.gateway.http.http_client import (
    CHAT,
    COUNT,
    DETOKENIZE,
    INPUT_TOKENS,
    MESSAGES,
    RESPONSES,
    TEXT,
    TOKENIZE,
)

TYPES: Mapping[str, type[msgspec.Struct]] = {
    CHAT: ChatCompletionRequest,
    TEXT: CompletionRequest,
    MESSAGES: MessagesRequest,
    COUNT: Conversation,
    INPUT_TOKENS: ResponsesRequest,
    RESPONSES: ResponsesRequest,
    TOKENIZE: TokenizeRequest,
    DETOKENIZE: DetokenizeRequest,
}
# Values of fields that decide whether others are looked at. All are tried; what is refused for one is read for another.
ROLES = ("user", "assistant")
KINDS = ("text", "function", "tool_use", "tool_result", "message", "function_call", "function_call_output", "custom")
DECIDING: Mapping[str, tuple[str, ...]] = {"role": ROLES, "type": KINDS}
TEXT_HERE = object()
# Values of a field that may hold anything.
FREE: tuple[tuple[str, Any], ...] = (
    ("", TEXT_HERE),
    (".user_id", {"user_id": TEXT_HERE}),
    (".type", {"type": TEXT_HERE}),
    (".name", {"type": "function", "name": TEXT_HERE}),
    (".function.name", {"type": "function", "function": {"name": TEXT_HERE}}),
    ("{}", {TEXT_HERE: 1}),
    ("[]", [TEXT_HERE]),
)


class TextPlace(NamedTuple):
    """A place in the bodies that are sent to `path`."""

    path: str
    name: str
    value: Any  # of the body; TEXT_HERE stands for the text

    @property
    def field(self) -> str:
        """The name of the field that holds the text, whatever it is in."""
        return re.sub("<.*?>", "", self.name).rpartition(".")[2]

    def body(self, text: str) -> bytes:
        """Return the body with `text` at the place, also as the name of a field."""
        return msgspec.json.encode(_filled(self.value, text))


def _filled(value: Any, text: str) -> Any:
    if value is TEXT_HERE:
        return text
    if isinstance(value, dict):
        return {text if key is TEXT_HERE else key: _filled(inner, text) for key, inner in value.items()}
    return [_filled(inner, text) for inner in value] if isinstance(value, list) else value


def text_places() -> list[TextPlace]:
    """Return the places of all paths, each once."""
    found: dict[tuple[str, str], TextPlace] = {}
    for path, kind in TYPES.items():
        base = dict(BASE[path])
        for name, value in _of_struct(inspect.type_info(kind), base, ()):
            found.setdefault((path, name), TextPlace(path, name, value))
    return [*found.values()]


Places = Iterator[tuple[str, Any]]


def _places(kind: inspect.Type, around: tuple[type, ...]) -> Places:
    """Yield values of a type, each with a text at one place, and the name of the place."""
    match kind:
        case inspect.StrType():
            yield "", TEXT_HERE
        case inspect.AnyType() | inspect.RawType():
            yield from FREE
        case inspect.LiteralType() | inspect.EnumType():
            yield "", TEXT_HERE
        case inspect.UnionType(types=types):
            for each in types:
                yield from _places(each, around)
        case inspect.ListType(item_type=item):
            for name, value in _places(item, around):
                yield f"[]{name}", [value]
        case inspect.DictType(key_type=key, value_type=value_type):
            if isinstance(key, inspect.StrType | inspect.IntType):
                yield "{}", {TEXT_HERE: _smallest(value_type)}
            for name, value in _places(value_type, around):
                yield f"{{}}{name}", {"1": value}
        case inspect.StructType(cls=cls) if cls not in around:
            yield from _of_structs(kind, (*around, cls))


def _of_structs(kind: inspect.StructType, around: tuple[type, ...]) -> Places:
    """Yield values of a struct, for all values of its fields that decide what others mean."""
    deciding = [field for field in kind.fields if field.name in DECIDING and _is_open(field.type)]
    bases = [_smallest(kind)]
    for field in deciding:
        bases = [{**base, field.name: value} for base in bases for value in DECIDING[field.name]]
    for base in bases:
        tag = "|".join(str(base[field.name]) for field in deciding)
        for name, value in _of_struct(kind, base, around):
            yield f"<{tag}>.{name}" if tag else f".{name}", value


def _is_open(kind: inspect.Type) -> bool:
    """Return whether a type has texts that are not listed in it, or lists some of the deciding ones."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(each, inspect.StrType) for each in kinds)


def _of_struct(kind: Any, base: Mapping[str, Any], around: tuple[type, ...]) -> Places:
    for field in kind.fields:
        for name, value in _places(field.type, around):
            yield f"{field.encode_name}{name}", {**base, field.encode_name: value}
    yield "?", {**base, TEXT_HERE: 1}
    if kind.tag_field is not None:
        yield kind.tag_field, {**base, kind.tag_field: TEXT_HERE}


def _smallest(kind: inspect.Type) -> Any:
    """Return a small value of a type."""
    match kind:
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.StrType() | inspect.AnyType() | inspect.RawType():
            return "a"
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.UnionType(types=types):
            return _smallest(types[0])
        case inspect.StructType():
            required = {field.encode_name: _smallest(field.type) for field in kind.fields if field.required}
            return required if kind.tag_field is None else {kind.tag_field: kind.tag, **required}
    return None
