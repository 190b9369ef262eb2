"""The global scheduler's configuration."""

from dataclasses import dataclass

from global_scheduler.common_configuration import configured_leadership, configured_quantum
from global_scheduler.core.fleet import STEP_TIMEOUT
from global_scheduler.core.policies import DEFAULT_POLICY, POLICIES
from global_scheduler.leadership import Leadership
from serving.config import check_positive, option
from serving.service_options import ServiceOptions, admin_secret_option


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig(ServiceOptions):
    """The options of the global scheduler; serving.config says where values come from."""

    listen: str = option(
        "127.0.0.1:7050",
        "Gateways and workers reach the scheduler at this address. Port 0 picks a free one.",
        unit="host:port",
        change_when="Gateways or workers are on other machines.",
    )
    policy: str = option(
        DEFAULT_POLICY,
        "This policy chooses the worker of a request. `least-delay`, `doubleq` and `per-client-round-robin` have a "
        "bound of fairness over all workers; `least-delay` and `doubleq` follow cached prefixes.",
        choices=tuple(POLICIES),
        change_when="You compare policies on a cluster. `fairlead simulate --route` compares them on your own trace.",
    )
    quantum_tokens: int | None = option(
        None,
        "Q^w of `doubleq`, and only for it: after this much service from one worker a client's next requests go to "
        "another. Without it these are 4096.",
        unit="cost units",
        change_when="Prefixes are computed again on many workers (more), or clients queue at one worker while others "
        "are idle (less). `fairlead tune` recommends a number.",
    )
    # A worker that has requests but makes no step for this time gets no more of them until its next step, and gateways
    # place those that it has again.
    step_timeout: float = STEP_TIMEOUT  # seconds
    redis: str = option(
        "",
        "The Redis at this URL decides which of several schedulers leads. Without it this scheduler leads.",
        unit="URL",
        change_when="A second scheduler stands by.",
    )
    admin_secret: str = admin_secret_option()

    def __post_init__(self) -> None:
        ServiceOptions.__post_init__(self)
        check_positive(self, "quantum_tokens")
        _ = self.quantum

    @property
    def quantum(self) -> int:
        """Return DoubleQ's quantum Q^w, in cost units; raises ConfigError when another policy is given one."""
        return configured_quantum(self.policy, self.quantum_tokens)

    @property
    def leadership(self) -> Leadership:
        """Return the configured leadership: a lease in Redis, or sole leadership; raises ConfigError."""
        return configured_leadership(self.redis, "scheduler")
