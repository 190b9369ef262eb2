"""The reasons for refused calls."""

from collections import Counter

from fairlead.outcomes import Outcome
from simulation.run import SimulationRun
from simulation.spec import ClusterSpec


def reasons(run: SimulationRun, spec: ClusterSpec) -> list[str]:
    """Return each reason for refusals with the number of calls and the limit that refused them."""
    limits = {
        Outcome.REJECTED_TOO_LONG: f"max_prompt_tokens {spec.worker.max_prompt_tokens}, "
        f"kv_tokens {spec.worker.kv_tokens}",
        Outcome.REJECTED_QUEUE_FULL: f"max_waiting {spec.worker.max_waiting}",
        Outcome.THROTTLED_USER: f"user_per_minute {spec.limits.user_per_minute}",
        Outcome.THROTTLED_APP: f"app_per_minute {spec.limits.app_per_minute}",
        Outcome.THROTTLED_TENANT: f"tenant_per_minute {spec.limits.tenant_per_minute}",
        Outcome.THROTTLED_MEMORY: f"kv_tokens {spec.worker.kv_tokens} of each worker",
    }
    counts = Counter(record.outcome for record in run.records if not record.completed)
    return [
        f"{count} {outcome.name.lower().replace('_', ' ')}" + (f" ({limits[outcome]})" if outcome in limits else "")
        for outcome, count in sorted(counts.items())
    ]
