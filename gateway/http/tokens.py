"""POST /tokenize and /detokenize, as vLLM has them, and what counts tokens in Anthropic's and OpenAI's APIs."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, worker_pb2
from gateway.http.api import Api
from gateway.http.chat_prompt import Message, chat_prompt
from gateway.http.common_fields import Natural
from gateway.http.decoding import check_supported, decode
from gateway.http.messages import conversation
from gateway.http.request import HttpRequest
from gateway.http.tools import ToolDefinition, tools_to_offer
from gateway.tenants import Credentials
from gateway.tokenization import Tokenization
from gateway.validation import MAX_MESSAGES
from serving.rpc.message_body_limiter import MessageBodyLimiter


class UnsupportedByTokenize(msgspec.Struct, kw_only=True):
    """Parameters that clients know and /tokenize does not obey."""

    return_token_strs: Any = None
    chat_template: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "return_token_strs": (False,),
}


class TokenizeRequest(UnsupportedByTokenize, kw_only=True):
    """The body of a request for tokens: a prompt, or the messages of a chat; unknown fields are ignored."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], msgspec.Meta(max_length=MAX_MESSAGES)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[ToolDefinition] | None = None

    def to_encode(self) -> worker_pb2.EncodeRequest:
        """Return the request to a worker; raises InvalidRequest."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidRequest("exactly one of prompt and messages must be given", "prompt")
        if self.messages is None:
            prompt = common_pb2.Prompt(text=self.prompt)
        elif self.add_special_tokens:
            raise InvalidRequest("the chat template alone adds special tokens to a chat", "add_special_tokens")
        else:
            prompt = chat_prompt(
                self.messages,
                self.add_generation_prompt,
                self.continue_final_message,
                self.chat_template_kwargs,
                tools_to_offer(self.tools, None),
                common_pb2.ToolChoice(),
                (),
            )
        return worker_pb2.EncodeRequest(
            model=self.model, prompt=prompt, without_special_tokens=self.add_special_tokens is False
        )


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """The body of a request for the text of tokens; unknown fields are ignored."""

    tokens: list[Natural]
    model: str | None = None


_TOKENIZE = msgspec.json.Decoder(TokenizeRequest)
_DETOKENIZE = msgspec.json.Decoder(DetokenizeRequest)


class TokenEndpoints:
    """Answers requests about tokens; each method returns the answer's body and raises FairleadError.

    `responses` returns what reads the requests for responses of a caller.
    """

    def __init__(
        self, tokenization: Tokenization, bodies: MessageBodyLimiter, responses: Callable[[Credentials], Api]
    ) -> None:
        self._tokenization = tokenization
        self._bodies = bodies
        self._responses = responses

    async def tokenize(self, request: HttpRequest) -> bytes:
        """Return a prompt's token ids."""

        async def receive() -> worker_pb2.EncodeRequest:
            asked = decode(_TOKENIZE, await request.body(self._bodies))
            check_supported(asked, UnsupportedByTokenize, HARMLESS)
            return asked.to_encode()

        ids, model = await self._tokenization.encode(receive, request.credentials)
        return msgspec.json.encode(
            {"count": len(ids), "max_model_len": model.max_model_tokens, "tokens": ids, "token_strs": None}
        )

    async def detokenize(self, request: HttpRequest) -> bytes:
        """Return the text of token ids."""

        async def receive() -> worker_pb2.DecodeRequest:
            asked = decode(_DETOKENIZE, await request.body(self._bodies))
            return worker_pb2.DecodeRequest(model=asked.model, token_ids=pack_ids(asked.tokens))

        return msgspec.json.encode({"prompt": await self._tokenization.decode(receive, request.credentials)})

    async def count(self, request: HttpRequest) -> bytes:
        """Return how many tokens a conversation of Anthropic's API has."""

        async def receive() -> worker_pb2.EncodeRequest:
            asked = conversation(await request.body(self._bodies))
            return worker_pb2.EncodeRequest(model=asked.model, prompt=asked.prompt())

        ids, _ = await self._tokenization.encode(receive, request.credentials)
        return msgspec.json.encode({"input_tokens": len(ids)})

    async def count_input(self, request: HttpRequest) -> bytes:
        """Return how many tokens the prompt of a response has, of which the body is that of the response."""

        async def receive() -> worker_pb2.EncodeRequest:
            asked = self._responses(request.credentials)(await request.body(self._bodies))
            return worker_pb2.EncodeRequest(model=asked.model, prompt=asked.generations()[0].prompt)

        ids, _ = await self._tokenization.encode(receive, request.credentials)
        return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": len(ids)})
