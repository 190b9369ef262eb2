"""Encoding of prompts of every kind as token ids and block digests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.errors import InvalidRequest, Unavailable, listed
from fairlead.token_ids import TOKEN_BYTES, pack_ids, unpack_ids
from fairlead.v1 import common_pb2, worker_pb2
from local_worker.prompt import Chat
from local_worker.tokenizer import Tokenizer
from serving.blocks import branch_seed, chain, root_seed, unpack_digests
from serving.prompt_size import check_characters, check_messages, check_token_ids

PUBLIC_SCOPE = ""  # cache scope of prefixes that all scopes share
CLIPPED = 128  # number of characters of an unknown model's name that an error message shows


@dataclass(frozen=True, slots=True)
class BlockChain:
    """The block chain of one prompt: `public_blocks` that all cache scopes share, then blocks of one scope."""

    digests: bytes  # packed digests of the full blocks
    public_blocks: int
    seed: int  # seed of the first block that is not public


@dataclass(frozen=True, slots=True)
class PromptEncoder:
    """The tokenizer, its vocabulary and the parameters of the block chains, for all models of the worker."""

    tokenizer: Tokenizer
    vocab_size: int
    block_tokens: int
    secret: str
    revisions: Mapping[str, str]  # model name -> revision, which contains no "@"
    max_tokens: int  # length of the longest prompt accepted
    has_public_blocks: bool = True  # whether cache scopes can share blocks

    def model(self, name: str) -> str:
        """Return the model that `name` means; an empty name means the first model.

        Raises Unavailable for a model that is not served here. The gateway then tries another worker, since its list of
        workers may be out of date.
        """
        if not name:
            return next(iter(self.revisions))
        if name not in self.revisions:
            served = listed(list(self.revisions))
            raise Unavailable(f"model: {name[:CLIPPED]!r} is not served by this worker, which serves {served}")
        return name

    def chain(self, packed: bytes, model: str, cache_scope: str, public_tokens: int) -> BlockChain:
        """Return the block chain of token ids for `model`; all cache scopes share the full blocks of the first
        `public_tokens`.

        Chains of different models, or of different revisions of a model, have no digest in common.
        """
        revised = f"{model}@{self.revisions[model]}"
        root = root_seed(self.secret, revised, cache_scope)
        public_blocks = public_tokens // self.block_tokens if self.has_public_blocks else 0
        if not public_blocks:
            return BlockChain(chain(packed, self.block_tokens, root), 0, root)
        cut = public_blocks * self.block_tokens * TOKEN_BYTES
        public = chain(packed[:cut], self.block_tokens, root_seed(self.secret, revised, PUBLIC_SCOPE))
        seed = branch_seed(unpack_digests(public)[-1], root)
        return BlockChain(public + chain(packed[cut:], self.block_tokens, seed), public_blocks, seed)

    def encode(self, request: worker_pb2.EncodeRequest, content: str | Chat | bytes) -> worker_pb2.EncodeResponse:
        """Return token ids and block digests of the prompt in `request`; called on a separate thread, one call at a
        time.

        The `content` is a text, a chat, or packed token ids. A text is encoded with the special tokens that the model
        expects before or after it, unless they are not wanted. All cache scopes share the chat's first message, a
        system message, if it is public.

        Raises InvalidRequest with the name of the field, TooLong for a prompt that cannot fit, Unavailable for a model
        that is not served here.
        """
        model, reply = self.model(request.model), worker_pb2.EncodeResponse()
        reply.output_format.SetInParent()
        match content:
            case str() as text:
                check_characters(len(text), self.max_tokens, self.tokenizer.longest_token)
                packed = pack_ids(self.tokenizer.encode(text, not request.without_special_tokens))
            case bytes() as packed:
                check_token_ids(len(packed) // TOKEN_BYTES, self.max_tokens)
            case chat:
                check_messages(len(chat.messages), self.max_tokens)
                characters = sum([len(message.content) for message in chat.messages])
                check_characters(characters, self.max_tokens, self.tokenizer.longest_token)
                encoded = self.tokenizer.encode_chat(chat)
                packed, reply.system_tokens = pack_ids(encoded.ids), encoded.system_tokens
                reply.output_format.MergeFrom(common_pb2.OutputFormat(**encoded.output_format._asdict()))
                reply.call_grammar = encoded.call_grammar
                reply.granted.extend(encoded.granted)
                if request.public_system and self.has_public_blocks:
                    reply.public_tokens = _shared(encoded.ids, self.tokenizer.encode_system(chat.messages[0].content))
        self.check_ids(packed, "prompt.token_ids")
        reply.token_ids = packed
        reply.digests = self.chain(packed, model, request.cache_scope, reply.public_tokens).digests
        reply.revision = self.revisions[model]
        return reply

    def decode(self, packed: bytes, model: str) -> str:
        """Return the text of packed token ids; called as `encode` is.

        Raises InvalidRequest for ids that are not in the vocabulary, Unavailable for a model that is not served here.
        """
        self.model(model)
        return self.tokenizer.decode(self.check_ids(packed, "token_ids"))

    def check_ids(self, packed: bytes, field: str) -> list[int]:
        """Return the ids in `packed`; raise InvalidRequest if they are missing, malformed or not in the vocabulary."""
        try:
            ids = unpack_ids(packed)
        except ValueError as error:
            raise InvalidRequest(str(error), field) from error
        if not ids:
            raise InvalidRequest("must hold at least 1 token, got 0", field)
        if max(ids) >= self.vocab_size:
            raise InvalidRequest(f"ids must be below the vocabulary size {self.vocab_size}, got {max(ids)}", field)
        return ids


def _shared(ids: Sequence[int], others: Sequence[int]) -> int:
    """Return the length of the common prefix of `ids` and `others`."""
    pairs = enumerate(zip(ids, others, strict=False))
    return next((k for k, (one, other) in pairs if one != other), min(len(ids), len(others)))
