"""Users of applications of different shapes, and the systems that FairServe section 5 compares on them."""

import math
import random
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from lab.loops import ClosedLoop
from lab.reproduction.programs import Author
from serving.cost import weight_thousandths
from simulation.call import SimulatedCall
from simulation.run import Scenario
from simulation.simulation_job import SimulationJob
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.step_time import profile
from throttler.core.profiles import RateLimits

SECONDS = 300.0
LIMIT = 6  # calls per user and minute, for RPM and OIT alike
LATE = 10.0  # seconds in the queue beyond which a user counts as delayed
GPU = profile("a100-80g", "llama-2-7b")
SYSTEMS = {
    "RPM": ("fcfs", "rpm"),
    "VTC": ("vtc", "none"),
    "FS (W)": ("wsc", "none"),
    "FS (W+I)": ("wsc", "oit"),
}
SETUP = (
    "Llama-2-7b on an A100-80G. The trace is not public: interactions have the sizes of Table 2 and applications the "
    f"shapes of Table 4. 200 benign users need two thirds of the GPU, six abusive ones three times as much as it has; "
    f"{LIMIT} calls per user and minute under RPM and OIT; five minutes. A user is delayed when a call waits more than "
    f"{LATE:.0f} s in the queue."
)
CASE_SECONDS = 60.0
CASE_LIMIT = 60
CASE_SETUP = (
    "Llama-2-7b on an A100-80G; the requests of Table 4 arrive within one minute, and what is served by its end "
    f"counts. RPM and OIT allow {CASE_LIMIT} calls per application."
)


@dataclass(frozen=True, slots=True)
class App:
    """The tokens of an application's normal call, and the number of calls in its interactions (sizes and their
    weights)."""

    name: str
    input_tokens: int
    system_tokens: int
    output_tokens: int
    calls: tuple[tuple[int, float], ...]

    @property
    def normal(self) -> float:
        """The weight `w_a` with alpha, beta, gamma = 1, 2, 1, for the whole prompt."""
        return self.input_tokens + 2 * self.system_tokens + self.output_tokens


SINGLE = ((1, 1.0),)
AGENTS = ((1, 0.55), (3, 0.25), (6, 0.15), (10, 0.05))
APPS = (
    App("application 14", 5370, 1000, 102, AGENTS),
    App("application 7", 12854, 2000, 74, SINGLE),
    App("application 12", 799, 200, 32, AGENTS),
    App("chat", 4000, 995, 137, SINGLE),
)
REFERENCE = fmean(app.normal for app in APPS)


@dataclass(frozen=True, slots=True)
class User:
    """A user who starts interactions of one application at a mean rate, with Gamma arrivals, from `start` to `stop`."""

    name: str
    app: App
    per_minute: float
    start: float = 0.0
    stop: float = math.inf


@dataclass(frozen=True, slots=True)
class Users:
    """A workload in which an interaction is a chain of calls, and ends early when one of them is refused."""

    users: tuple[User, ...]
    seconds: float
    seed: int = 1

    def make(self) -> ClosedLoop:
        """See WorkloadSpec."""
        author = Author()
        for number, user in enumerate(self.users):
            rng = random.Random(self.seed * 100_000 + number)
            time = user.start + rng.uniform(0, 60 / user.per_minute)
            while time < min(self.seconds, user.stop):
                sizes, weights = zip(*user.app.calls, strict=True)
                calls = rng.choices(sizes, weights)[0]
                call = _call(author, user, author.program(), 0, calls, time)
                author.loop.start(call, partial(_follow, author, user, calls))
                time += rng.gammavariate(0.25, 4 * 60 / user.per_minute)
        return author.loop


def _follow(author: Author, user: User, calls: int, ended: SimulatedCall) -> list[SimulatedCall]:
    stage = ended.stage + 1
    if stage == calls or not ended.completed:
        return []
    call = _call(author, user, ended.interaction, stage, calls, ended.arrival + ended.latency)
    return [author.loop.follow(call, partial(_follow, author, user, calls))]


def _call(author: Author, user: User, program: str, stage: int, calls: int, arrival: float) -> SimulatedCall:
    """Make a call whose lengths are within half of the application's normal ones.

    Calls share no prefix, because the measured engine had no cache.
    """
    app = user.app
    prompt = author.segments.fresh(app.system_tokens + author.length(program, 100 + stage, app.input_tokens))
    output = author.length(program, stage, app.output_tokens)
    call = author.call(user.name, program, prompt, output, arrival, stage)
    call.app, call.system_tokens, call.last = app.name, app.system_tokens, stage + 1 == calls
    call.weight = weight_thousandths(app.normal / REFERENCE)
    return call


def system(name: str, limit: int) -> ClusterSpec:
    """Return one of SYSTEMS with a limit in calls per user and minute."""
    policy, throttle = SYSTEMS[name]
    worker = WorkerSpec(
        profile=GPU,
        policy=policy,
        strict_paper=True,
        kv_tokens=GPU.kv_tokens // 64 * 64,
        block_tokens=64,
        token_budget=8192,
        decode_run=10,
    )
    limits = RateLimits(user_per_minute=limit, app_per_minute=1_000_000)
    # The OIT of the paper knows limits of calls alone.
    return ClusterSpec(worker=worker, throttle=throttle, limits=limits, reports_memory=False)


def population(per_minute: float, apps: tuple[App, ...] = APPS) -> Users:
    """Return 200 benign users, each of whom starts `per_minute` interactions a minute, and six abusive users."""
    benign = tuple(User(f"user {number:03}", apps[number % len(apps)], per_minute) for number in range(200))
    abusive = tuple(User(f"abuser {number}", apps[number % len(apps)], 20.0) for number in range(6))
    return Users(benign + abusive, SECONDS)


def under_all(users: Users, limit: int) -> dict[str, SimulationJob]:
    """Return the workload under every system."""
    return {name: Scenario(system(name, limit), users) for name in SYSTEMS}


JOBS = under_all(population(0.15), LIMIT)
CASE = (
    User("application 14", APPS[0], 269 / 2.7),
    User("application 7", APPS[1], 139),
    User("application 12", APPS[2], 448 / 2.7),
)
CASE_JOBS = under_all(Users(CASE, CASE_SECONDS), CASE_LIMIT)
