"""The table of one configuration by client."""

from dataclasses import dataclass

from simulation.run import CallResult, SimulationRun
from simulation.what_if.baseline import Baseline
from simulation.what_if.waits import NAMES, Waits, waits_of

HEADER = ("configuration", "client", "calls", "answered", "asked cost units", "calls within its share", *NAMES)


@dataclass(frozen=True, slots=True)
class ClientRow:
    """The results of one client: its calls, completed calls, the service that it asked for in cost units.

    `within` is the share of its calls that arrived while it asked for at most its fair share.
    """

    client: str
    calls: int
    answered: int
    asked: float
    within: float
    waits: Waits

    def cells(self) -> tuple[object, ...]:
        """Return the cells in the order of HEADER, without the configuration."""
        return (self.client, self.calls, self.answered, self.asked, self.within, *self.waits.cells())


def by_client(run: SimulationRun, baseline: Baseline) -> list[ClientRow]:
    """Return a row per client; the client that asked for most service comes first."""
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
