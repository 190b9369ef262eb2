"""One call of a client, from its arrival to its outcome. All simulated components share this record."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.outcomes import Outcome
from serving.cost import WEIGHT_ONE
from simulation.prompts import output_run


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedCall:
    """A call; times are in virtual seconds, and times of the answer are those at which the client receives it.

    A comment names the component that sets a field; each such field is set once.
    """

    number: int  # unique in a run
    client: str
    prompt: Sequence[int]  # emptied when no component needs it any more
    output_tokens: int
    arrival: float
    app: str = "default"
    interaction: str = ""
    stage: int = 0
    last: bool = False  # whether it is the last call of its interaction
    system_tokens: int = 0
    weight: int = WEIGHT_ONE
    user_weight: int = WEIGHT_ONE
    background: bool = False  # it takes only what no interactive call wants
    patience: float | None = None  # seconds until the client cancels it
    deadline: float | None = None  # virtual time by which it must have ended
    read_seconds: float = 0.0  # seconds that its client needs to read one message
    gateway: int = 0  # cluster: number of the gateway that handles it
    outcome: Outcome | None = None  # gateway
    worker: str = ""  # gateway: worker of the last attempt
    attempts: int = 0  # gateway
    cached_tokens: int = 0  # gateway: as reported by the worker
    received: int = 0  # output tokens at the gateway
    admitted_at: float | None = None  # worker: entered the running batch
    first_token_at: float | None = None
    ended_at: float | None = None
    digests: list[int] = field(default_factory=list)
    prompt_tokens: int = field(init=False)
    answer: range = field(init=False)  # the output tokens that it will receive

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.prompt)
        self.answer = output_run(self.number, 0, self.output_tokens)

    def release(self) -> None:
        """Drop the prompt and its digests, so that long runs fit in memory."""
        self.prompt, self.digests = (), []

    @property
    def first_token_latency(self) -> float:
        """Seconds from arrival to the first token. Raises ValueError when the call has received no token."""
        if self.first_token_at is None:
            raise ValueError(f"call {self.number} got no token")
        return self.first_token_at - self.arrival

    @property
    def latency(self) -> float:
        """Seconds from arrival to the end. Raises ValueError while the call is open."""
        if self.ended_at is None:
            raise ValueError(f"call {self.number} has not ended")
        return self.ended_at - self.arrival

    @property
    def completed(self) -> bool:
        """Whether the call received its full answer."""
        return self.outcome is Outcome.COMPLETED
