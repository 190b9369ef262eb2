"""One call of a client, from its arrival to its outcome: the record that the simulated parts share."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fairlead.outcomes import Outcome
from serving.cost import WEIGHT_ONE
from simulation.prompts import output_run


@dataclass(slots=True, eq=False, kw_only=True)
class SimulatedCall:
    """Times in virtual seconds; those of the answer are when the client sees it. Set once by whoever is named."""

    number: int  # unique in a run
    client: str
    prompt: Sequence[int]  # emptied once nobody needs it any more
    output_tokens: int
    arrival: float
    app: str = "default"
    interaction: str = ""
    stage: int = 0
    last: bool = False  # of its interaction
    system_tokens: int = 0
    weight: int = WEIGHT_ONE
    patience: float | None = None  # seconds until the client cancels it
    deadline: float | None = None  # when it is to have ended
    read_seconds: float = 0.0  # that its client takes for each message
    outcome: Outcome | None = None  # gateway
    worker: str = ""  # gateway: of the last attempt
    attempts: int = 0  # gateway
    cached_tokens: int = 0  # gateway, as the worker says
    received: int = 0  # output tokens at the gateway
    admitted_at: float | None = None  # worker: entered the running batch
    first_token_at: float | None = None
    ended_at: float | None = None
    digests: list[int] = field(default_factory=list)
    prompt_tokens: int = field(init=False)
    answer: range = field(init=False)  # the tokens that it will be given

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.prompt)
        self.answer = output_run(self.number, 0, self.output_tokens)

    def release(self) -> None:
        """Forget the content: long runs would not fit in memory with it."""
        self.prompt, self.digests = (), []

    @property
    def first_token_latency(self) -> float:
        """Seconds from arrival to the first token; raises ValueError without one."""
        if self.first_token_at is None:
            raise ValueError(f"call {self.number} got no token")
        return self.first_token_at - self.arrival

    @property
    def latency(self) -> float:
        """Seconds from arrival to the end; raises ValueError before it."""
        if self.ended_at is None:
            raise ValueError(f"call {self.number} has not ended")
        return self.ended_at - self.arrival

    @property
    def completed(self) -> bool:
        """Whether it was answered in full."""
        return self.outcome is Outcome.COMPLETED
