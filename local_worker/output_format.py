"""The format of a model's tool calls and reasoning, as far as its chat template shows it."""

import json
import logging
from collections.abc import Callable
from itertools import takewhile

from fairlead.errors import InvalidRequest
from fairlead.output.events import Arguments, CallBegun
from fairlead.output.parser import FORMATS, THINK, OutputParser
from fairlead.output.thinking import BEGIN, END
from local_worker.prompt import Chat, ChatMessage, EarlierCall, OutputFormat

log = logging.getLogger(__name__)
QUESTION = ChatMessage("user", "?")
CALL = EarlierCall("call00000", "probe", {"x": 1})  # Mistral's templates accept ids of nine characters only
TOOL = {"name": CALL.name, "description": "Probe.", "parameters": {"type": "object", "properties": {}}}
LAST_TOKENS = 8  # of a prompt, in whose text reasoning is seen to begin


def format_of_calls(render: Callable[[Chat], str]) -> str:
    """Return the name of the format in which the template writes a call, empty if it is none that is known.

    A model is to write calls as its template writes those of earlier messages. What it writes after the beginning of an
    answer is therefore parsed by each format: the one that finds the call is the model's.
    """
    asked = Chat((QUESTION,), tools=(TOOL,))
    called = Chat((QUESTION, ChatMessage("assistant", "", (CALL,))), add_generation_prompt=False, tools=(TOOL,))
    try:
        prompt, whole = render(asked).rstrip().removesuffix(BEGIN), render(called)
    except Exception as error:  # templates are programs and may raise anything; many know no tools
        log.info("the chat template renders no tool calls", extra={"reason": str(error)})
        return ""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(prompt, whole, strict=False))
    written = whole[sum(1 for _ in same) :]
    return next((name for name in FORMATS if _finds(name, written)), "")


def format_of_reasoning(template: str) -> str:
    """Return the name of the format of reasoning, empty if the template knows none."""
    return THINK if END in template else ""


def output_format(chat: Chat, tool_calls: str, reasoning: str, last_text: str) -> OutputFormat:
    """Return the format of the answer to a chat whose prompt ends with `last_text`.

    Raise InvalidRequest if the chat needs tool calls and their format is unknown.
    """
    if chat.needs_calls and not tool_calls:
        known = ", ".join(FORMATS)
        raise InvalidRequest(
            f"tools are not supported for this model: its chat template writes calls in no format of {known}",
            "prompt.chat.tools",
        )
    in_reasoning = bool(reasoning) and last_text.rstrip().endswith(BEGIN)
    return OutputFormat(tool_calls if chat.tools else "", reasoning, in_reasoning)


def _finds(name: str, text: str) -> bool:
    parser = OutputParser(name, "", False)
    parts = [*parser.push(text), *parser.end()]
    names = [part.name for part in parts if isinstance(part, CallBegun)]
    arguments = "".join(part.text for part in parts if isinstance(part, Arguments))
    try:
        return names == [CALL.name] and json.loads(arguments) == CALL.arguments
    except ValueError:
        return False
