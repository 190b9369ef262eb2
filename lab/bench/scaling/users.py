"""The memory per user in every account, and the effect of many one-call users on two permanent users.

The demand of the two always exceeds the worker's capacity, and one of them sends prompts three times as long. Both must
receive equal service, whatever the accounts of the other users do. All parts are driven directly: a scheduler with four
workers, a worker's batcher, and a throttle.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from resource import getpagesize
from typing import TypeVar

from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import WorkerIdentity, WorkerLoad
from global_scheduler.core.policies import RouteRequest
from local_worker.core.batch import StepResult
from local_worker.core.batcher import Batcher
from local_worker.core.request import Request
from serving.cost import MICRO
from serving.sampling_params import SamplingParams
from simulation.prompts import CHAIN_SEED, PromptSegments, digests_of
from simulation.scheduler import make_dispatcher
from simulation.spec import ADMISSIONS, ClusterSpec, WorkerSpec
from throttler.core.profiles import Profiles
from throttler.core.throttle import WINDOW_SECONDS, Caller
from throttler.core.windows import LocalQuota

COLUMNS = (
    "users",
    "scheduler, bytes per user",
    "worker, bytes per user",
    "throttle, bytes per user",
    "service of the two who stay, short : long prompts",
    "their gap",
    "its bound",
)
FEW = 10_000  # with fewer users the process's memory is too coarse a measure
PER_STEP = 8
PROMPT, OUTPUT = 64, 16
STAYING = {"short": 1, "long": 3}  # prompt length in multiples of PROMPT
T = TypeVar("T")
WORKER = WorkerSpec(kv_tokens=16_384, max_running=32, max_prompt_tokens=1024, max_output_tokens=256)


@dataclass(frozen=True, slots=True)
class Row:
    """The results with this many one-call users, as a row of the table."""

    users: int

    def run(self) -> str:
        """Measure the three parts and return the row's text."""
        scheduler, _ = _bytes(lambda: schedule(self.users), self.users)
        throttle, _ = _bytes(lambda: throttled(self.users), self.users)
        worker, watched = _bytes(lambda: pass_by(self.users), self.users)
        short, long = (watched.service[name] / MICRO for name in STAYING)
        bound = (watched.batcher.queue.policy.bound_micro or 0) / MICRO
        return (
            f"| {self.users:,} | {scheduler} | {worker} | {throttle} | 1 : {long / short:.3f} | "
            f"{watched.gap / MICRO:,.0f} | {bound:,.0f} |"
        )


def schedule(users: int) -> Dispatcher:
    """Place, accept and end one call of each user."""
    dispatcher = make_dispatcher(replace(ClusterSpec(), index_blocks=10_000))
    members = [
        dispatcher.attached(WorkerIdentity(f"worker-{number}", "", "", {"model": ""}, 16, 100_000, 256), (), 0.0)
        for number in range(4)
    ]
    for number in range(users):
        now = number * 1e-6
        request = RouteRequest(f"{number}", 1, f"user {number}", "model", b"", PROMPT, 1000)
        placed = dispatcher.dispatch(request, now)
        assert placed is not None
        dispatcher.accepted(placed.member, request, now)
        dispatcher.ended(placed.member, request.request_id, 1, started=True, output_tokens=OUTPUT)
        dispatcher.reported(members[number % 4], WorkerLoad(), now)
    return dispatcher


def throttled(users: int) -> object:
    """Decide one call of each user within one window of OIT."""
    throttle = ADMISSIONS["oit"](Profiles(), LocalQuota(), WINDOW_SECONDS)
    for number in range(users):
        throttle.admit(Caller("tenant", f"user {number}", "default"), False, True, number * 1e-6)
    return throttle


class WatchedWorker:
    """One worker with the two permanent users: `service` is what they received (micro-units), `gap` their largest
    difference."""

    def __init__(self) -> None:
        self.batcher: Batcher = WORKER.make_batcher()
        self.service = dict.fromkeys(STAYING, 0)
        self._segments = PromptSegments()
        self._arrivals = 0
        self._least, self._most = 0, 0
        for name in STAYING:
            for _ in range(WORKER.max_running):
                self.submit(name, STAYING[name] * PROMPT, OUTPUT)

    @property
    def gap(self) -> int:
        """The largest difference over any interval in micro-units: both users are backlogged all the time."""
        return self._most - self._least

    def submit(self, client: str, prompt_tokens: int, output_tokens: int) -> None:
        """Submit a call with a unique prompt."""
        self._arrivals += 1
        tokens = self._segments.fresh(prompt_tokens)
        request = Request(
            id="",
            client=client,
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            digests=digests_of(tokens, WORKER.block_tokens),
            chain_seed=CHAIN_SEED,
            sampling=SamplingParams(max_tokens=output_tokens, ignore_eos=True),
            arrival=self._arrivals,
        )
        self.batcher.queue.submit(request, float(self._arrivals))

    def step(self) -> None:
        """Run one engine step, and submit a new call for each ended call of the two permanent users."""
        plan = self.batcher.plan(float(self._arrivals))
        assert plan is not None
        tokens = StepResult(tuple(1 for piece in plan.batch.slices if piece.samples))
        for advance in self.batcher.commit(plan, tokens):
            name = advance.request.client
            if advance.finish is not None and name in STAYING:
                self.submit(name, STAYING[name] * PROMPT, OUTPUT)
        self.batcher.queue.cache.changes.take_events()
        for account in self.batcher.queue.ledger.take_changed():
            if account.name in STAYING:
                self.service[account.name] = account.service
        lead = self.service["long"] - self.service["short"]
        self._least, self._most = min(self._least, lead), max(self._most, lead)


def pass_by(users: int) -> WatchedWorker:
    """Run a few one-call users per step, and 500 more steps after the last of them."""
    watched = WatchedWorker()
    for number in _spread(users):
        if number is not None:
            watched.submit(f"user {number}", PROMPT, 1)
        else:
            watched.step()
    return watched


def _spread(users: int) -> Iterator[int | None]:
    for number in range(users):
        yield number
        if number % PER_STEP == PER_STEP - 1:
            yield None
    yield from [None] * 500


def _bytes(make: Callable[[], T], users: int) -> tuple[str, T]:
    """Return the memory that the result of `make` takes per user, in bytes, and this result."""
    gc.collect()
    before = _resident()
    made = make()
    gc.collect()
    return (f"{(_resident() - before) / users:,.0f}" if users >= FEW else "-"), made


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
