"""Text for a worker's fairness bound, also in seconds, which are easier to judge than cost units."""

from fairlead.v1 import scheduler_pb2

UNKNOWN = "-"


def units(load: scheduler_pb2.Load) -> str:
    """Format the bound in cost units."""
    return f"{load.fairness_bound:,.0f}" if load.fairness_bound else UNKNOWN


def seconds(load: scheduler_pb2.Load) -> str:
    """Format the bound in seconds: the time in which the worker, when it is full, gives that much service."""
    return in_seconds(load.fairness_bound, load) if load.fairness_bound else UNKNOWN


def in_seconds(service: float, load: scheduler_pb2.Load) -> str:
    """Format the time in which the worker, when it is full, gives so much service; unknown before it was full."""
    if not load.service_rate:
        return UNKNOWN
    value = service / load.service_rate
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def part(load: scheduler_pb2.Load) -> str:
    """Format the worker's largest observed service gap as a percentage of the bound."""
    return _part(load.fairness_gap, load)


def level_part(load: scheduler_pb2.Load, level: str) -> str:
    """Format the largest observed gap between siblings of `level` as a percentage of the bound."""
    gaps = {each.level: each.gap for each in load.levels}
    return _part(gaps[level], load) if level in gaps else UNKNOWN


def _part(gap: float, load: scheduler_pb2.Load) -> str:
    return f"{gap / load.fairness_bound:.1%}" if load.fairness_bound else UNKNOWN
