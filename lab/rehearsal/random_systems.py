"""Random small systems with random workloads, drawn so that each risky combination occurs often."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lab.loops import ClosedLoop
from lab.rehearsal.encoding import EncodedCall
from lab.rehearsal.sharing_cluster import SharingSpec
from local_worker.core.limits import AdmissionMode
from serving.cost import WEIGHT_ONE
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments, output_run
from simulation.spec import ADMISSIONS, GLOBAL_POLICIES, LOCAL_POLICIES, WorkerSpec
from throttler.core.profiles import RateLimits

SECONDS = 20.0
CLIENTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomLoad:
    """The clients' load and the pools on which it is run: `programs` per client, started within `seconds`.

    A program is an interaction of at most `most_calls` calls.
    """

    programs: tuple[int, ...]
    seconds: float
    most_calls: int
    most_system: int
    most_new: int
    most_output: int
    most_prompt: int
    workers: tuple[int, ...]
    kv_tokens: tuple[int, ...]
    quanta: tuple[int, ...]
    max_waiting: tuple[int, ...]
    max_streams_per_client: tuple[int, ...]
    max_streams: tuple[int, ...]
    faults: int


def calm(rng: random.Random) -> RandomLoad:
    """Draw a load under which requests queue only now and then."""
    return RandomLoad(
        programs=tuple(rng.randint(2, 15) for _ in range(CLIENTS)),
        seconds=SECONDS / 2,
        most_calls=4,
        most_system=160,
        most_new=64,
        most_output=40,
        most_prompt=512,
        workers=(1, 2, 4),
        kv_tokens=(640, 2048),
        quanta=(16, 128, 1024),
        max_waiting=(8, 1000),
        max_streams_per_client=(2, 1000, 1000),
        max_streams=(12, 1000, 1000),
        faults=rng.randrange(8),
    )


def flood(rng: random.Random) -> RandomLoad:
    """Draw a load under which two clients always have a backlog, one at least twice as large as the other.

    Without fair scheduling this load would break the bounds.
    """
    return RandomLoad(
        programs=(rng.randint(100, 150), rng.randint(40, 60), *(rng.randint(0, 10) for _ in range(CLIENTS - 2))),
        seconds=1.0,
        most_calls=2,
        most_system=16,
        most_new=8,
        most_output=32,
        most_prompt=96,
        workers=(1, 1, 2),
        kv_tokens=(160, 256),
        quanta=(16,),
        max_waiting=(64, 1000, 1000),
        max_streams_per_client=(1000,),
        max_streams=(1000,),
        faults=rng.randrange(3),
    )


def draw_spec(rng: random.Random, load: RandomLoad) -> SharingSpec:
    """Draw a pool for `load`; the default policies are drawn most often."""
    worker = WorkerSpec(
        policy=rng.choice(["dlpm", "dlpm", "vtc", rng.choice(sorted(LOCAL_POLICIES))]),
        cost=rng.choice(["weighted-tokens", "weighted-tokens", "normalized", "profiled"]),
        quantum_tokens=rng.choice(load.quanta),
        kv_tokens=rng.choice(load.kv_tokens),
        max_running=rng.choice([4, 16]),
        token_budget=rng.choice([64, 512]),
        max_prompt_tokens=load.most_prompt,
        max_output_tokens=load.most_output,
        max_waiting=rng.choice(load.max_waiting),
        admission=rng.choice(list(AdmissionMode)),
        strict_paper=rng.random() < 0.3,
        decode_run=rng.choice([1, 1, 5]),
    )
    limits = RateLimits(
        user_per_minute=rng.choice([5, 60]), app_per_minute=rng.choice([20, 600]), kappa=rng.choice([1, 5])
    )
    return SharingSpec(
        workers=rng.choice(load.workers),
        worker=worker,
        route=rng.choice(["doubleq", "least-delay", rng.choice(sorted(GLOBAL_POLICIES))]),
        route_quantum_tokens=rng.choice([64, 2048]),
        route_strict_paper=rng.random() < 0.3,
        index_blocks=rng.choice([32, 10_000]),
        throttle=rng.choice(["none", "none", "oit", "rpm", rng.choice(sorted(ADMISSIONS))]),
        reports_memory=False,  # refusals are checked against limits of calls; claims on memory have tests of their own
        limits=limits,
        max_streams_per_client=rng.choice(load.max_streams_per_client),
        max_streams=rng.choice(load.max_streams),
        network_seconds=rng.choice([0.0, 0.001, 0.05]),
        event_lag_seconds=rng.choice([0.0, 0.2]),
        report_seconds=rng.choice([0.05, 0.5]),
        stall_timeout=1.0,
        tokens_per_message=rng.choice([1, 4]),
        reader_seconds=1.0,
    )


def with_levels(spec: SharingSpec, rng: random.Random) -> SharingSpec:
    """Draw the levels at which the workers are fair."""
    levels = rng.choice(["user", "user", "tenant", "tenant,user", "user,interaction", "tenant,user,interaction"])
    return replace(spec, worker=replace(spec.worker, fairness_levels=levels))


def with_preemption(spec: SharingSpec, rng: random.Random) -> SharingSpec:
    """Draw the debt at which clients give way to others."""
    return replace(spec, worker=replace(spec.worker, preemption_quanta=rng.choice([0, 1, 4, 16])))


def with_tenant_limit(spec: SharingSpec, rng: random.Random) -> SharingSpec:
    """Draw the limit on calls of the tenant whose users all clients are; half of the pools have none."""
    return replace(spec, limits=replace(spec.limits, tenant_per_minute=rng.choice([None, None, 10, 40])))


def with_gateways(spec: SharingSpec, rng: random.Random) -> SharingSpec:
    """Draw the number of gateways in front of the pool, and the window in which the limits count."""
    gateways = 1 if spec.throttle == "sliding-rpm" else rng.choice([1, 2, 3])
    return replace(spec, gateways=gateways, window_seconds=rng.choice([60.0, 6.0]))


class RandomPrograms:
    """Random interactions of several calls: each call quotes the previous one, and clients differ in weight.

    The clients are the users of two tenants, two each.
    """

    def __init__(self, rng: random.Random, load: RandomLoad) -> None:
        self._rng = rng
        self._load = load
        self._segments = PromptSegments()
        self._systems = {app: self._segments.fresh(rng.randint(8, load.most_system)) for app in ("chat", "code")}
        weights = rng.choice([(WEIGHT_ONE,), (WEIGHT_ONE // 2, WEIGHT_ONE, 4 * WEIGHT_ONE)])
        # The two clients of a flood are users of one tenant or of two.
        self._tenant_of = [client % 2 if sum(load.programs) % 2 else client // 2 for client in range(CLIENTS)]
        self._weights = [rng.choice(weights) for _ in load.programs]
        self._system_share = rng.choice([0, 1])
        self._cancelled = rng.choice([0.0, 0.0, 0.2])
        self._late = rng.choice([0.0, 0.0, 0.2])
        self._slow = rng.choice([0.0, 0.0, 0.2])
        self._text = rng.choice([0.0, 0.5])
        self._calls = 0

    def workload(self) -> ClosedLoop:
        """Return the workload with the programs of all clients."""
        loop, rng = ClosedLoop(), self._rng
        for client, programs in enumerate(self._load.programs):
            for number in range(programs):
                app, calls = rng.choice(sorted(self._systems)), rng.randrange(self._load.most_calls)
                prompt = [*self._systems[app], *self._segments.fresh(rng.randint(1, self._load.most_new))]
                call = self._call(client, app, prompt, rng.uniform(0, self._load.seconds))
                call.interaction, call.last = f"interaction-{client}-{number}", not calls
                loop.start(call, lambda ended, left=calls: self._follow(loop, ended, left))  # type: ignore[misc]
        return loop

    def _follow(self, loop: ClosedLoop, ended: SimulatedCall, left: int) -> Iterator[SimulatedCall]:
        if not left or not ended.completed:
            return
        rng = self._rng
        quoted = output_run(ended.number, 0, ended.output_tokens)
        prompt = [*ended.prompt, *quoted, *self._segments.fresh(rng.randint(1, 16))]
        client = int(ended.client.rpartition("-")[2])
        call = self._call(client, ended.app, prompt, ended.arrival + ended.latency + rng.expovariate(2.0))
        call.interaction, call.stage, call.last = ended.interaction, ended.stage + 1, left == 1
        yield loop.follow(call, lambda after: self._follow(loop, after, left - 1))

    def _call(self, client: int, app: str, prompt: list[int], arrival: float) -> SimulatedCall:
        rng = self._rng
        self._calls += 1
        return EncodedCall(
            number=self._calls,
            client=f"tenant-{self._tenant_of[client]}/client-{client}",
            app=app,
            prompt=prompt,
            output_tokens=rng.randint(1, self._load.most_output),
            arrival=arrival,
            system_tokens=self._system_share * len(self._systems[app]),
            weight=self._weights[client],
            user_weight=self._weights[client - 1],
            patience=rng.expovariate(1.0) if rng.random() < self._cancelled else None,
            deadline=arrival + rng.expovariate(1.0) if rng.random() < self._late else None,
            read_seconds=rng.expovariate(2.0) if rng.random() < self._slow else 0.0,
            is_text=rng.random() < self._text,
        )
