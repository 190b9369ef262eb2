"""Prompts of every kind as token ids and block digests."""

from dataclasses import dataclass

from fairlead.blocks import chain, pack_ids, root_seed, unpack_ids
from fairlead.errors import InvalidRequest
from fairlead.v1 import worker_pb2
from local_worker.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompts:
    """What it takes to read a prompt: the tokenizer, the model's vocabulary, the deployment's block chain."""

    tokenizer: Tokenizer
    vocab_size: int
    block_tokens: int
    secret: str
    model: str

    def seed(self, cache_scope: str) -> int:
        """The seed of the scope's block chains."""
        return root_seed(self.secret, self.model, cache_scope)

    def encode(self, request: worker_pb2.EncodeRequest) -> worker_pb2.EncodeResponse:
        """Raises InvalidRequest naming the field."""
        prompt, system_tokens = request.prompt, 0
        match prompt.WhichOneof("kind"):
            case "text":
                packed = pack_ids(self.tokenizer.encode(prompt.text))
            case "chat":
                encoded = self.tokenizer.encode_chat([(m.role, m.content) for m in prompt.chat.messages])
                packed, system_tokens = pack_ids(encoded.ids), encoded.system_tokens
            case "token_ids":
                packed = prompt.token_ids.packed
            case _:
                raise InvalidRequest("one of text, chat and token_ids must be given", "prompt")
        self.check_ids(packed, "prompt.token_ids")
        digests = chain(packed, self.block_tokens, self.seed(request.cache_scope))
        return worker_pb2.EncodeResponse(token_ids=packed, digests=digests, system_tokens=system_tokens)

    def check_ids(self, packed: bytes, field: str) -> list[int]:
        """The ids of `packed`; raises InvalidRequest when it is empty, malformed or outside the vocabulary."""
        try:
            ids = unpack_ids(packed)
        except ValueError as error:
            raise InvalidRequest(str(error), field) from error
        if not ids:
            raise InvalidRequest("must hold at least 1 token, got 0", field)
        if max(ids) >= self.vocab_size:
            raise InvalidRequest(f"ids must be below the vocabulary's {self.vocab_size}, got {max(ids)}", field)
        return ids
