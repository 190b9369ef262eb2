"""The workloads on which ways to charge are compared, each on a worker that it overloads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from lab.bench.charging.expected_deposits import ExpectedDlpm
from lab.bench.charging.flows import Flow, TwoFlows
from lab.reproduction.streams import Streams
from lab.reproduction.vtc_ablation import EIGHT, TWO
from lab.reproduction.vtc_system import A10G, KV_TOKENS
from simulation.run import WorkloadSpec
from simulation.spec import WorkerSpec
from simulation.traces import TraceWorkload

EXPECTED = "expected"  # deposits for the expected output
FLOODING = "first"  # name of the user that floods the worker


class ChargingWorker(WorkerSpec):
    """A worker that has the policy EXPECTED, too."""

    policies: ClassVar = {**WorkerSpec.policies, EXPECTED: ExpectedDlpm}


A100 = ChargingWorker(kv_tokens=65_536, max_running=128, max_prompt_tokens=1024, max_output_tokens=4096)
# The GPU and the KV cache of VTC section 5.2, with this project's batching.
SMALL = ChargingWorker(
    profile=A10G, kv_tokens=KV_TOKENS, max_running=128, max_prompt_tokens=1024, max_output_tokens=2048
)
CHAT = replace(A100, max_prompt_tokens=8192, max_output_tokens=8192)
LONG = replace(A100, kv_tokens=400_000, max_prompt_tokens=131_072)
FLOWS = {
    "100 calls beside 100": (Flow(100, (200,)), Flow(100, (200,))),
    "100 calls beside 8": (Flow(100, (200,)), Flow(8, (200,))),
    "long outputs beside short ones": (Flow(100, (1000,)), Flow(100, (50,))),
}
# Nine short outputs, from which short ones are expected, and then long ones of all chains at once.
BURSTS = {"short outputs, then many long ones": (Flow(100, (*(4,) * 9, 1000)), Flow(100, (200,)))}
HOARDERS = {
    "all reserve eight times what they use": (Flow(100, (200,), 1400), Flow(100, (200,), 1400)),
    "the first reserves eight times what it uses": (Flow(100, (200,), 1400), Flow(100, (200,))),
    "the first stops after four of 4,000 tokens": (Flow(100, (4,), 3996), Flow(100, (200,))),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on a worker for `seconds`. Where callers give no limit, a prompt and its output have `context` tokens
    together."""

    name: str
    worker: WorkerSpec
    workload: WorkloadSpec
    seconds: float
    context: int


def scenes(seconds: float) -> Iterator[Case]:
    """Yield two users that generate all that they reserve."""
    return _two_users(FLOWS, seconds)


def hoarders(seconds: float) -> Iterator[Case]:
    """Yield two users of which one or both reserve more than they use."""
    return _two_users(HOARDERS, seconds)


def bursts(seconds: float) -> Iterator[Case]:
    """Yield two users of which the first one's outputs cannot be expected from its last ones."""
    return _two_users(BURSTS, seconds)


def _two_users(flows: Mapping[str, tuple[Flow, Flow]], seconds: float) -> Iterator[Case]:
    for name, (first, second) in flows.items():
        yield Case(name, A100, TwoFlows(first, second), seconds, context=4096)


def overload() -> Iterator[Case]:
    """Yield VTC's overloaded clients (Tables 5 and 6)."""
    yield Case("VTC, two clients", SMALL, Streams(TWO), 120.0, context=2048)
    yield Case("VTC, eight clients", SMALL, Streams(EIGHT), 120.0, context=2048)


def traces(folder: Path) -> Iterator[Case]:
    """Yield published traces at rates that overload the worker. Raises SourceMissing where one is not in `folder`."""
    arena = TraceWorkload(folder / "vtc_arena27.csv.gz")
    yield Case("Chatbot Arena", SMALL, arena, 300.0, context=2048)
    chat = TraceWorkload(folder / "servegen_m-mid_synth_requests.csv.gz", limit=10_000, speed=40.0)
    yield Case("ServeGen m-mid, 40 times as fast", CHAT, chat, 40.0, context=8192)
    long = TraceWorkload(folder / "mooncake_conversation.csv.gz", limit=1000)
    yield Case("Mooncake, conversation", LONG, long, 120.0, context=131_072)
