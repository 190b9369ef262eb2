"""The content of a message: a text, or parts of which only texts are understood."""

from typing import Annotated, Any

import msgspec

from fairlead.errors import InvalidRequest
from gateway.counts import MAX_MESSAGES


class Part(msgspec.Struct):
    """A part of a message's content, or of a system prompt."""

    type: str
    text: str | None = None
    refusal: str | None = None
    tool_name: str | None = None  # of a tool_reference, which a search for tools has found


Content = str | Annotated[list[Part], msgspec.Meta(max_length=MAX_MESSAGES)] | None


def text_of(content: Content, place: str, types: tuple[str, ...] = ("text",)) -> str:
    """Return the text of `content`, parts on lines of their own.

    Raises InvalidRequest, which names the part below `place`, where its type is none of `types`.
    """
    if content is None or isinstance(content, str):
        return content or ""
    for index, part in enumerate(content):
        if part.type not in types:
            expected = " and ".join(map(repr, types))
            raise InvalidRequest(
                f"only parts of type {expected} are supported, got {part.type[:32]!r}", f"{place}[{index}].type"
            )
    return "\n".join(part.text or part.refusal or part.tool_name or "" for part in content)


def result_text(content: Any, place: str, types: tuple[str, ...] = ("text",)) -> str:
    """Return the result of a tool as text: what is neither a text nor parts, as JSON. Raises as `text_of`."""
    try:
        return text_of(msgspec.convert(content, Content), place, types)
    except msgspec.ValidationError:
        return msgspec.json.encode(content).decode()
