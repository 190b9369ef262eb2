"""The parser of one output, while it arrives."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

from fairlead.output.argument_types import ArgumentTypes
from fairlead.output.events import Part
from fairlead.output.hermes import hermes
from fairlead.output.llama import llama
from fairlead.output.mistral import mistral
from fairlead.output.response_template import ResponseTemplate
from fairlead.output.source import Grammar, Source, plain_text
from fairlead.output.templated import templated
from fairlead.output.thinking import thinking
from fairlead.output.xml_call import GLM, QWEN_CODER, XmlSyntax, xml_calls

# By the names that a worker has for the format of its model's calls. An unknown one is that of a newer worker.
JSON_FORMATS: Mapping[str, Callable[..., Grammar[None]]] = {
    "hermes": hermes,
    "llama": llama,
    "mistral": mistral,
}
XML_FORMATS: Mapping[str, XmlSyntax] = {"qwen_coder": QWEN_CODER, "glm": GLM}
FORMATS = (*JSON_FORMATS, *XML_FORMATS)
MARKED = ("hermes", *XML_FORMATS)  # with the mark `thinking.CALL` before calls
THINK = "think"  # the only name for a format of reasoning
PIECE = 1024  # characters of a long text that are read at a time: what is left of them is copied with each part
_template = lru_cache(maxsize=64)(ResponseTemplate.parse)  # one for each model


class OutputParser:
    """Parses text into parts; the parts do not depend on how the text is cut, but for the cuts of their own texts.

    `tool_calls` and `reasoning` name formats; what is not named, or unknown, is text. `in_reasoning` says that the
    output begins within the reasoning, because the prompt ends there. `response_template` is one of transformers as
    JSON; if there is one, it decides instead of the named formats. `argument_types` are those of the tools' arguments,
    by the names of all tools that were offered; without any, these names are unknown.
    """

    def __init__(
        self,
        tool_calls: str,
        reasoning: str,
        in_reasoning: bool,
        argument_types: ArgumentTypes | None = None,
        response_template: str = "",
    ) -> None:
        self._source = source = Source()
        types = argument_types or {}
        if response_template:
            self._grammar = templated(source, _template(response_template), in_reasoning, types)
            return
        answer: Callable[[Source], Grammar[None]] = plain_text
        if (calls := JSON_FORMATS.get(tool_calls)) is not None:
            answer = partial(calls, offered=types or None)
        if (syntax := XML_FORMATS.get(tool_calls)) is not None:
            answer = partial(xml_calls, syntax=syntax, types=types)
        called = types if tool_calls in MARKED else ()
        self._grammar = thinking(source, in_reasoning, answer, called) if reasoning == THINK else answer(source)

    def push(self, text: str) -> Sequence[Part]:
        """Return the parts that are known with the next text; text that is not decided yet is held back."""
        parts: list[Part] = []
        for at in range(0, len(text), PIECE):
            self._source.held += text[at : at + PIECE]
            parts += self._read()
        return parts

    def end(self) -> Sequence[Part]:
        """Return the rest, after which nothing may be pushed."""
        self._source.is_ended = True
        return self._read()

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        source = self._source
        assert not (source.is_ended and source.held), f"{source.held!r} is lost at the end"

    def _read(self) -> Sequence[Part]:
        parts: list[Part] = []
        for part in self._grammar:
            if part is None:
                break
            parts.append(part)
        return parts
