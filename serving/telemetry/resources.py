"""OpenTelemetry resources: the process to which a span or a metric belongs."""

from functools import lru_cache

from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource

MOST_PROCESSES = 1024  # resources that are cached; the least recently used one is dropped


@lru_cache(MOST_PROCESSES)
def resource(service: str, instance: str) -> Resource:
    """Return the resource of process `instance` of `service`; an empty instance means this process."""
    named = {SERVICE_INSTANCE_ID: instance} if instance else {}
    return Resource.create({SERVICE_NAME: service, **named})
