"""Predicted waits in simulated clusters: how many are close, and whether those refused early would have missed."""

import random
from collections.abc import Callable, Iterator, Mapping

import pytest

from gateway.core import call_commands as commands
from gateway.core import call_events as events
from gateway.core.start_predictor import SURE, CallWaits, is_close
from simulation.admission import SimulatedAdmission, Tokens
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.gateway import OpenCall, SimulatedGateway
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.worker import SimulatedAttempt
from simulation.workload import OpenLoop

SECONDS = 30.0
Waits = list[tuple[float, float]]  # predicted and real


class PredictingGateway(SimulatedGateway):
    """One that predicts each call's wait as the real gateway does, and notes how long it was."""

    waits = CallWaits()
    predicted: dict[SimulatedCall, tuple[float, float]]
    results: dict[SimulatedCall, tuple[float, float]]

    def _submit(self, opened: OpenCall, submit: commands.Submit) -> None:
        call, now = opened.call, self._clock.now
        self.predicted[call] = self.waits.waits(call.client, call.worker, str(call.number), now), now
        super()._submit(opened, submit)

    def _handle_for_attempt(self, attempt: SimulatedAttempt, event: events.Event) -> None:
        call, now = attempt.call, self._clock.now
        if isinstance(event, events.Started) and call in self.predicted:
            predicted, at = self.predicted.pop(call)
            self.waits.started(call.client, call.worker, str(call.number), now)
            self.waits.check_invariants()
            self.results[call] = predicted, now - at
        super()._handle_for_attempt(attempt, event)


class PredictingCluster(SimulatedCluster):
    """A cluster with one such gateway."""

    def _make_gateway(self, tokens: Tokens) -> SimulatedGateway:
        admission = SimulatedAdmission(self.spec, self.clock, self.dispatcher, self.limits, tokens)
        gateway = PredictingGateway(self.spec, self.clock, self.dispatcher, self.workers, admission, self._done)
        gateway.waits, gateway.predicted, gateway.results = CallWaits(), {}, {}
        return gateway


class UntilTheyStart(OpenLoop):
    """Calls at random times, which come until all of the first seconds have started: later ones delay them."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        super().__init__([])
        self.rates = rates
        self.has_started: Callable[[], bool] = lambda: False

    def first(self) -> Iterator[SimulatedCall]:
        """See Workload."""
        draw, at = random.Random(1), 0.0
        while not self.has_started():
            at += draw.expovariate(sum(self.rates.values()))
            [client] = draw.choices(list(self.rates), list(self.rates.values()))
            prompt = [draw.randrange(1000, 30_000) for _ in range(max(8, round(draw.gauss(500, 150))))]
            output = max(1, round(draw.expovariate(1 / 150)))
            call = SimulatedCall(number=len(self.calls), client=client, prompt=prompt, output_tokens=output, arrival=at)
            self.calls.append(call)
            yield call


def waits(rates: Mapping[str, float]) -> Waits:
    """Simulate clients that send so many calls a second, whatever happens to them."""
    workload = UntilTheyStart(rates)
    cluster = PredictingCluster(
        ClusterSpec(worker=WorkerSpec(max_running=32, kv_tokens=40_000), tokens_per_message=16), workload
    )
    [gateway] = cluster.gateways
    assert isinstance(gateway, PredictingGateway)
    waiting = gateway.predicted
    workload.has_started = lambda: cluster.clock.now > SECONDS and not any(call.arrival < SECONDS for call in waiting)
    cluster.run()
    assert len(gateway.results) == len(workload.calls)
    return [result for call, result in gateway.results.items() if call.arrival < SECONDS]


USERS = {f"u{number}": 0.5 for number in range(5)}


@pytest.mark.parametrize(
    ("rates", "close", "missed"),
    [
        (USERS, 0.99, 0.0),
        ({name: 4 * rate for name, rate in USERS.items()}, 0.65, 0.95),
        (USERS | {"flood": 12.0}, 0.85, 0.95),
    ],
    ids=["idle", "overloaded", "flooded"],
)
def test_most_predictions_are_close_and_early_refusals_right(
    rates: dict[str, float], close: float, missed: float
) -> None:
    results = waits(rates)
    share = sum(is_close(*each) for each in results) / len(results)
    late = [waited > SURE * predicted for predicted, waited in results if predicted > 0.5]
    print(f"{share:.0%} of {len(results)} close; {sum(late)} of {len(late)} would have missed")
    assert share >= close
    assert sum(late) >= missed * len(late)
