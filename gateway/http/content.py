"""The content of a message: a text, or parts of which only texts are understood."""

from typing import Annotated

import msgspec

from fairlead.errors import InvalidRequest
from gateway.validation import MAX_MESSAGES


class Part(msgspec.Struct):
    """A part of a message's content, or of a system prompt."""

    type: str
    text: str = ""


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
    return "\n".join(part.text for part in content)
