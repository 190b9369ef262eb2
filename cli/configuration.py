"""The configurations that `fairlead simulate` and `fairlead tune` compare: two policies, their quanta, and rate
limits."""

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from cli.limit_options import NAMES, READ_BY
from cli.pool_options import scenario
from fairlead.errors import InvalidRequest
from global_scheduler.core.policies import DEFAULT_POLICY
from serving.environment import ServiceName, variable
from simulation.run import Scenario
from simulation.spec import SERVED_POLICIES, SERVED_ROUTES
from throttler.core.profiles import RateLimits
from throttler.core.throttles import THROTTLES

# The policies that use a quantum; it has no effect on the others.
LOCAL_QUANTUM = ("dlpm", "drr")
ROUTE_QUANTUM = ("doubleq",)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration of a comparison; `limits` are pairs of a name and calls per minute."""

    policy: str
    route: str = DEFAULT_POLICY
    quantum_tokens: int = 512
    route_quantum_tokens: int = 4096
    limits: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The policies, each with its quantum if it uses one, and the limits."""
        local = f"{self.policy} Q^u={self.quantum_tokens}" if self.policy in LOCAL_QUANTUM else self.policy
        route = f"{self.route} Q^w={self.route_quantum_tokens}" if self.route in ROUTE_QUANTUM else self.route
        return ", ".join([f"{local} + {route}", *(f"{NAMES[limit]}={value}" for limit, value in self.limits)])

    def scenario(self, args: argparse.Namespace) -> Scenario:
        """Return this configuration on the pool and the trace that the options describe."""
        limits = RateLimits(**dict(self.limits))
        return scenario(args, self.policy, self.route, self.quantum_tokens, self.route_quantum_tokens, limits)

    def settings(self, throttle: str) -> list[str]:
        """Return the options that set this configuration, by service, as arguments and as environment variables.

        The gateway's options are left out when no throttle was simulated.
        """
        worker: dict[str, object] = {"policy": self.policy}
        scheduler: dict[str, object] = {"policy": self.route}
        if self.policy in LOCAL_QUANTUM:
            worker["quantum_tokens"] = self.quantum_tokens
        if self.route in ROUTE_QUANTUM:
            scheduler["quantum_tokens"] = self.route_quantum_tokens
        limits = RateLimits(**dict(self.limits))
        numbers = ",".join(str(getattr(limits, limit)) for limit in READ_BY[throttle])
        gateway: dict[str, object] = {"throttle": f"{throttle}:{numbers}" if numbers else throttle}
        by_service = {ServiceName.WORKER: worker, ServiceName.SCHEDULER: scheduler}
        if throttle in THROTTLES and throttle != "none":
            by_service[ServiceName.GATEWAY] = gateway
        lines = [_setting(service, options) for service, options in by_service.items()]
        if self.policy not in SERVED_POLICIES:
            lines[0] = f"workers do not offer the policy {self.policy}: only the simulator has it"
        if self.route not in SERVED_ROUTES:
            lines[1] = f"the scheduler does not offer the policy {self.route}: only the simulator has it"
        if throttle not in THROTTLES:
            lines.append(f"gateways do not offer the throttle {throttle}: only the simulator has it")
        return lines


def _setting(service: ServiceName, options: dict[str, object]) -> str:
    arguments = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    variables = " ".join(f"{variable(service, name)}={value}" for name, value in options.items())
    return f"{service.value.lower()}: {arguments}   or   {variables}"


def check_quantum_is_used(given: object, routes: Collection[str]) -> None:
    """Raise InvalidRequest when Q^w is `given` for routes of which none has a quantum."""
    if given is not None and not any(route in ROUTE_QUANTUM for route in routes):
        raise InvalidRequest(
            f"only the route {', '.join(ROUTE_QUANTUM)} has a quantum, got {', '.join(routes)}",
            "--route-quantum-tokens",
        )


def policy_names(option: str, text: str, known: Collection[str]) -> list[str]:
    """Split an option's comma-separated policy names; raises InvalidRequest when one of them is unknown."""
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidRequest(
            f"unknown policy: {', '.join(unknown)}; known policies: {', '.join(sorted(known))}", option
        )
    return names
