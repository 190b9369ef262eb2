"""Who asks for more than its fair share and when, on traces that one can compute by hand."""

import pytest

from fairlead.outcomes import Outcome
from simulation.run import CallResult, SimulationRun
from simulation.spec import WorkerSpec
from simulation.trace_rows import TraceRow
from simulation.what_if.baseline import Baseline
from simulation.what_if.fair_shares import FairShares, ServiceDemand, asks_of, window_of


def ask(client: str, second: float, service: float) -> ServiceDemand:
    return ServiceDemand(client, second, prompt=service, output=0.0)


@pytest.fixture
def flooded() -> FairShares:
    """Ten cost units a second in windows of ten seconds. `flood` asks at once for what takes 24 s of the whole pool."""
    asks = {1: ask("flood", 0.0, 240.0), 2: ask("light", 5.0, 20.0), 3: ask("light", 15.0, 30.0)}
    return FairShares({**asks, 4: ask("flood", 31.0, 10.0)}, capacity=10.0, window=10.0)


def test_who_asks_for_too_much_is_above_until_its_share_has_worked_it_off(flooded: FairShares) -> None:
    """It gets 80, 70 and 90 of 240 in three windows, and asks for no more than there is when it comes back."""
    assert [flooded.is_within(number) for number in (1, 2, 3, 4)] == [False, True, True, True]
    first, *_, last = flooded.entitlements(20)
    assert first == (10.0, {"flood": 80.0, "light": 20.0})
    assert last == (40.0, {"flood": 250.0, "light": 50.0})
    assert [second for second, _ in flooded.entitlements(2)] == [20.0, 40.0]
    assert flooded.end == 40.0


def test_a_client_may_have_what_the_others_leave_and_at_least_an_equal_part(flooded: FairShares) -> None:
    assert flooded.shares("light", 5.0) == [(0.0, 0.5), (5.0, 0.5), (15.0, 0.5), (25.0, 0.9), (35.0, 1.0)]
    assert flooded.shares("flood", 0.0)[:2] == [(0.0, 0.8), (10.0, 0.7)]


def test_a_call_that_no_worker_takes_asks_for_nothing() -> None:
    worker = WorkerSpec(max_prompt_tokens=100, kv_tokens=160)
    rows = [
        TraceRow(arrival=float(n), client="a", app="", input_tokens=tokens, output_tokens=50)
        for n, tokens in enumerate((100, 101))
    ]
    asks = asks_of([*rows, TraceRow(arrival=2.0, client="a", app="", input_tokens=100, output_tokens=61)], worker)
    assert {number: one.service for number, one in asks.items()} == {1: 200.0}
    shares = FairShares(asks, 10.0, 10.0)
    assert not shares.is_within(2)


def test_windows_are_a_minute_or_a_twentieth_of_a_shorter_trace() -> None:
    spans = (0.0, 100.0, 1e5)
    assert [window_of([ask("a", span, 1.0)]) for span in spans] == [0.5, 5.0, 60.0]


def record(number: int, client: str, first: float, ended: float) -> CallResult:
    return CallResult(
        number=number,
        client=client,
        app="",
        interaction="",
        stage=0,
        last=True,
        arrival=0.0,
        admitted=first,
        first=first,
        ended=ended,
        input_tokens=1,
        cached_tokens=0,
        output_tokens=1,
        outcome=Outcome.COMPLETED,
    )


@pytest.mark.parametrize(
    ("light", "flood", "expected"),
    [
        # Of their shares of 20 and 80 when the first window ends: all of both; the first, and half of the second.
        ((1.0, 2.0), [(0.0, 8.0), (20.0, 30.0)], 1.0),
        ((1.0, 2.0), [(5.0, 15.0), (20.0, 30.0)], 1.5**2 / (2 * 1.25)),
        # The flooder has 160 of its 80, the other nothing.
        ((11.0, 12.0), [(0.0, 5.0), (0.0, 5.0)], 0.5),
    ],
)
def test_jain_is_over_service_relative_to_the_fair_share_of_what_was_asked_for(
    light: tuple[float, float], flood: list[tuple[float, float]], expected: float
) -> None:
    asks = {1: ask("light", 0.0, 20.0), **{n: ServiceDemand("flood", 0.0, 0.0, 80.0) for n in (2, 3)}}
    records = (
        record(1, "light", *light),
        *(record(n, "flood", *times) for n, times in zip((2, 3), flood, strict=True)),
    )
    run = SimulationRun(records, {}, 30.0, 0, None)
    assert Baseline(FairShares(asks, 10.0, 10.0), {}).jain(run) == pytest.approx(expected)
