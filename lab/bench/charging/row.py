"""One workload under one way to charge, as a row of the table."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lab.bench.charging.cases import EXPECTED, FLOODING, Case
from lab.bench.charging.window import Window
from local_worker.core.accounts.charging import OutputCharge
from serving.cost import MICRO
from simulation.measures import hit_rate
from simulation.run import Scenario, SimulationRun
from simulation.spec import AdmissionMode, ClusterSpec, WorkerSpec

WARM_UP = 0.2  # of a case's time: its calls and its service are not counted
COLUMNS = (
    *("workload", "admission", "charge", "gap", "bound", "service/s", "hit rate"),
    *("others' part", "their median and P99 to first token"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row for a case under one `charge`, whose callers give a limit of the output only if `is_limited` is set."""

    case: Case
    charge: str
    admission: AdmissionMode
    quantum_tokens: int
    is_limited: bool

    def run(self) -> str:
        """Simulate it and return the row's text."""
        case = self.case
        window = Window(case.workload, case.seconds, None if self.is_limited else case.context)
        run = Scenario(ClusterSpec(worker=self._worker()), window).run()
        begin, end = int(case.seconds * WARM_UP), int(case.seconds) - 1
        served = {client: _at(curve, end) - _at(curve, begin) for client, curve in run.actual.items()}
        rate = sum(served.values()) / (end - begin)
        heaviest = _heaviest(run)
        waits = sorted(_waits(run, heaviest, begin, case.seconds)) or [0.0]
        cells = (
            *(case.name, self.admission, f"`{self.charge}`"),
            *(f"{each:,.0f} ({each / rate:.1f} s)" for each in (run.worst_gap / MICRO, (run.bound or 0) / MICRO)),
            *(f"{rate:,.0f}", f"{hit_rate(run):.0%}", f"{1 - served.get(heaviest, 0.0) / sum(served.values()):.2f}"),
            f"{waits[len(waits) // 2]:.1f} s, {waits[len(waits) * 99 // 100]:.1f} s",
        )
        return f"| {' | '.join(cells)} |"

    def _worker(self) -> WorkerSpec:
        worker = replace(self.case.worker, admission=self.admission, quantum_tokens=self.quantum_tokens)
        if self.charge == EXPECTED:
            return replace(worker, policy=EXPECTED, charge=OutputCharge.RESERVED)
        return replace(worker, charge=self.charge)


def _at(curve: Mapping[int, float], second: int) -> float:
    """Return the service received by the end of `second`."""
    return max((value for at, value in curve.items() if at <= second), default=0.0)


def _heaviest(run: SimulationRun) -> str:
    """Return the client that floods the worker: of a trace the one that asks for most."""
    if FLOODING in run.clients:
        return FLOODING
    asked = Counter[str]()
    for each in run.records:
        asked[each.client] += each.input_tokens + 2 * each.output_tokens
    return asked.most_common(1)[0][0]


def _waits(run: SimulationRun, heaviest: str, begin: float, end: float) -> Iterator[float]:
    """Yield the others' times to the first token; for a call that waits at the end, the time so far."""
    for each in run.records:
        if each.client != heaviest and each.arrival >= begin:
            yield (end if each.first is None else each.first) - each.arrival
