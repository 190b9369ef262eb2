"""One configuration's table by client."""

from dataclasses import dataclass

from simulation.run import CallResult, SimulationRun
from simulation.what_if.baseline import Baseline
from simulation.what_if.waits import NAMES, Waits, waits_of

HEADER = ("configuration", "client", "calls", "answered", "asked cost units", "calls within its share", *NAMES)


@dataclass(frozen=True, slots=True)
class ClientRow:
    """What became of one client: its calls, those answered, what it asked for in cost units, and the part of its calls
    that came while it asked for no more than its fair share."""

    client: str
    calls: int
    answered: int
    asked: float
    within: float
    waits: Waits

    def cells(self) -> tuple[object, ...]:
        """In the order of HEADER, without the configuration."""
        return (self.client, self.calls, self.answered, self.asked, self.within, *self.waits.cells())


def by_client(run: SimulationRun, baseline: Baseline) -> list[ClientRow]:
    """Whoever asked for most first."""
    calls: dict[str, list[CallResult]] = {}
    for record in run.records:
        calls.setdefault(record.client, []).append(record)
    rows = [_row(client, records, baseline) for client, records in calls.items()]
    return sorted(rows, key=lambda row: (-row.asked, row.client))


def _row(client: str, records: list[CallResult], baseline: Baseline) -> ClientRow:
    asks = baseline.shares.asks
    return ClientRow(
        client=client,
        calls=len(records),
        answered=sum(record.completed for record in records),
        asked=sum(asks[record.number].service for record in records if record.number in asks),
        within=len(baseline.within(records)) / len(records),
        waits=waits_of(records, baseline),
    )
