"""A worker's fairness bound in words: as cost units it says little to a person, as time it does."""

from fairlead.v1 import scheduler_pb2

UNKNOWN = "-"


def units(load: scheduler_pb2.Load) -> str:
    """The bound in cost units."""
    return f"{load.fairness_bound:,.0f}" if load.fairness_bound else UNKNOWN


def seconds(load: scheduler_pb2.Load) -> str:
    """How long the worker takes, at its present pace, to give as much service as the bound allows a gap to be."""
    return f"{load.fairness_bound / load.service_rate:,.0f}" if load.fairness_bound and load.service_rate else UNKNOWN


def part(load: scheduler_pb2.Load) -> str:
    """How much of the bound the largest gap that the worker has seen takes up."""
    return f"{load.fairness_gap / load.fairness_bound:.1%}" if load.fairness_bound else UNKNOWN
