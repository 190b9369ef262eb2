"""The content of a message: a text, or parts of which only texts are understood."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec

from fairlead.errors import InvalidRequest
from gateway.http.mismatch import mismatch
from gateway.validation import MAX_MESSAGES


class Part(msgspec.Struct):
    """A part of a message's content, or of a system prompt; without a type it is a text."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None

    @property
    def kind(self) -> str:
        """The type of the part, which is a text if it does not say."""
        return self.type or "text"


TEXTS = ("text", "input_text", "output_text", "refusal")  # parts of messages of OpenAI's APIs
REASONING = ("thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text")  # parts that are ignored
# Parts that this server cannot read.
MEDIA = (
    *("image", "image_url", "input_image", "computer_screenshot"),
    *("audio", "input_audio", "video", "video_url"),
    *("document", "file", "input_file"),
)
Content = str | Annotated[list[Part | str], msgspec.Meta(max_length=MAX_MESSAGES)] | None


class _HasContent(msgspec.Struct):
    """msgspec remembers how to read a class; how to read a union it finds out anew each time, in ten times as long."""

    content: Content


def content_of(value: Any, place: str) -> Content:
    """Return `value` as the content of the message at `place`; raise InvalidRequest, which names the part."""
    message = {"content": value}
    try:
        return msgspec.convert(message, _HasContent).content
    except msgspec.ValidationError as error:
        fault = mismatch(error, message, _HasContent)
        raise InvalidRequest(fault.message.removeprefix(f"{fault.field}: "), f"{place}.{fault.field}") from None


def text_of(content: Content, place: str, types: tuple[str, ...] = ("text",)) -> str:
    """Return the text of `content`, parts on lines of their own, without earlier reasoning.

    Raises InvalidRequest, which names the part below `place`, where its type is none of `types`.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = [Part(text=part) if isinstance(part, str) else part for part in content]
    for index, part in enumerate(parts):
        if part.kind not in types and part.kind not in REASONING:
            expected = " and ".join(map(repr, types))
            raise InvalidRequest(
                f"only parts of type {expected} are supported, got {part.kind[:32]!r}", f"{place}[{index}].type"
            )
    return "\n".join(part.text or part.refusal or "" for part in parts if part.kind not in REASONING)


def result_text(content: Any) -> str:
    """Return the result of a tool as text: what is neither a text nor has one, as JSON, and media by their types.

    A program cannot take back what its tool has answered, so that nothing in it is refused.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not parts or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
        return msgspec.json.encode(content).decode()
    return "\n".join(_part_text(part) for part in parts)


def media_in(content: Any) -> Iterator[int]:
    """Yield the numbers of the parts of a tool's result of which the model is told no more than the type."""
    parts = content if isinstance(content, list) else [content]
    return (index for index, part in enumerate(parts) if isinstance(part, dict) and _is_medium(part))


def _is_medium(part: Mapping[str, Any]) -> bool:
    return part.get("type") in MEDIA and text_in(part) is None


def _part_text(part: Mapping[str, Any]) -> str:
    text = f"[{part['type']}]" if _is_medium(part) else text_in(part)
    return msgspec.json.encode(part).decode() if text is None else text


def text_in(part: Mapping[str, Any]) -> str | None:
    """Return the text of a part, of the source of a document, or of the parts of what a search has found."""
    match part:
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "tool_reference", "tool_name": str(text)}:
            return text
        case {"text": str(text)}:
            return text
        case {"source": {"type": "text", "data": str(text)} | {"type": "content", "content": str(text)}}:
            return text
        case {"content": [*inner]} | {"source": {"content": [*inner]}} if inner:
            texts = [each["text"] for each in inner if isinstance(each, dict) and isinstance(each.get("text"), str)]
            titles = [part[name] for name in ("title", "source") if isinstance(part.get(name), str)]
            return "\n".join([*titles, *texts]) if len(texts) == len(inner) else None
    return None
