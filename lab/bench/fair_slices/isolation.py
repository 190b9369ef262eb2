"""What a quiet client waits for beside long prompts, and beside long outputs, in simulated seconds of an A100-80G."""

from collections.abc import Iterator
from dataclasses import dataclass

from lab.bench.fair_slices.parties import Parties, Party
from serving.cost import MICRO
from serving.statistics import percentile
from simulation.run import Scenario, SimulationRun
from simulation.spec import ClusterSpec, WorkerSpec

SETTLED_SECONDS = 10.0  # from the beginning until calls count


@dataclass(frozen=True, slots=True)
class Scene:
    """Two parties for `seconds`; `subject` is the client whose waits are shown."""

    what: str
    subject: str
    load: Parties
    max_running: int = 128

    def run(self, policy: str) -> SimulationRun:
        """Simulate the scene with one worker under `policy`."""
        return Scenario(ClusterSpec(worker=worker_spec(policy, self.max_running)), self.load).run()


def worker_spec(policy: str, max_running: int = 128) -> WorkerSpec:
    """Return Llama-3.1-8B on an A100-80G, with one level of fairness."""
    return WorkerSpec(
        policy=policy,
        kv_tokens=425_984,
        max_running=max_running,
        max_prompt_tokens=131_072,
        fairness_levels="user",
    )


def _long_prompts(tokens: int, open_calls: int, seconds: float) -> Scene:
    long = Party(client="long", open=open_calls, prompt=tokens, output=16)
    quiet = Party(client="quiet", prompt=64, output=16, every=seconds / 40, start=3.0)
    return Scene(f"{open_calls} prompts of {tokens:,}", "quiet", Parties((long, quiet), seconds))


def _both(tokens: int, seconds: float) -> Scene:
    long = Party(client="long", open=4, prompt=tokens, output=16)
    short = Party(client="short", open=64, prompt=512, output=64)
    return Scene(f"4 prompts of {tokens:,}; 64 short calls", "short", Parties((long, short), seconds))


def _long_outputs(seconds: float) -> Scene:
    long = Party(client="long", open=64, prompt=256, output=4000)
    quiet = Party(client="quiet", prompt=64, output=16, every=1.7, start=5.0)
    return Scene("64 outputs of 4,000 in 64 places", "quiet", Parties((long, quiet), seconds), max_running=64)


SCENES = (
    _long_prompts(4096, 6, 60.0),
    _long_prompts(32_768, 6, 120.0),
    _long_prompts(131_072, 4, 240.0),
    _both(32_768, 120.0),
    _both(131_072, 120.0),
    _long_outputs(200.0),
)


def served(run: SimulationRun, seconds: float, client: str = "") -> float:
    """Return the service in cost units per second, of `client` or of all, until `seconds`."""
    curves = [curve for name, curve in run.actual.items() if client in ("", name)]
    return sum(max((total for at, total in curve.items() if at <= seconds), default=0.0) for curve in curves) / seconds


def table(policies: list[str]) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for each scene and policy."""
    yield "| neighbour | policy | first token of the other, p50 / p99, s | its calls | service/s | gap |"
    yield "|---|---|---|---|---|---|"
    for scene in SCENES:
        for policy in policies:
            run, seconds = scene.run(policy), scene.load.seconds
            asked = [call for call in run.of(scene.subject) if SETTLED_SECONDS <= call.arrival < seconds]
            waits = [call.first - call.arrival for call in asked if call.first is not None]
            done = sum(call.ended <= seconds for call in run.of(scene.subject))
            times = f"{percentile(waits, 50):.2f} / {percentile(waits, 99):.2f}"
            gap = run.worst_gap // MICRO
            yield f"| {scene.what} | {policy} | {times} | {done} | {served(run, seconds):,.0f} | {gap:,} |"
