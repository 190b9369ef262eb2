"""Grammars of outputs whose tool calls are promised: calls are required, or their arguments have to fit a schema.

They are in Lark's notation as llguidance reads it, and derive texts in the format in which the model's chat template
writes calls. Reasoning before them is free.
"""

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from fairlead.errors import InvalidRequest
from local_worker.json_schemas.options import json_options
from local_worker.json_schemas.plain import plain
from local_worker.prompt import Chat, OutputFormat
from local_worker.xml_call_grammar import XML_SYNTAXES, xml_call


class CallSyntax(NamedTuple):
    """The notation of calls in a format: expressions of Lark around the name and the arguments of each.

    `marker` is the text after which calls begin. If it is empty, calls stand in place of a text. Where
    `arguments` is empty, calls are those of xml_call_grammar.
    """

    marker: str
    opening: str
    arguments: str  # the key of a call's arguments
    between: str
    closing: str


SYNTAXES: Mapping[str, CallSyntax] = {
    "hermes": CallSyntax("<tool_call>", r'"\n"', "arguments", r'"\n</tool_call>\n<tool_call>\n"', r'"\n</tool_call>"'),
    "llama": CallSyntax("", "", "parameters", '"; "', ""),
    "qwen_coder": CallSyntax("<tool_call>", r'"\n"', "", r'"\n</tool_call>\n<tool_call>\n"', r'"\n</tool_call>"'),
    "glm": CallSyntax("<tool_call>", "", "", r'"</tool_call>\n<tool_call>"', r'"</tool_call>"'),
    "mistral": CallSyntax("[TOOL_CALLS]", '" "? "["', "arguments", '", "', '"]"'),
}
TOOL_CHOICE = "prompt.chat.tool_choice"
NO_PARAMETERS = {"type": "object", "properties": {}}  # as callers write it who mean that there are none
ANY_TEXT = r"/(.|\n)*/"


def call_grammar(chat: Chat, answer: OutputFormat, marker_token: int | None = None) -> str:
    """Return the grammar of the answer to `chat`, which promises something of its calls.

    `marker_token` is the special token that stands for the marker of the format, if the tokenizer has one. Raises
    InvalidRequest for a format whose calls have no grammar.
    """
    if find_spec("llguidance") is None:
        raise InvalidRequest("is not supported by this worker, which lacks llguidance", TOOL_CHOICE)
    syntax = SYNTAXES.get(answer.tool_calls)
    if syntax is None:
        form = answer.tool_calls or "of the model's response template"
        raise InvalidRequest(f"cannot be promised for calls in the format {form}", TOOL_CHOICE)
    return "\n".join(("%llguidance {}", *_rules(chat, answer, syntax, marker_token)))


def _rules(chat: Chat, answer: OutputFormat, syntax: CallSyntax, marker_token: int | None) -> Iterator[str]:
    choice = chat.choice
    free = "" if not answer.reasoning else "thought" if answer.in_reasoning else "thought?"
    marker = json.dumps(syntax.marker) if marker_token is None else f"<[{marker_token}]>"
    if choice.needs_call:
        yield f"start: {free and f'{free} SPACE'} {marker if syntax.marker else ''} calls"
    else:
        yield f"start: {free} {_answer(choice.is_single, syntax)}"
        yield from _texts(syntax, answer, marker_token)
    yield r"SPACE: /[ \n]{0,4}/"
    if free:
        begin = "" if answer.in_reasoning else r"\s*<think>"
        yield rf"thought[lazy]: /{begin}(.|\n)*<\/think>/"
    further = "" if choice.is_single or choice.name else f"({syntax.between} call)*"
    yield f"calls: {syntax.opening} call {further} {syntax.closing}"
    tools = [tool for tool in chat.tools if choice.name in ("", tool["name"])]
    yield f"call: {' | '.join(f'call_{number}' for number in range(len(tools)))}"
    for number, tool in enumerate(tools):
        head = f'{{"name": {json.dumps(tool["name"], ensure_ascii=False)}, "{syntax.arguments}": '
        is_strict = chat.strict.get(tool["name"], choice.needs_call)
        if (elements := XML_SYNTAXES.get(answer.tool_calls)) is not None:
            yield from xml_call(f"call_{number}", tool, is_strict, elements)
            continue
        schema = _arguments(tool["parameters"], is_strict)
        arguments = json.dumps({**plain(schema), "x-guidance": dict(json_options())})
        yield f'call_{number}: {json.dumps(head)} %json {arguments} "}}"'


def _answer(is_single: bool, syntax: CallSyntax) -> str:
    """Return the expression for an answer in which the model decides whether it calls."""
    if not syntax.marker:
        return "(SPACE calls | TEXT)"
    return "(trigger calls | TEXT)" if is_single else "(trigger calls)* TEXT"


def _texts(syntax: CallSyntax, answer: OutputFormat, marker_token: int | None) -> Iterator[str]:
    """Yield the rules for text before calls, up to the marker, and for text without calls."""
    excluded = [] if syntax.marker else [r"~/\s*(<\|python_tag\|>)?[\s;,\[]*\{(.|\n)*/"]  # it might begin a call
    if answer.reasoning and not answer.in_reasoning:
        excluded.append(r"~/\s*<think>(.|\n)*/")
    yield f"TEXT: {' & '.join([ANY_TEXT, *excluded])}"
    if syntax.marker and marker_token is not None:
        yield f"trigger: TEXT <[{marker_token}]>"
    elif syntax.marker:
        yield f"trigger[lazy]: TEXT {json.dumps(syntax.marker)}"


def _arguments(parameters: Mapping[str, Any], is_strict: bool) -> Mapping[str, Any]:
    """Return the schema of a call's arguments, which are an object in any case."""
    if not is_strict:
        return {"type": "object"}
    if parameters == NO_PARAMETERS:
        return {**parameters, "additionalProperties": False}
    return {**parameters, "type": "object"}
