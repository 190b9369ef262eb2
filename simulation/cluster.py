"""The whole system under virtual time: a gateway, scheduler, workers, and the network delays between them."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle

from fairlead.outcomes import Outcome
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Member, WorkerIdentity, WorkerLoad
from local_worker.core.events import RequestAccepted, WorkerUpdate, load_of
from serving.blocks import pack_digests, runs
from simulation.admission import MODEL, SimulatedAdmission, Tokens
from simulation.call import SimulatedCall
from simulation.clock import VirtualClock
from simulation.gateway import SimulatedGateway, placed_request
from simulation.run_log import RunLog
from simulation.scheduler import make_dispatcher
from simulation.spec import ClusterSpec
from simulation.worker import SimulatedWorker
from simulation.workload import Workload
from throttler.core.windows import LocalQuota


class SimulatedCluster:
    """A system that runs one workload once. Public attributes are those that tests inspect and faults change.

    A different `run_log` can record less of a run. A different `dispatcher` can stand for several schedulers.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        workload: Workload,
        run_log: RunLog | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.spec = spec
        self.clock = VirtualClock()
        self.run_log = run_log or RunLog()
        names = [f"worker-{number}" for number in range(spec.workers)]
        self.workers = {name: SimulatedWorker(name, spec.worker, self.clock, self.run_log) for name in names}
        for worker, slowdown in zip(self.workers.values(), cycle(spec.slowdowns), strict=False):
            worker.slowdown = slowdown
        self.dispatcher = dispatcher or make_dispatcher(spec)
        self.gateways = self._make_gateways()
        self.members: dict[str, Member] = {}
        self.reachable = dict.fromkeys(names, True)  # whether the scheduler can reach the worker
        self.keeps_events: Callable[[], bool] = lambda: True
        self._workload = workload
        self._arrivals = iter(workload.first())
        self._exhausted = False
        self._open: dict[SimulatedCall, None] = {}

    def run(self) -> RunLog:
        """Run until every call has an outcome; raises AssertionError when a call or token is lost, duplicated or
        impossible."""
        for worker in self.workers.values():
            worker.report = self._worker_reported
            self.attach(worker)
            self._report(worker)
        self._plan_next_arrival()
        with _without_collection():
            self.clock.run()
        lost = [call.number for call in self._open]
        assert not lost, f"calls without an outcome: {lost[:20]}"
        self.run_log.calls.sort(key=lambda call: (call.arrival, call.number))
        for worker in self.workers.values():
            self.run_log.worst_gap = max(self.run_log.worst_gap, worker.batcher.queue.ledger.worst_gap)
            self.run_log.bound = worker.batcher.queue.policy.bound_micro
        return self.run_log

    def _make_gateways(self) -> list[SimulatedGateway]:
        return [self._make_gateway({})]

    def _make_gateway(self, tokens: Tokens) -> SimulatedGateway:
        admission = SimulatedAdmission(self.spec, self.clock, self.dispatcher, tokens, LocalQuota())
        return SimulatedGateway(self.spec, self.clock, self.dispatcher, self.workers, admission, self._done)

    @property
    def idle(self) -> bool:
        """Whether no call is open and none will arrive."""
        return self._exhausted and not self._open

    def attach(self, worker: SimulatedWorker) -> None:
        """Open the worker's stream to the scheduler with a snapshot of its cache; do nothing if the worker is
        unreachable."""
        if not (worker.alive and self.reachable[worker.name]):
            return
        spec = worker.spec
        identity = WorkerIdentity(
            worker.name,
            f"{worker.name}.{worker.life}",
            "",
            {MODEL: ""},
            spec.block_tokens,
            spec.kv_tokens,
            spec.max_running,
        )
        worker.batcher.queue.cache.changes.take_events()
        snapshot = runs(worker.batcher.queue.cache.snapshot())
        member = self.members[worker.name] = self.dispatcher.attached(identity, snapshot, self.clock.now)
        self._accepted(member, worker.machine.accepted)

    def detach(self, worker: SimulatedWorker) -> None:
        """Report to the dispatcher that the worker's stream broke."""
        self.dispatcher.lost(self.members[worker.name])

    def lost(self, worker: SimulatedWorker) -> None:
        """Report to all gateways that they cannot reach the worker."""
        for gateway in self.gateways:
            gateway.lost(worker)

    def _plan_next_arrival(self) -> None:
        """Plan one call at a time, so that a workload of a million calls is not held in memory."""
        call = next(self._arrivals, None)
        if call is None:
            self._exhausted = True
            return
        self._plan_arrival(call)
        self.clock.at(call.arrival, self._plan_next_arrival)

    def _plan_arrival(self, call: SimulatedCall) -> None:
        self._open[call] = None
        call.gateway = call.number % len(self.gateways)
        self.clock.at(call.arrival, partial(self.gateways[call.gateway].arrived, call))

    def _done(self, call: SimulatedCall) -> None:
        del self._open[call]
        self.run_log.seconds = self.clock.now
        self.run_log.ended(call)
        for following in self._workload.ended(call):
            self._plan_arrival(following)
        # Otherwise an abandoned attempt may still reach its worker and needs the prompt.
        if call.attempts <= 1 and call.outcome is not Outcome.CANCELLED:
            call.release()

    def _worker_reported(self, worker: SimulatedWorker, update: WorkerUpdate) -> None:
        events = update.events
        if events.started or events.tokens or events.ended:
            for gateway in self.gateways:
                if gateway.streaming[worker.name]:
                    self.clock.after(self.spec.network_seconds, partial(gateway.worker_reported, events))
        if events.accepted or events.computed or events.ended or update.cached or update.evicted:
            delay = self.spec.network_seconds + self.spec.event_lag_seconds
            self.clock.after(delay, partial(self._progressed, worker, self.members[worker.name], update))

    def _progressed(self, worker: SimulatedWorker, member: Member, update: WorkerUpdate) -> None:
        if not self.reachable[worker.name]:
            return
        self._accepted(member, update.events.accepted)
        for request in update.events.computed:
            self.dispatcher.computed(member, request.id, request.attempt)
        for end in update.events.ended:
            request = end.request
            started = request.started_at is not None
            self.dispatcher.ended(member, request.id, request.attempt, started, request.output_tokens)
        if self.keeps_events():
            self.dispatcher.progressed(member, runs(update.cached), pack_digests(update.evicted))

    def _accepted(self, member: Member, accepted: Iterable[RequestAccepted]) -> None:
        for request, cached_tokens in accepted:
            self.dispatcher.accepted(member, placed_request(request), self.clock.now, cached_tokens)

    def _report(self, worker: SimulatedWorker) -> None:
        if worker.alive and self.clock.now >= worker.stalled_until and self.reachable[worker.name]:
            queue, now = worker.batcher.queue, self.clock.now
            oldest = queue.waiting.oldest_since
            queued = 0.0 if oldest is None else now - oldest
            told = load_of(queue, 0.0)
            load = WorkerLoad(
                told.running - told.background_running,
                told.waiting - told.background_waiting,
                told.kv_tokens_used - told.background_kv_tokens,
                queued,
            )
            member = self.members[worker.name]
            self.clock.after(self.spec.network_seconds, lambda: self.dispatcher.reported(member, load, self.clock.now))
        if not self.idle or self.clock.now == 0:
            self.clock.after(self.spec.report_seconds, partial(self._report, worker))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector during a run.

    A run drops no object that is part of a cycle, and the search for cycles in all kept objects takes a third of the
    time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
