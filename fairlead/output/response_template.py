"""How a model writes its answers, as transformers' response templates describe it.

A model's tokenizer may ship such a template. It divides an output into regions: each belongs to a field of the message
that transformers' `parse_response` makes of the output, and is told by the texts or patterns with which it opens and
closes. One field may have no opening: what is in no other region belongs to it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from fairlead.output.captured import check_content
from fairlead.output.pattern import Pattern

REASONING = ("reasoning_content", "reasoning", "thinking")  # by which names templates have what we call reasoning
ANSWER, CALLS = "content", "tool_calls"


class TemplateField(NamedTuple):
    """A field of the message; `transform` makes its value of the parsed content and of what the opening captured."""

    name: str
    opening: Pattern | None
    closing: Pattern | None
    content: str
    options: Mapping[str, Any]
    transform: Any
    transforms_each: bool

    @classmethod
    def parse(cls, name: str, spec: Mapping[str, Any]) -> Self:
        """Read one field of a template; raise ValueError if it is wrong."""
        content, options = spec.get("content", "text"), spec.get("content_args", {})
        check_content(content, options)
        each = bool(spec.get("transform_each", False))
        return cls(name, _edge(spec, "open"), _edge(spec, "close"), content, options, spec.get("transform"), each)


class ResponseTemplate(NamedTuple):
    """The fields whose regions open, in the order of their names, and the field of the rest."""

    fields: tuple[TemplateField, ...]
    rest: TemplateField | None
    anchor: re.Pattern[str]  # after its last match in the prompt the message begins
    written: str  # the template without the backslashes of its patterns

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a template, which is JSON; raise ValueError if it is wrong, or of a kind that is not supported."""
        spec = json.loads(text)
        if not isinstance(spec, dict) or spec.get("version", 1) != 1 or not isinstance(spec.get("fields"), dict):
            raise ValueError("a response template must be an object of version 1 with fields")
        fields = [TemplateField.parse(name, spec["fields"][name]) for name in sorted(spec["fields"])]
        rest = [field for field in fields if field.opening is None]
        if len(rest) > 1:
            raise ValueError(f"at most one field may have no opening, got {[field.name for field in rest]}")
        anchor = _expression(spec, "start_anchor")
        if not anchor:
            raise ValueError("a response template must have a start_anchor")
        opening = tuple(field for field in fields if field.opening is not None)
        return cls(opening, rest[0] if rest else None, re.compile(anchor, re.DOTALL), text.replace("\\", ""))

    def needs(self, mark: str) -> bool:
        """Return whether regions may open or close with a text in which `mark` is."""
        edges = [
            edge for field in (*self.fields, self.rest) if field for edge in (field.opening, field.closing) if edge
        ]
        return mark in self.written or any(edge.may_begin(mark) or edge.match(mark) for edge in edges)

    def begun(self, prompt: str) -> str:
        """Return what of the message the prompt has written already; nothing if it has no anchor."""
        ends = [matched.end() for matched in self.anchor.finditer(prompt)]
        return prompt[ends[-1] :] if ends else ""


def _edge(spec: Mapping[str, Any], key: str) -> Pattern | None:
    expression = _expression(spec, key)
    return Pattern(expression) if expression else None


def _expression(spec: Mapping[str, Any], key: str) -> str:
    """Return the pattern of `key`, or that of its texts, of which the longest are looked for first."""
    if key not in spec:
        return str(spec.get(f"{key}_pattern", ""))
    texts = [spec[key]] if isinstance(spec[key], str) else spec[key]
    if not texts or not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{key} must be a text or a list of texts, got {spec[key]!r}")
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
