"""One random test of the whole system: a seed draws a small system and its faults, and the oracle watches it."""

import hashlib
import random

from lab.rehearsal.faults import cut_from_limits, draw, inject, lose_events
from lab.rehearsal.oracle import EVERY, run_watched
from lab.rehearsal.random_systems import (
    SECONDS,
    RandomPrograms,
    calm,
    draw_spec,
    flood,
    with_gateways,
    with_levels,
    with_preemption,
    with_tenant_limit,
)
from lab.rehearsal.sharing_cluster import SharingCluster
from simulation.run_log import RunLog


def rehearse(seed: int, every: int = EVERY) -> RunLog:
    """Run the system of `seed`; raises AssertionError when it violates a guarantee. For `every` see Oracle."""
    rng = random.Random(seed)
    load = rng.choice([calm, flood])(rng)
    spec = with_levels(with_gateways(draw_spec(rng, load), rng), random.Random(f"levels {seed}"))
    spec = with_preemption(spec, random.Random(f"preemption {seed}"))
    spec = with_tenant_limit(spec, random.Random(f"tenant limit {seed}"))
    cluster = SharingCluster(spec, RandomPrograms(rng, load).workload())
    inject(cluster, draw(rng, cluster, load.faults, SECONDS))
    if spec.gateways > 1:
        cut_from_limits(cluster, rng, rng.choice([0, 0, 2]), SECONDS)
    lose_events(cluster, random.Random(rng.random()), rng.choice([0.0, 0.3]))
    return run_watched(cluster, every)


def digest(run_log: RunLog) -> str:
    """Return a digest that is equal for two runs exactly when their records are equal."""
    text = hashlib.sha256()
    for call in run_log.calls:
        fields = (call.number, call.client, call.worker, call.attempts, call.outcome, call.received)
        times = (call.arrival, call.admitted_at, call.first_token_at, call.ended_at, call.cached_tokens)
        text.update(repr((*fields, *times)).encode())
    text.update(repr((run_log.steps, run_log.seconds, list(run_log.service.items()))).encode())
    return text.hexdigest()
