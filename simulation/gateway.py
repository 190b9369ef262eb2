"""The gateway's part: throttle, place, receive, place again; every call ends exactly once."""

from collections.abc import Callable, Sequence
from functools import partial

from fairlead.outcomes import Outcome
from gateway.core.attempts import Attempts
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.policies import Request
from local_worker.core.job import JobEvents
from serving.blocks import pack_digests
from simulation.call import Call
from simulation.clock import Clock
from simulation.prompts import digests_of
from simulation.spec import ADMISSIONS, ClusterSpec
from simulation.worker import Session, Worker
from throttler.core.interactions import Interactions
from throttler.core.profiles import Profiles
from throttler.core.throttle import Caller, Rejected
from throttler.core.tokens import Key

MODEL = "model"
TENANT = "tenant"  # all clients are users of one: they share the limits of its apps
OVERLOAD_SECONDS = 0.1  # between looks at the pool


class Gateway:
    """`done` is called once per call, at its end."""

    def __init__(
        self,
        spec: ClusterSpec,
        clock: Clock,
        dispatcher: Dispatcher,
        workers: dict[str, Worker],
        done: Callable[[Call], None],
    ) -> None:
        self._delay = spec.network_seconds
        self._clock = clock
        self._dispatcher = dispatcher
        self._workers = workers
        self._done = done
        profiles = Profiles(limits=spec.limits)
        self._throttle = ADMISSIONS[spec.throttle](profiles)
        self._interactions = Interactions("simulation", profiles)
        self._interaction_tokens: dict[Key, bytes] = {}
        self.streaming = dict.fromkeys(workers, True)  # whether the stream to each worker stands
        self._overloaded = False
        self._looked_at = -OVERLOAD_SECONDS
        self._protected: dict[Call, bool] = {}
        self._sessions: dict[Call, Session] = {}  # the current attempt of each call
        self._attempts: dict[Call, Attempts] = {}  # of each admitted call

    def arrived(self, call: Call) -> None:
        """A client's call."""
        now = self._clock.now
        key = Key(call.client, call.app, call.interaction)
        token = self._interaction_tokens.get(key, b"")
        continues = bool(call.interaction) and self._interactions.continues(key, token, now)
        caller = Caller(TENANT, call.client, call.app)
        decision = self._throttle.admit(caller, continues, self._is_overloaded(), now)
        if isinstance(decision, Rejected):
            self._end(call, decision.outcome)
            return
        if call.interaction:
            self._interactions.admitted(key, token, now)
            self._interaction_tokens[key] = self._interactions.token(key)
        self._protected[call] = decision.protected
        self._attempts[call] = Attempts()
        if call.patience is not None:
            self._clock.after(call.patience, partial(self._cancelled, call))
        self._place(call)

    def _is_overloaded(self) -> bool:
        if self._clock.now - self._looked_at >= OVERLOAD_SECONDS:
            self._looked_at = self._clock.now
            self._overloaded = self._dispatcher.overloaded(self._clock.now).get(MODEL, False)
        return self._overloaded

    def _place(self, call: Call) -> None:
        attempts = self._attempts[call]
        attempts.begin()
        call.attempts = attempts.number
        self._clock.after(self._delay, partial(self._dispatch, call))

    def _dispatch(self, call: Call) -> None:
        if call.outcome is not None:
            return
        attempts = self._attempts[call]
        prompt = [*call.prompt, *call.answer[: call.received]] if call.received else call.prompt
        if not call.digests:
            call.digests = digests_of(call.prompt, next(iter(self._workers.values())).spec.block_tokens)
        request = Request(
            request_id=str(call.number),
            attempt=attempts.number,
            client=call.client,
            model=MODEL,
            digests=pack_digests(call.digests),
            prompt_tokens=len(prompt),
            weight=call.weight,
            excluded=tuple(attempts.tried),
        )
        assignment = self._dispatcher.dispatch(request, self._clock.now)
        if assignment is None:
            self._end(call, Outcome.UNAVAILABLE)
            return
        identity = assignment.member.identity
        attempts.placed(identity.instance)
        call.worker = identity.worker
        session = Session(
            call,
            attempts.number,
            self._workers[call.worker],
            in_interaction=self._protected[call],
            generated=call.received,
            charged=attempts.charged,
        )
        self._sessions[call] = session
        self._clock.after(2 * self._delay, partial(self._submit, session))

    def _submit(self, session: Session) -> None:
        if self.streaming[session.worker.name]:
            session.worker.submit(session)
        elif self._is_current(session):
            self._place_again(session)

    def told(self, events: JobEvents[Session]) -> None:
        """What happened at a worker; events of older attempts are ignored."""
        for started in events.started:
            session = started.job.owner
            if self._is_current(session):
                self._attempts[session.call].entered()
                session.call.cached_tokens = started.job.request.cached
        for advance in events.tokens:
            session = advance.job.owner
            if self._is_current(session):
                self._receive(session.call, advance.tokens)
        for end in events.ended:
            session = end.job.owner
            if not self._is_current(session):
                continue
            if end.outcome is Outcome.UNAVAILABLE:
                self._place_again(session)
            else:
                self._end(session.call, end.outcome)

    def _is_current(self, session: Session) -> bool:
        return self._sessions.get(session.call) is session

    def _receive(self, call: Call, tokens: Sequence[int]) -> None:
        expected = call.answer[call.received : call.received + len(tokens)]
        assert [*tokens] == [*expected], f"call {call.number}: tokens {tokens} at {call.received}, not {expected}"
        if not call.received:
            call.first_token_at = self._clock.now
        call.received += len(tokens)
        self._attempts[call].advanced()

    def lost(self, worker: Worker) -> None:
        """The stream to `worker` broke, or the worker stalls: its calls are placed anew."""
        for session in [s for s in self._sessions.values() if s.worker is worker]:
            self._clock.after(self._delay, partial(worker.abort, session))
            self._place_again(session)

    def _place_again(self, session: Session) -> None:
        call = session.call
        del self._sessions[call]
        if not self._attempts[call].started:
            self._dispatcher.withdrawn(str(call.number), session.attempt)
        if self._attempts[call].exhausted:
            self._end(call, Outcome.UNAVAILABLE)
        else:
            self._place(call)

    def _cancelled(self, call: Call) -> None:
        """By its client; what it has had stays charged."""
        if call.outcome is not None:
            return
        session = self._sessions.get(call)
        if session is not None:
            if not self._attempts[call].started:
                self._dispatcher.withdrawn(str(call.number), session.attempt)
            self._clock.after(2 * self._delay, partial(session.worker.abort, session))  # not before it is submitted
        self._end(call, Outcome.CANCELLED)

    def _end(self, call: Call, outcome: Outcome) -> None:
        assert call.outcome is None, f"call {call.number} ends twice: {call.outcome}, {outcome}"
        if outcome is Outcome.COMPLETED:
            assert call.received == call.output_tokens, f"call {call.number}: {call.received} of {call.output_tokens}"
        call.outcome, call.ended_at = outcome, self._clock.now
        self._sessions.pop(call, None)
        self._attempts.pop(call, None)
        if self._protected.pop(call, None) is not None and call.interaction:
            key = Key(call.client, call.app, call.interaction)
            self._interactions.finished(key, end=call.last, now=self._clock.now)
        self._done(call)

    def check_invariants(self) -> None:
        """Raise AssertionError when an account or a window is impossible."""
        self._throttle.check_invariants()
        self._interactions.check_invariants()
        for attempts in self._attempts.values():
            attempts.check_invariants()


def placed_request(session: Session) -> Request:
    """What a worker tells the scheduler of a request that came to it."""
    call = session.call
    return Request(
        request_id=str(call.number),
        attempt=session.attempt,
        client=call.client,
        model=MODEL,
        digests=b"",
        prompt_tokens=call.prompt_tokens,
        weight=call.weight,
    )
