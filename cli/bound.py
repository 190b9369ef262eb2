"""Text for a worker's fairness bound, also in seconds, which are easier to judge than cost units."""

from fairlead.v1 import scheduler_pb2

UNKNOWN = "-"


def units(load: scheduler_pb2.Load) -> str:
    """Format the bound in cost units."""
    return f"{load.fairness_bound:,.0f}" if load.fairness_bound else UNKNOWN


def seconds(load: scheduler_pb2.Load) -> str:
    """Format the bound in seconds: the time in which the worker, at its present rate, gives that much service."""
    return f"{load.fairness_bound / load.service_rate:,.0f}" if load.fairness_bound and load.service_rate else UNKNOWN


def part(load: scheduler_pb2.Load) -> str:
    """Format the worker's largest observed service gap as a percentage of the bound."""
    return f"{load.fairness_gap / load.fairness_bound:.1%}" if load.fairness_bound else UNKNOWN
