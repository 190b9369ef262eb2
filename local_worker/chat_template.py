"""A model's chat template: chats are rendered in the form that it accepts, with the wishes that it knows."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from fairlead.errors import Unavailable
from local_worker import written_tools
from local_worker.output_format import format_of_calls
from local_worker.prompt import Chat
from local_worker.template_form import TemplateForm, form_of, needs_form

log = logging.getLogger(__name__)


class ChatTemplate:
    """A template that `encode` renders as token ids, and `text` as text; `knows` tells whether it has a variable.

    Where it writes calls in no format that is known, tools and calls are written into the messages. Where
    `calls_are_parsed` says that a response template reads the calls, none are, unless `writes_promised`: then those of
    chats that promise something of them, since there are no grammars of such templates.
    """

    def __init__(
        self,
        encode: Callable[[Chat], list[int]],
        text: Callable[[Chat], str],
        knows: Callable[[str], bool],
        *,
        calls_are_parsed: bool = False,
        writes_promised: bool = False,
    ) -> None:
        self._calls_are_parsed = calls_are_parsed
        self._writes_promised = writes_promised
        self._encode = encode
        self._text = text
        self._knows = knows

    def encode(self, chat: Chat) -> tuple[list[int], tuple[str, ...]]:
        """Return the token ids of `chat`, and the names of its wishes that the template was given.

        Raises whatever the template raises about the chat without its wishes.
        """
        chat = self._fitted(chat)
        wishes = {name: value for name, value in chat.wishes.items() if name not in chat.variables}
        if granted := {name: value for name, value in wishes.items() if self._knows(name)}:
            try:
                return self._encode(replace(chat, variables={**chat.variables, **granted})), tuple(granted)
            except Unavailable:
                raise
            except Exception:  # templates are programs: some raise for an effort of a name that they do not know
                log.info("the chat template rejects wishes", extra={"wishes": sorted(granted)})
        return self._encode(chat), ()

    def format_of_calls(self, chat: Chat) -> str:
        """Return the name of the format of calls in an answer to `chat`; empty if a response template reads them."""
        return self._own_format or (written_tools.FORMAT if self.writes_tools(chat) else "")

    def writes_tools(self, chat: Chat) -> bool:
        """Return whether tools and calls of `chat` are written into its messages."""
        is_written = not self._calls_are_parsed or (self._writes_promised and chat.promises_calls)
        return is_written and not self._own_format

    @cached_property
    def _own_format(self) -> str:
        return format_of_calls(lambda chat: self._text(self._formed(chat)))

    def _fitted(self, chat: Chat) -> Chat:
        if written_tools.has_calls(chat) and self.writes_tools(chat):
            chat = written_tools.with_written_calls(chat)
        return self._formed(chat)

    def _formed(self, chat: Chat) -> Chat:
        return self._form.fitted(chat) if needs_form(chat) else chat

    @cached_property
    def _form(self) -> TemplateForm:
        return form_of(self._text)


# Tags that transformers adds to the language: they mark what the assistant generates, for training.
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


def template_variables(template: str) -> frozenset[str]:
    """Return the names of the variables that `template` uses; none for one that Jinja cannot read."""
    from jinja2 import Environment, TemplateError, meta

    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_GENERATION.sub("", template))))
    except TemplateError as error:
        log.info("the chat template's variables are not known", extra={"reason": str(error)})
        return frozenset()
