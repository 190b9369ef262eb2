"""Which process a span or a metric is of."""

from functools import lru_cache

from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource

MOST_PROCESSES = 1024  # of which the latest named are kept


@lru_cache(MOST_PROCESSES)
def resource(service: str, instance: str) -> Resource:
    """The process `instance` of `service`; an empty instance stands for this process."""
    named = {SERVICE_INSTANCE_ID: instance} if instance else {}
    return Resource.create({SERVICE_NAME: service, **named})
