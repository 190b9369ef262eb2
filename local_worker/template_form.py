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
TOOL = {"name": "probe", "description": "Probe.", "parameters": {"type": "object", "properties": {}}}
Render = Callable[[Chat], str]


class TemplateForm(NamedTuple):
    """The form: whether arguments of calls may be objects, or texts, and whether system messages may stand anywhere."""

    takes_objects: bool = True
    takes_texts: bool = True
    takes_late_systems: bool = True

    def fitted(self, chat: Chat) -> Chat:
        """Return `chat` in this form.

        What is no object is rendered as text, or as no arguments. System messages at the beginning become one, and
        later ones messages of the user, which tell it at the same place.
        """
        messages = chat.messages
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
    """Return the form that a template accepts, which `render` shows."""
    takes_objects, takes_texts = (_renders_call(render, arguments) for arguments in ({"x": 1}, '{"x": 1}'))
    rules = _rendered(render, RULES)
    return TemplateForm(
        takes_objects=takes_objects or not takes_texts,
        takes_texts=takes_texts,
        takes_late_systems=all(rule in rules for rule in (FIRST, SECOND, LATE)),
    )


def _renders_call(render: Render, arguments: Any) -> bool:
    call = EarlierCall("call00000", "probe", arguments)  # Mistral's templates accept ids of nine characters only
    called = ChatMessage("assistant", "", (call,))
    return bool(_rendered(render, Chat((QUESTION, called), add_generation_prompt=False, tools=(TOOL,))))


def _rendered(render: Render, chat: Chat) -> str:
    """Return the text of `chat`, empty if the template rejects it."""
    try:
        return render(chat)
    except Unavailable:
        raise
    except Exception:  # templates are programs and may raise anything
        return ""


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
