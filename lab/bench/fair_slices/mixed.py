"""A trace's clients beside one with long prompts and one with long outputs, in simulated seconds of an A100-80G."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.bench.fair_slices.isolation import served, worker_spec
from lab.bench.fair_slices.parties import Party, PartyLoop
from lab.loops import ClosedLoop
from serving.statistics import percentile
from simulation.run import Scenario, SimulationRun
from simulation.spec import ClusterSpec
from simulation.tables import read_table

TRACE = "servegen_m-large_synth_requests.csv.gz"
SECONDS = 60.0
SETTLED_SECONDS = 10.0
RATE = 0.8  # the trace's own rate is 1
PREFIX = 128  # tokens that all prompts of a client begin with
LONGEST_PROMPT, LONGEST_OUTPUT = 60_000, 4000
PROMPTS = Party(client="long-prompts", open=4, prompt=32_768, output=16, start=2.0)
OUTPUTS = Party(client="long-outputs", open=64, prompt=200, output=4000, start=1.0)
HEADS = (
    "policy",
    "first token of the trace's calls, p50 / p90 / p99, s",
    "per token, p50 / p99, ms",
    "service/s: all; prompts; outputs",
)


@dataclass(frozen=True, slots=True)
class Mix:
    """The calls of the trace in the first SECONDS, and the parties `beside`; see WorkloadSpec."""

    trace: Path
    beside: tuple[Party, ...]

    def make(self) -> ClosedLoop:
        """Make the workload; see WorkloadSpec."""
        made, heads = PartyLoop(SECONDS), dict[str, list[int]]()
        for line in read_table(self.trace, ("arrival_s", "client", "input_tokens", "output_tokens")):
            at = line.number("arrival_s") / RATE
            if at > SECONDS:
                break
            client, tokens = line.text("client"), max(1, min(LONGEST_PROMPT, int(line.number("input_tokens"))))
            head = heads.setdefault(client, made.segments.fresh(PREFIX))[: tokens - 1]
            output = max(1, min(LONGEST_OUTPUT, int(line.number("output_tokens"))))
            made.once(client, head + made.segments.fresh(tokens - len(head)), output, at)
        for party in self.beside:
            made.add(party)
        return made.loop


def table(policies: Sequence[str], traces: Path) -> Iterator[str]:
    """Yield the lines of a Markdown table with a row for the trace alone and one for each policy."""
    yield f"| {' | '.join(HEADS)} |"
    yield "|---|---|---|---|"
    alone, mixed = Mix(traces / TRACE, ()), Mix(traces / TRACE, (PROMPTS, OUTPUTS))
    yield _row(f"{policies[-1]}, without the two", policies[-1], alone)
    for policy in policies:
        yield _row(policy, policy, mixed)


def _row(name: str, policy: str, mix: Mix) -> str:
    run = Scenario(ClusterSpec(worker=worker_spec(policy)), mix).run()
    first, per_token = _waits(run)
    waits = " / ".join(f"{percentile(first, part):.1f}" for part in (50, 90, 99))
    gaps = " / ".join(f"{1000 * percentile(per_token, part):.0f}" for part in (50, 99))
    service = [served(run, SECONDS, client) for client in ("", PROMPTS.client, OUTPUTS.client)]
    return f"| {name} | {waits} | {gaps} | {'; '.join(f'{each:,.0f}' for each in service)} |"


def _waits(run: SimulationRun) -> tuple[list[float], list[float]]:
    """Return the seconds to the first token, and between two tokens, of the trace's calls."""
    ours = [call for call in run.records if call.client not in (PROMPTS.client, OUTPUTS.client)]
    first, per_token = [], []
    for call in ours:
        if call.first is not None and call.arrival > SETTLED_SECONDS:
            first.append(call.first - call.arrival)
            if call.output_tokens > 4:
                per_token.append((call.ended - call.first) / (call.output_tokens - 1))
    return first, per_token
