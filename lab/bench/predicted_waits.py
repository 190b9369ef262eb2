"""How many predicted waits are close at a simulated worker with too many calls, and how many could be.

    python -m lab.bench.predicted_waits [0.5] [0.8] [1.0] [overloaded] [flooded] [--every 30] [--futures 30] [--seeds 1]

Clients make calls at random times, whatever happens to them, with outputs of random lengths; a load of 1 is what
saturates the worker. A row shows the part of the calls of the first half minute whose predicted wait was close, and how
many would have been, had it been known how many calls start before each. At every EVERY-th call the simulation goes on
FUTURES times with other later calls, and other lengths of what is not generated yet. Of all numbers that could have
been predicted there, the best one for all futures is close in at least as many of them as a prediction can be that
knows the whole state of the worker and all rates; the best one for half of them, in the other half, in at most as many.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean

from gateway.core import call_events as events
from gateway.core.start_predictor import CLOSE, SOON, CallWaits, is_close
from lab.bench.machine import commit
from lab.loops import OpenLoop
from local_worker.core.limits import AdmissionMode
from simulation.admission import SimulatedAdmission, Tokens
from simulation.call import SimulatedCall
from simulation.cluster import SimulatedCluster
from simulation.gateway import OpenCall, SimulatedGateway
from simulation.prompts import output_run
from simulation.spec import ClusterSpec, WorkerSpec
from simulation.worker import SimulatedAttempt
from throttler.core.windows import LocalQuota

SECONDS = 30.0  # calls that arrive until then count
PROMPT, OUTPUT = 500, 150  # mean numbers of tokens
WORKER = WorkerSpec(max_running=32, kv_tokens=200_000, admission=AdmissionMode.OPTIMISTIC)
SATURATING = 8.2  # calls per second
USERS = {f"u{number}": 0.5 for number in range(5)}
RATES: Mapping[str, Mapping[str, float]] = {  # calls per second of each client
    **{str(load): {name: load * SATURATING / len(USERS) for name in USERS} for load in (0.5, 0.8, 1.0)},
    "overloaded": {name: 4 * rate for name, rate in USERS.items()},
    "flooded": USERS | {"flood": 12.0},
}


@dataclass(slots=True)
class Wait:
    """What was predicted for a call, and what came, in seconds."""

    predicted: float
    since: float
    waited: float = 0.0
    starts: int = 0  # of calls until then, this one included
    futures: list[float] = field(default_factory=list)  # what would have come, had the future been another


class UntilTheyStart(OpenLoop):
    """Calls at random times, which come until all of the first seconds have started: later ones delay them."""

    def __init__(self, rates: Mapping[str, float], seed: int) -> None:
        super().__init__([])
        self.rates, self.seed = rates, seed
        self.has_started: Callable[[], bool] = lambda: False

    def first(self) -> Iterator[SimulatedCall]:
        """See Workload."""
        return self.later(Random(self.seed), 0.0)

    def later(self, draw: Random, at: float) -> Iterator[SimulatedCall]:
        """Yield the calls after `at`."""
        while not self.has_started():
            at += draw.expovariate(sum(self.rates.values()))
            [client] = draw.choices(list(self.rates), list(self.rates.values()))
            prompt = [draw.randrange(1000, 30_000) for _ in range(max(8, round(draw.gauss(PROMPT, 0.3 * PROMPT))))]
            output, number = output_length(draw), len(self.calls)
            call = SimulatedCall(number=number, client=client, prompt=prompt, output_tokens=output, arrival=at)
            self.calls.append(call)
            yield call


def output_length(draw: Random) -> int:
    """Draw what an output is long, or what is left of it: how much is generated says nothing about that."""
    return max(1, round(draw.expovariate(1 / OUTPUT)))


class PredictingGateway(SimulatedGateway):
    """One that predicts each call's wait as the real gateway does, and notes how long it was."""

    waits: CallWaits
    results: dict[SimulatedCall, Wait]
    starts: int  # of all calls so far
    awaited: tuple[SimulatedCall, int] | None  # in a future: the call, and where to write how long it waited
    submitted: Callable[[SimulatedCall], None]

    def _submit(self, opened: OpenCall) -> None:
        call, now = opened.call, self._clock.now
        self.results[call] = Wait(self.waits.waits(call.client, call.worker, str(call.number), now), now)
        self.results[call].starts = -self.starts
        super()._submit(opened)
        self.submitted(call)

    def _handle_for_attempt(self, attempt: SimulatedAttempt, event: events.Event) -> None:
        call, now = attempt.call, self._clock.now
        if isinstance(event, events.Started):
            result = self.results[call]
            self.starts += 1
            result.waited = now - result.since
            result.starts += self.starts
            if self.awaited is not None and call is self.awaited[0]:
                os.write(self.awaited[1], repr(result.waited).encode())
                os._exit(0)
            self.waits.started(call.client, call.worker, str(call.number), now)
            self.waits.check_invariants()
        super()._handle_for_attempt(attempt, event)

    def draw_lengths(self, draw: Random) -> None:
        """Draw anew what is left of each output."""
        for call, opened in self._open.items():
            attempt = opened.attempt
            requests = [] if attempt is None else list(attempt.worker.delivery.owned_by(attempt))
            made = sum(1 + each.output_tokens + each.in_flight for each in requests if each.started_at is not None)
            call.output_tokens = made + output_length(draw)
            call.answer = output_run(call.number, 0, call.output_tokens)
            for request in requests:
                request.sampling = replace(request.sampling, max_tokens=call.output_tokens)
                request.budget = request.prompt_tokens + call.output_tokens
            if attempt is not None:
                attempt.answer = call.answer


class PredictingCluster(SimulatedCluster):
    """A worker with one such gateway, which tries `futures` other futures at every `every`-th call that counts."""

    def __init__(self, rates: Mapping[str, float], every: int, futures: int, seed: int) -> None:
        self.workload, self.every, self.futures = UntilTheyStart(rates, seed), every, futures
        super().__init__(ClusterSpec(worker=WORKER, tokens_per_message=16), self.workload)
        self.workload.has_started = self._has_started

    def _make_gateway(self, tokens: Tokens) -> SimulatedGateway:
        admission = SimulatedAdmission(self.spec, self.clock, self.dispatcher, tokens, LocalQuota())
        gateway = PredictingGateway(self.spec, self.clock, self.dispatcher, self.workers, admission, self._done)
        gateway.waits, gateway.results, gateway.starts, gateway.awaited = CallWaits(), {}, 0, None
        gateway.submitted = self._submitted
        self.gateway = gateway
        return gateway

    def _has_started(self) -> bool:
        counting = (call for call in self._open if call.arrival < SECONDS)
        return self.clock.now > SECONDS and all(call.admitted_at is not None for call in counting)

    def _submitted(self, call: SimulatedCall) -> None:
        if self.gateway.awaited is None and call.arrival < SECONDS and call.number % self.every == self.every - 1:
            self.gateway.results[call].futures = [self._future(call, seed) for seed in range(self.futures)]

    def _future(self, call: SimulatedCall, seed: int) -> float:
        """Return the seconds that the call waits in another future, which a child process simulates."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                draw = Random(1000 * call.number + seed)
                self.gateway.awaited = call, writer
                self.gateway.draw_lengths(draw)
                self._arrivals = self.workload.later(draw, self.workload.calls[-1].arrival)
                self.clock.run()
            finally:
                os._exit(1)
        os.close(writer)
        with open(reader) as pipe:
            waited = float(pipe.read())
        os.waitpid(child, 0)
        return waited


def waits(rates: Mapping[str, float], every: int = 1, futures: int = 0, seed: int = 1) -> list[Wait]:
    """Simulate clients that make so many calls a second; return the waits of the calls that count."""
    cluster = PredictingCluster(rates, every, futures, seed)
    cluster.run()
    assert len(cluster.gateway.results) == len(cluster.workload.calls)
    return [wait for call, wait in cluster.gateway.results.items() if call.arrival < SECONDS]


def best(futures: Sequence[float]) -> float:
    """Return the number to which most of the futures are close."""
    edges = [each + 0.999 * max(SOON, CLOSE * each) for each in futures]  # of that to which a future is close
    return max(edges, key=lambda edge: part_close(edge, futures))


def part_close(predicted: float, waited: Sequence[float]) -> float:
    """Return the part of the waits to which the prediction is close."""
    return fmean(is_close(predicted, each) for each in waited)


def row(name: str, every: int, futures: int, seeds: int) -> str:
    """Return a row of the table, over the runs with `seeds` seeds."""
    found = [wait for seed in range(1, 1 + seeds) for wait in waits(RATES[name], every, futures, seed)]
    close = fmean(is_close(each.predicted, each.waited) for each in found)
    ordered = fmean(is_close(each.starts / SATURATING, each.waited) for each in found)
    shown = f"| {name} | {close:.0%} of {len(found)} | {ordered:.0%} |"
    tried = [each for each in found if each.futures]
    if not tried:
        return f"{shown} - | - |"
    own = fmean(part_close(each.predicted, each.futures) for each in tried)
    halves = [(each.futures[::2], each.futures[1::2]) for each in tried]
    least = fmean(part_close(best(a), b) / 2 + part_close(best(b), a) / 2 for a, b in halves)
    most = fmean(part_close(best(each.futures), each.futures) for each in tried)
    return f"{shown} {own:.0%} of {len(tried)} | {least:.0%} to {most:.0%} |"


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.predicted_waits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("clients", nargs="*", default=list(RATES))
    parser.add_argument("--every", type=int, default=30)
    parser.add_argument("--futures", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    print(f"commit {commit()}")
    print(
        "| clients | close | with the order known | close, of other futures | the best prediction, of other futures |"
    )
    print("|---|---|---|---|---|")
    for name in args.clients:
        print(row(name, args.every, args.futures, args.seeds), flush=True)


if __name__ == "__main__":
    main()
