"""One request at one worker: a record that the parts of the core share."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.token_ids import TOKEN_BYTES, pack_ids
from local_worker.core.accounts.account import Account, Path
from local_worker.core.batch import SampledLogprobs
from local_worker.core.output_text import NoText, Text
from serving.cost import WEIGHT_ONE
from serving.sampling_params import SamplingParams


class CachedBlock(NamedTuple):
    """The contents of one published page."""

    digest: int
    tokens: bytes  # packed, as on the wire
    parent: int | None  # page of the previous block
    page: int


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """A data record, compared by identity and ordered by `arrival`.

    It is one attempt of a call at one worker. The comment on a field names the part of the worker that may change it;
    the other fields never change. Times are in seconds on the clock of the core's `now`; the time of an event that has
    not happened is None.
    """

    id: str
    client: str  # the fairness key
    tokens: list[int]  # prompt (with the output of earlier attempts), then output (appended by Batcher, ExternalBatch)
    prompt_tokens: int  # length of `tokens` at arrival: the index at which this worker's output begins
    digests: list[int]  # block chain of the prompt, then of the output (PrefixCache)
    chain_seed: int  # seed of the first block of the chain that is not public
    packed: bytes = b""  # the leading `tokens` as on the wire, as far as they are packed (PrefixCache, `packed_to`)
    sampling: SamplingParams
    arrival: int  # sequence number of the arrival at this worker: breaks every tie
    attempt: int = 1  # number of the attempt of the call `id`
    owner: Hashable = None  # receives the request's events: a gateway's stream
    tokens_per_message: int = 1  # number of tokens that are enough for a message to the owner
    cache_scope: str = ""  # requests of different scopes share no prefix but public blocks
    model: str = ""  # name of the requested model, if the engine serves several
    public_blocks: int = 0  # number of leading blocks that every cache scope shares
    system_tokens: int = 0  # number of leading prompt tokens that belong to system messages
    weight: int = WEIGHT_ONE  # share x norm in thousandths, frozen at arrival
    seed_position: int = 0  # number of output tokens of earlier attempts: the sampling counter continues from it
    user_weight: int = WEIGHT_ONE  # the user's share within its tenant x norm in thousandths, frozen at arrival
    interaction: str = ""  # id of its interaction, of the root where sessions form a tree; empty: none
    in_interaction: bool = False
    ends_interaction: bool = False  # its caller has declared that no further call of the interaction will come
    background: bool = False  # whether it takes only what no interactive request wants
    deadline: float | None = None  # None: no deadline
    text: Text = field(default_factory=NoText)  # decodes the output (set by the backend)
    queued_at: float = 0.0  # set by the service
    started_at: float | None = None  # first entry into the running batch (WorkerMachine)
    first_token_at: float | None = None  # WorkerMachine
    ended_at: float | None = None  # WorkerMachine
    # Number of tokens whose keys and values are in the pages, or will be after the last plan (Batcher, InFlight).
    computed: int = 0
    in_flight: int = 0  # number of tokens that planned steps sample but that are not yet in `tokens` (InFlight)
    cached: int = 0  # number of prompt tokens found in the prefix cache at the first admission (RequestQueue)
    matched_blocks: int = 0  # number of blocks found at the last lookup in the prefix cache (PrefixCache)
    found: list[CachedBlock] = field(default_factory=list)  # blocks whose contents were compared (PrefixCache)
    # Number of leading tokens that were cached at the first admission, or for which the client was charged, here
    # (RequestQueue) or by an earlier worker.
    charged: int = 0
    reserved: int = 0  # number of output tokens charged ahead, including those generated since (ServiceLedger)
    service: int = 0  # service received so far in micro-units, not divided by the weight (ServiceLedger)
    preemptions: int = 0  # number of times the request was taken out of the running batch (RequestQueue)
    scores: list[SampledLogprobs] = field(default_factory=list)  # of the prompt, until they are reported (Batcher)
    pages: list[int] = field(default_factory=list)  # page numbers, in order of position (PrefixCache)
    shared: int = 0  # number of leading `pages` that are published in the cache (PrefixCache)
    path: Path = ()  # names of its accounts, the highest first; set once, when it is submitted
    account: Account = field(init=False)  # at the end of its path (AccountTree)
    accounts: tuple[Account, ...] = field(init=False)  # its lineage; its client's account comes last (AccountTree)
    budget: int = field(init=False)  # largest possible number of tokens: the prompt and the whole output
    is_exempt: bool = field(init=False)  # whether it is never dropped from the queue for another request
    is_penalised: bool = field(init=False)  # whether earlier tokens change the distribution of the next token
    # Whether the log-probabilities of the prompt are requested and neither this worker nor an earlier one has reported
    # them with the first token of the output: until then no step may skip a part of the prompt (Batcher).
    scores_prompt: bool = field(init=False)

    def __post_init__(self) -> None:
        self.budget = self.prompt_tokens + self.sampling.max_tokens
        self.is_exempt = self.in_interaction or self.seed_position > 0
        self.is_penalised = self.sampling.has_penalties
        self.scores_prompt = self.sampling.prompt_logprobs is not None and not self.seed_position

    @property
    def output_tokens(self) -> int:
        """The number of tokens that this worker has generated for the request."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def is_charged(self) -> bool:
        """Whether the client was charged for all of the prompt."""
        return self.charged >= self.prompt_tokens

    def packed_to(self, stop: int) -> bytes:
        """Return what is known of the first `stop` tokens as on the wire; each token is packed once."""
        count = len(self.packed) // TOKEN_BYTES
        if count < stop:
            self.packed += pack_ids(self.tokens[count:])
        return self.packed[: stop * TOKEN_BYTES]

    def take_scores(self) -> list[SampledLogprobs]:
        """Remove and return the log-probabilities of the prompt's tokens, with the first token of the output."""
        scores, self.scores, self.scores_prompt = self.scores, [], False
        return scores

    @property
    def due(self) -> int:
        """The number of tokens whose keys and values should be computed by now, tokens in flight included.

        It never counts the last token of the budget: no token follows, so its keys and values are not needed.
        """
        known, most = len(self.tokens) + self.in_flight, self.budget - 1
        return known if known < most else most
