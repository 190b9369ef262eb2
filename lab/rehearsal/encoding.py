"""The tokenization of one prompt: the gateway asks workers, hedged, as its driver does with the real ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.core.hedge import HEDGE_SECONDS, Hedge
from simulation.call import SimulatedCall
from simulation.clock import VirtualClock
from simulation.cluster import SimulatedCluster
from simulation.gateway import SimulatedGateway
from simulation.worker import SimulatedWorker

ENCODE_SECONDS = 0.002  # that a healthy worker needs


@dataclass(slots=True, eq=False, kw_only=True)
class EncodedCall(SimulatedCall):
    """A call whose prompt a worker must tokenize if it `is_text`."""

    is_text: bool = True


class HedgedEncoding:
    """One prompt's way to `workers`, in the order in which they are asked; `ended` is called with whether it worked.

    `delay` is the seconds of a message's way; `reaches` says whether the gateway's messages reach a worker.
    """

    def __init__(
        self,
        workers: Sequence[SimulatedWorker],
        clock: VirtualClock,
        delay: float,
        reaches: Callable[[SimulatedWorker], bool],
        ended: Callable[[bool], None],
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._delay = delay
        self._reaches = reaches
        self._ended = ended
        self._began = clock.now
        self._asked = 0
        self._hedge = Hedge(len(workers), HEDGE_SECONDS)

    def begin(self) -> None:
        """Ask the first worker."""
        self._ask(self._hedge.ask(self._clock.now))
        if self._hedge.exhausted:
            self._ended(False)

    def _ask(self, peer: int | None) -> None:
        self._hedge.check_invariants()
        if peer is not None:
            self._asked += 1
            self._clock.after(self._delay, partial(self._reach, self._workers[peer]))
        due = self._hedge.next_deadline()
        if due is not None:
            self._clock.at(due, lambda: self._ask(self._hedge.tick(self._clock.now)))

    def _reach(self, worker: SimulatedWorker) -> None:
        if self._clock.now < worker.stalled_until:
            self._clock.at(worker.stalled_until, partial(self._reach, worker))
        elif worker.alive and self._reaches(worker):
            seconds = ENCODE_SECONDS * worker.slowdown
            self._clock.after(seconds, partial(self._leave, worker, worker.life))
        else:
            self._clock.after(self._delay, self._fail)

    def _leave(self, worker: SimulatedWorker, life: int) -> None:
        if self._clock.now < worker.stalled_until:
            self._clock.at(worker.stalled_until, partial(self._leave, worker, life))
        elif worker.alive and worker.life == life and self._reaches(worker):
            self._clock.after(self._delay, self._answer)
        else:
            self._clock.after(self._delay, self._fail)

    def _fail(self) -> None:
        self._ask(self._hedge.failed(self._clock.now))
        if self._hedge.exhausted:
            self._ended(False)

    def _answer(self) -> None:
        if not self._hedge.answered():
            return
        took, others = self._clock.now - self._began, len(self._workers) - 1
        is_prompt = took <= HEDGE_SECONDS + 2 * self._delay + ENCODE_SECONDS
        assert is_prompt or self._asked > 1 or not others, f"one worker had a prompt for {took} s, {others} others none"
        self._ended(True)


def encode_texts(cluster: SimulatedCluster, gateway: SimulatedGateway) -> None:
    """Let the workers tokenize the prompts of each EncodedCall at `gateway`."""

    def encode(call: SimulatedCall, ended: Callable[[bool], None]) -> None:
        if not (isinstance(call, EncodedCall) and call.is_text):
            ended(True)
            return
        members = [member.identity.worker for member in cluster.dispatcher.live(cluster.clock.now)]
        workers = sorted((cluster.workers[name] for name in members), key=gateway.load)
        delay = cluster.spec.network_seconds
        HedgedEncoding(workers, cluster.clock, delay, lambda worker: gateway.streaming[worker.name], ended).begin()

    gateway.encode = encode
