"""Prompts of every kind as token ids and block digests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.errors import InvalidRequest, Unavailable, listed
from fairlead.token_ids import TOKEN_BYTES, pack_ids, unpack_ids
from fairlead.v1 import worker_pb2
from local_worker.tokenizer import Tokenizer
from serving.blocks import branch_seed, chain, root_seed, unpack_digests
from serving.prompt_size import check_size

EVERYBODY = ""  # the cache scope of public prefixes
CLIPPED = 128  # characters of an unknown model's name that an error repeats


@dataclass(frozen=True, slots=True)
class BlockChain:
    """The block chain of one prompt: `public_blocks` that every cache scope shares, then blocks of one scope alone."""

    digests: bytes  # packed
    public_blocks: int
    seed: int  # of the first block that is not public


@dataclass(frozen=True, slots=True)
class PromptEncoder:
    """What it takes to read a prompt for any of the models: tokenizer and vocabulary, the deployment's block chain."""

    tokenizer: Tokenizer
    vocab_size: int
    block_tokens: int
    secret: str
    revisions: Mapping[str, str]  # of each model, by its name; a revision holds no "@"
    max_tokens: int  # the longest prompt accepted

    def model(self, name: str) -> str:
        """Return the model that a gateway means by `name`; an older one, which names none, means the first.

        Raises Unavailable for a model that is not served here: the gateway then asks another worker, since its list of
        workers may be out of date.
        """
        if not name:
            return next(iter(self.revisions))
        if name not in self.revisions:
            served = listed(list(self.revisions))
            raise Unavailable(f"model: {name[:CLIPPED]!r} is not served by this worker, which serves {served}")
        return name

    def chain(self, packed: bytes, model: str, cache_scope: str, public_tokens: int) -> BlockChain:
        """Return the chain of token ids under `model`, the first `public_tokens` of which may be shared by everybody.

        Chains of different models, and of different revisions of one, never meet.
        """
        revised = f"{model}@{self.revisions[model]}"
        root = root_seed(self.secret, revised, cache_scope)
        public_blocks = public_tokens // self.block_tokens
        if not public_blocks:
            return BlockChain(chain(packed, self.block_tokens, root), 0, root)
        cut = public_blocks * self.block_tokens * TOKEN_BYTES
        public = chain(packed[:cut], self.block_tokens, root_seed(self.secret, revised, EVERYBODY))
        seed = branch_seed(unpack_digests(public)[-1], root)
        return BlockChain(public + chain(packed[cut:], self.block_tokens, seed), public_blocks, seed)

    def encode(self, request: worker_pb2.EncodeRequest) -> worker_pb2.EncodeResponse:
        """See Encoder."""
        model = self.model(request.model)
        prompt, system_tokens, public_tokens = request.prompt, 0, 0
        check_size(prompt, self.max_tokens, self.tokenizer.longest_token)
        match prompt.WhichOneof("kind"):
            case "text":
                packed = pack_ids(self.tokenizer.encode(prompt.text))
            case "chat":
                messages = [(m.role, m.content) for m in prompt.chat.messages]
                encoded = self.tokenizer.encode_chat(messages)
                packed, system_tokens = pack_ids(encoded.ids), encoded.system_tokens
                if request.public_system:
                    public_tokens = _shared(encoded.ids, self.tokenizer.encode_system(messages[0][1]))
            case "token_ids":
                packed = prompt.token_ids.packed
            case _:
                raise InvalidRequest("one of text, chat and token_ids must be given", "prompt")
        self.check_ids(packed, "prompt.token_ids")
        return worker_pb2.EncodeResponse(
            token_ids=packed,
            digests=self.chain(packed, model, request.cache_scope, public_tokens).digests,
            system_tokens=system_tokens,
            public_tokens=public_tokens,
            revision=self.revisions[model],
        )

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


def _shared(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many leading ids are the same."""
    pairs = enumerate(zip(ids, others, strict=False))
    return next((k for k, (one, other) in pairs if one != other), min(len(ids), len(others)))
