"""DLPM beside VTC, LPM and first come, first served, in the device's time (DLPM, Figures 1 and 11)."""

from collections.abc import Iterator

from lab.bench.gpu.contention import Queue, contend
from lab.bench.gpu.row import Row
from lab.bench.gpu.subject import Subject


def rows(subject: Subject) -> Iterator[Row]:
    """Yield a row per number of clients and policy; the cache is empty at the start of each."""
    engine, scale = subject.engine, subject.scale
    warm_up = Queue(scale.policies[0], scale.quantum, scale.policy_kv_tokens)
    contend(engine, warm_up, 2, engine.vocab_size, scale.policy_seconds / 10)
    for clients in scale.clients:
        rates: dict[str, float] = {}
        for policy in scale.policies:
            queue = Queue(policy, scale.quantum, scale.policy_kv_tokens)
            found = contend(engine, queue, clients, engine.vocab_size, scale.policy_seconds)
            rates[policy] = found.rate
            bound = {} if found.bound is None else {"bound": found.bound, "within": found.gap <= found.bound}
            yield Row(
                f"{policy}, {clients} clients",
                {
                    "service_per_s": found.rate,
                    "jain": found.jain,
                    "hit_rate": found.hit_rate,
                    "step_ms": found.seconds / found.steps * 1e3,
                    "gap": found.gap,
                    **bound,
                },
            )
        ratios = {f"of_{policy}": rates["dlpm"] / rate for policy, rate in rates.items() if policy != "dlpm"}
        yield Row(f"dlpm's rate, {clients} clients", ratios)
