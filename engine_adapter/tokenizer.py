"""The engine's tokenizer and chat template, over its HTTP interface."""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from functools import cached_property
from typing import Any, TypeVar

from engine_adapter.engine_api import EngineAway, EngineRefused
from engine_adapter.vllm_api import VllmApi
from fairlead.errors import InvalidRequest, Unavailable
from local_worker.call_grammar import TOOL_CHOICE
from local_worker.chat_template import ChatTemplate
from local_worker.output_format import LAST_TOKENS, output_format, rendered_reasoning
from local_worker.prompt import Chat, tools_of, turns_of
from local_worker.tokenizer import EncodedChat

T = TypeVar("T")
# A guess that no vocabulary exceeds by much: the longest entries are runs of spaces. Texts that are longer than so many
# characters for each token of the context are refused before they are sent to the engine.
LONGEST_TOKEN = 256
HIDDEN = "mistral"  # the format whose calls begin with a special token, which is not in the text that an engine sends


def check_calls(chat: Chat) -> None:
    """Raise InvalidRequest if calls have to be made, or their arguments have to fit a schema."""
    if chat.choice.needs_call or any(chat.strict.values()):
        raise InvalidRequest("calls cannot be promised by a worker beside an engine", TOOL_CHOICE)


class EngineTokenizer:
    """A Tokenizer for threads other than that of `loop`, which makes the calls."""

    longest_token = LONGEST_TOKEN

    def __init__(self, api: VllmApi, model: str, loop: asyncio.AbstractEventLoop) -> None:
        self._api = api
        self._model = model
        self._loop = loop
        # The engine does not tell which variables its template knows, and ignores others.
        self._template = ChatTemplate(
            encode=self._rendered,
            text=self._text_of,
            knows=lambda _: True,
            calls_are_parsed=bool(api.response_template),
        )

    def encode(self, text: str, with_special_tokens: bool = True) -> list[int]:
        call = self._api.tokenize(model=self._model, prompt=text, add_special_tokens=with_special_tokens)
        ids = self._result(call, "prompt.text")
        if not ids:
            raise InvalidRequest("must hold at least 1 token, got 0", "prompt.text")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._result(self._api.detokenize(list(ids)), "token_ids")

    def encode_chat(self, chat: Chat) -> EncodedChat:
        """See Tokenizer. System tokens are those of the system messages' contents."""
        check_calls(chat)
        calls, reasoning = self._template.format_of_calls(chat) if chat.needs_calls else "", self._format_of_reasoning
        if calls == HIDDEN:
            raise InvalidRequest(
                f"an engine hides the token that begins calls in the format {calls}", "prompt.chat.tools"
            )
        ids, granted = self._template.encode(chat)
        template = self._api.response_template
        last_text = self.decode(ids[-LAST_TOKENS:]) if reasoning or template else ""
        answer = output_format(chat, calls, reasoning, last_text, template)
        system = "".join(message.content for message in chat.messages if message.role == "system")
        system_ids = self.encode(system, with_special_tokens=False) if system else []
        return EncodedChat(ids, min(len(system_ids), len(ids)), answer, granted=granted)

    def encode_system(self, content: str) -> list[int]:
        """Return no tokens: an engine keeps the blocks of each cache scope apart, so that no prefix is public."""
        return []

    def _rendered(self, chat: Chat) -> list[int]:
        """Return the token ids of a chat. In OpenAI's messages the arguments of calls are texts, which hold objects."""
        messages = turns_of(chat)
        for function in (call["function"] for turn in messages for call in turn.get("tool_calls", ())):
            arguments = function["arguments"]
            function["arguments"] = "{}" if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        offered = {} if (tools := tools_of(chat)) is None else {"tools": tools}
        call = self._api.tokenize(
            model=self._model,
            messages=messages,
            add_generation_prompt=chat.add_generation_prompt,
            continue_final_message=chat.continue_final_message,
            chat_template_kwargs=dict(chat.variables),
            **offered,
        )
        return self._result(call, "prompt.chat")

    def _text_of(self, chat: Chat) -> str:
        return self.decode(self._rendered(chat))

    @cached_property
    def _format_of_reasoning(self) -> str:
        return rendered_reasoning(self._text_of)

    def _result(self, call: Coroutine[Any, Any, T], field: str) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(call, self._loop).result()
        except EngineRefused as error:
            raise InvalidRequest(f"the engine refuses it: {error}", field) from error
        except EngineAway as error:
            raise Unavailable(f"the engine is away: {error}") from error
