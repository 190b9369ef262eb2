"""The form of chats that a chat template accepts, and chats in that form."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

from fairlead.errors import Unavailable
from local_worker.prompt import Chat, ChatMessage, EarlierCall

log = logging.getLogger(__name__)
SYSTEM, USER = "system", "user"
FIRST, SECOND, LATE = "A first rule.", "A second rule.", "A late rule."
QUESTION, ANSWER = ChatMessage(USER, "?"), ChatMessage("assistant", "!")
RULES = Chat(
    (
        ChatMessage(SYSTEM, FIRST),
        ChatMessage(SYSTEM, SECOND),
        QUESTION,
        ChatMessage(SYSTEM, LATE),
        ANSWER,
        QUESTION,
    )
)
CALL = EarlierCall("call00000", "probe", {"x": 1})  # Mistral's templates accept ids of nine characters only
CALLED = Chat((QUESTION, ChatMessage("assistant", "", (CALL,))), add_generation_prompt=False)
TOOL = {"name": CALL.name, "description": "Probe.", "parameters": {"type": "object", "properties": {}}}
Render = Callable[[Chat], str]


class TemplateForm(NamedTuple):
    """The form: whether arguments of calls may be objects, or texts, and whether system messages may stand anywhere.

    `calls_by_id` says that the template writes the id of a call in place of the function's name, as Kimi's do.
    """

    takes_objects: bool = True
    takes_texts: bool = True
    takes_late_systems: bool = True
    calls_by_id: bool = False

    def fitted(self, chat: Chat) -> Chat:
        """Return `chat` in this form.

        What is no object is rendered as text, or as no arguments. System messages at the beginning become one, and
        later ones messages of the user, which tell it at the same place. An id that stands for a name has it.
        """
        messages = tuple(_named_by_ids(chat.messages)) if self.calls_by_id else chat.messages
        if not self.takes_late_systems and any(message.role == SYSTEM for message in messages[1:]):
            messages = tuple(_system_first(messages))
        if any(message.tool_calls for message in messages):
            messages = tuple(self._with_arguments(message) for message in messages)
        return replace(chat, messages=messages)

    def _with_arguments(self, message: ChatMessage) -> ChatMessage:
        calls = tuple(call._replace(arguments=self._arguments(call.arguments)) for call in message.tool_calls)
        return message._replace(tool_calls=calls)

    def _arguments(self, arguments: Any) -> Any:
        if isinstance(arguments, str):
            return arguments if self.takes_texts else {}
        return arguments if self.takes_objects else json.dumps(dict(arguments), ensure_ascii=False)


def needs_form(chat: Chat) -> bool:
    """Return whether some templates accept `chat` only in a form of their own."""
    return any(message.tool_calls or message.role == SYSTEM for message in chat.messages[1:])


def form_of(render: Render) -> TemplateForm:
    takes_objects, takes_texts = (_renders_call(render, arguments) for arguments in ({"x": 1}, '{"x": 1}'))
    rules = _rendered(render, RULES)
    called = _rendered(render, CALLED)
    return TemplateForm(
        takes_objects=takes_objects or not takes_texts,
        takes_texts=takes_texts,
        takes_late_systems=all(rule in rules for rule in (FIRST, SECOND, LATE)),
        calls_by_id=CALL.id in called and CALL.name not in called,
    )


def _renders_call(render: Render, arguments: Any) -> bool:
    called = ChatMessage("assistant", "", (CALL._replace(arguments=arguments),))
    return bool(_rendered(render, Chat((QUESTION, called), add_generation_prompt=False, tools=(TOOL,))))


def _rendered(render: Render, chat: Chat) -> str:
    """Return the text of `chat`, empty if the template rejects it."""
    try:
        return render(chat)
    except Unavailable:
        raise
    except Exception:  # templates are programs and may raise anything
        return ""


def _named_by_ids(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Yield the messages with ids of calls such as `functions.weather:0`, which count those of the chat."""
    ids: dict[str, str] = {}
    number = 0
    for message in messages:
        calls = []
        for call in message.tool_calls:
            ids[call.id] = f"functions.{call.name}:{number}"
            calls.append(call._replace(id=ids[call.id]))
            number += 1
        result = message.tool_call_id
        yield message._replace(tool_calls=tuple(calls), tool_call_id=ids.get(result, result))


def _system_first(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    first = [message.content for message in takewhile(lambda message: message.role == SYSTEM, messages)]
    if first:
        yield ChatMessage(SYSTEM, "\n\n".join(first))
    turn: list[str] = []  # of the user, which goes on
    is_joined = False  # whether a system message stands in it, or before the next message
    for message in messages[len(first) :]:
        if message.role == SYSTEM or (message.role == USER and is_joined):
            turn.append(message.content)
            is_joined = True
            continue
        if turn:
            yield ChatMessage(USER, "\n\n".join(turn))
        turn, is_joined = ([message.content], False) if message.role == USER else ([], False)
        if message.role != USER:
            yield message
    if turn:
        yield ChatMessage(USER, "\n\n".join(turn))
