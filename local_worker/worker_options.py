"""The options that every kind of worker has."""

from dataclasses import dataclass

from local_worker.core.accounts.tree import FairnessLevels
from local_worker.core.policies import POLICIES
from serving.config import (
    ConfigError,
    addresses,
    check_positive,
    option,
    require,
)
from serving.service_options import ServiceOptions, scheduler_option

WILDCARDS = ("", "0.0.0.0", "[::]")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions(ServiceOptions):
    """The options of a worker that do not depend on its engine; serving.config says where values come from."""

    listen: str = option(
        "127.0.0.1:7100",
        "Gateways reach this worker at this address. Port 0 picks a free one.",
        unit="host:port",
        change_when="Gateways are on other machines, or several workers share this one.",
    )
    advertise: str = option(
        "",
        "Gateways are told to use this address instead of `listen`. Without it they are told `listen`.",
        unit="host:port",
        change_when="The worker listens on all addresses of its machine, or behind network address translation.",
    )
    scheduler: str = scheduler_option()
    name: str = option(
        "",
        "The worker has this name in metrics, logs and `fairlead status`. Without it the name is host name and port.",
        unit="text",
        change_when="The name should be the same after a restart, on another port.",
    )
    max_prompt_tokens: int | None = option(
        None,
        "Longer prompts are refused (L_input of the bound). Without it a prompt may fill model or cache, less a block.",
        unit="tokens",
        change_when="Long prompts are not wanted, or the bound of fairness should be smaller.",
    )
    # The queue holds this many requests. When it is full, the tenant with most loses the newest request of its user
    # with most.
    max_waiting: int = 4096
    policy: str = option(
        "dlpm",
        "This policy orders the queue. `dlpm`, `drr` and `vtc` have a bound of fairness, the others have none; only "
        "`dlpm` follows cached prefixes.",
        choices=tuple(POLICIES),
        change_when="Requests share no prefixes (`vtc`; `vtc-predict` where output lengths repeat), apps differ in the "
        "tokens that they need (`wsc`), or there is only one user (`fcfs`).",
    )
    fairness_levels: str = option(
        "tenant,user",
        "`dlpm` divides the service among the members of each level, and the part of each among the level below it: "
        "some of `tenant`, `user` and `interaction`, separated by commas in this order, the first of them `tenant` or "
        "`user`. Other policies are fair among users.",
        unit="names",
        change_when="Each user should have its tenant's whole share (`user`), or a user's agents should not delay each "
        "other, at the price of some locality (`tenant,user,interaction`).",
    )
    quantum_tokens: int | None = option(
        None,
        "Q^u: a refill grants a client this much service. The bound of fairness grows by twice as much. Without it "
        "these are 64 at a worker on a CPU, and 512 at others.",
        unit="cost units",
        change_when="The hit rate is low although prefixes repeat (more), or the bound is too wide (less). "
        "`fairlead tune` recommends a number.",
    )
    drain_seconds: float = option(
        20.0,
        "Running requests have this time to finish after SIGTERM. Gateways place the rest again.",
        unit="seconds",
        change_when="Requests take longer. The grace period of the pod or of the service manager has to cover it.",
    )

    def __post_init__(self) -> None:
        ServiceOptions.__post_init__(self)
        _ = self.schedulers
        try:
            FairnessLevels.parse(self.fairness_levels)
        except ValueError as error:
            raise ConfigError(f"fairness_levels: {error}") from error
        check_positive(self, "max_prompt_tokens", "quantum_tokens")
        require(
            self.advertise != "" or self.listen.rpartition(":")[0] not in WILDCARDS,
            f"advertise: must be given, since gateways cannot reach a worker at {self.listen}",
        )

    @property
    def schedulers(self) -> list[str]:
        """The address of every scheduler to which the worker attaches."""
        return addresses(self.scheduler, "scheduler")
