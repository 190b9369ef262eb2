"""The format of a model's tool calls and reasoning, as its response template says or its chat template shows it."""

import json
import logging
from collections.abc import Callable
from itertools import takewhile

from fairlead.errors import InvalidRequest, Unavailable
from fairlead.output.events import Arguments, CallBegun, Reasoning
from fairlead.output.parser import FORMATS, THINK, OutputParser
from fairlead.output.response_template import ResponseTemplate
from fairlead.output.thinking import BEGIN, END
from local_worker.argument_types import argument_types
from local_worker.known_responses import known_response
from local_worker.prompt import Chat, ChatMessage, EarlierCall, OutputFormat

log = logging.getLogger(__name__)
QUESTION = ChatMessage("user", "?")
CALL = EarlierCall("call00000", "probe", {"x": "y"})  # Mistral's templates accept ids of nine characters only
PARAMETERS = {"type": "object", "properties": {"x": {"type": "string"}}}
TOOL = {"name": CALL.name, "description": "Probe.", "parameters": PARAMETERS}
LAST_TOKENS = 32  # of a prompt, in whose text reasoning is seen to begin


def format_of_calls(render: Callable[[Chat], str]) -> str:
    """Return the name of the format in which the template writes a call, empty if it is none that is known.

    A model is to write calls as its template writes those of earlier messages. What it writes after the beginning of an
    answer is therefore parsed by each format: the one that finds the call is the model's.
    """
    asked = Chat((QUESTION,), tools=(TOOL,))
    called = Chat((QUESTION, ChatMessage("assistant", "", (CALL,))), add_generation_prompt=False, tools=(TOOL,))
    try:
        prompt, whole = render(asked).rstrip().removesuffix(BEGIN), render(called)
    except Unavailable:
        raise
    except Exception as error:  # templates are programs and may raise anything; many know no tools
        log.info("the chat template renders no tool calls", extra={"reason": str(error)})
        return ""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(prompt, whole, strict=False))
    written = whole[sum(1 for _ in same) :]
    return next((name for name in FORMATS if _finds(name, written)), "")


def format_of_reasoning(template: str) -> str:
    """Return the name of the format of reasoning, empty if the template knows none."""
    return THINK if END in template else ""


def rendered_reasoning(render: Callable[[Chat], str]) -> str:
    """Return the name of the format of reasoning, where the template itself is not known.

    Templates that know reasoning leave out that of earlier answers.
    """
    thought, said = "A thought.", "An answer."
    earlier = ChatMessage("assistant", f"{BEGIN}\n{thought}\n{END}\n\n{said}")
    try:
        text = render(Chat((QUESTION, earlier, QUESTION)))
    except InvalidRequest as error:
        log.info("the chat template renders no conversation", extra={"reason": str(error)})
        return ""
    return THINK if said in text and thought not in text else ""


def response_template(shipped: object, chat_template: str, knows_tools: bool) -> str:
    """Return the response template that a tokenizer ships, as JSON, or that of the model's family.

    It is empty if neither is known or can be followed. Of a family it is no other than the one whose chat template
    offers tools: a model is to write calls in the form in which they are offered.
    """
    if shipped is None and (shipped := known_response(chat_template) if knows_tools else None) is None:
        return ""
    try:
        text = json.dumps(shipped, ensure_ascii=False)
        ResponseTemplate.parse(text)
    except (ValueError, TypeError, AttributeError) as error:
        log.warning("the model's response template is not followed", extra={"reason": str(error)})
        return ""
    return text


def output_format(chat: Chat, tool_calls: str, reasoning: str, last_text: str, template: str = "") -> OutputFormat:
    """Return the format of the answer to a chat whose prompt ends with `last_text`.

    `template` is the model's response template.
    """
    calls = tool_calls if chat.tools else ""
    types = json.dumps(argument_types(chat.tools)) if chat.tools else ""
    if template:
        return OutputFormat(calls, reasoning, _is_in_reasoning(template, last_text), template, types)
    in_reasoning = bool(reasoning) and last_text.rstrip().endswith(BEGIN)
    return OutputFormat(calls, reasoning, in_reasoning, argument_types=types)


def _is_in_reasoning(template: str, last_text: str) -> bool:
    """Return whether the text of an answer that the prompt has begun goes on as reasoning."""
    parser = OutputParser("", "", False, response_template=template)
    parser.push(ResponseTemplate.parse(template).begun(last_text))
    return any(isinstance(part, Reasoning) for part in (*parser.push("?"), *parser.end()))


def _finds(name: str, text: str) -> bool:
    parser = OutputParser(name, "", False)  # of no tools, for which a format also reads the calls of others
    parts = [*parser.push(text), *parser.end()]
    names = [part.name for part in parts if isinstance(part, CallBegun)]
    arguments = "".join(part.text for part in parts if isinstance(part, Arguments))
    try:
        return names == [CALL.name] and json.loads(arguments) == CALL.arguments
    except ValueError:
        return False
