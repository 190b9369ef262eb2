"""From a request to admitted work: who asks, is it valid, is it throttled, does it fit."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar
from weakref import WeakValueDictionary

from fairlead.errors import FairleadError
from fairlead.outcomes import Outcome
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2, worker_pb2
from gateway.call import Call
from gateway.credentials import Credentials
from gateway.open_call_limiter import OpenCallLimiter
from gateway.prepared_request import AdmittedRequest, PreparedRequest
from gateway.request import CallRequest
from gateway.tenants import CallerIdentity, Tenants
from gateway.throttling import Throttling
from gateway.upstream.cluster import Cluster
from gateway.validation import app_name, capacity, check_interaction, check_length, check_prompt, check_sampling
from serving.cost import within_limits
from serving.names import MAX_NAME
from serving.sampling_params import SamplingParams
from serving.telemetry.records import CHAT, TEXT_COMPLETION
from serving.telemetry.spans import remote
from throttler.core.expectations import ExpectationSubject
from throttler.core.interaction_tokens import InteractionKey

LONG_PROMPT = 16 * 1024  # bytes; shorter ones are tokenized within milliseconds
Request = TypeVar("Request")
Receive = Callable[[], Awaitable[Request]]  # reads and parses the call's request; raises InvalidRequest


class Admission:
    """Everything between a call's arrival and its dispatch."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        tenants: Tenants,
        throttling: Throttling,
        open_calls: OpenCallLimiter,
        cache_scope: Callable[[CallerIdentity], str],
    ) -> None:
        self._cluster = cluster
        self._tenants = tenants
        self._throttling = throttling
        self._open_calls = open_calls
        self._cache_scope = cache_scope
        # By client, as long as one of its calls has the turn or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def identify(self, credentials: Credentials) -> CallerIdentity:
        """Who calls; raises Unauthenticated or PermissionDenied."""
        return self._tenants.identify(credentials, time.monotonic())

    async def end_interaction(
        self, receive: Receive[inference_pb2.EndInteractionRequest], credentials: Credentials
    ) -> None:
        """The caller's word that an interaction is over; raises Unauthenticated, PermissionDenied or InvalidRequest."""
        identity = self.identify(credentials)
        request = await receive()
        app = self._app(identity, app_name(request.app))
        check_interaction(request.interaction)
        key = InteractionKey(identity.client, app, request.interaction.id)
        self._throttling.end(key, request.interaction.token)

    async def admit(self, receive: Receive[CallRequest], credentials: Credentials, call: Call) -> AdmittedRequest:
        """A request that is let in; raises the FairleadError that refuses it.

        It is received, and parsed, when it is known who calls. What must be undone is in `call.cleanup`.
        """
        identity = self.identify(credentials)
        call.client, call.traceparent = identity.client, traceparent(credentials.traceparent)
        call.caller_request_id = caller_request_id(credentials.request_id)
        try:
            received = await receive()
            request = received.message
            identity = self._named(received.user, identity, credentials)
            call.client = identity.client
            call.operation = CHAT if request.prompt.WhichOneof("kind") == "chat" else TEXT_COMPLETION
            model, sampling = self._examine(received, identity, call)
        except FairleadError:
            self._throttling.refused(identity.client)
            raise
        key = InteractionKey(identity.client, call.app, call.interaction)
        overloaded = self._cluster.members.overloaded(model.name)
        in_interaction = await self._throttling.check(identity.tenant, key, request.interaction.token, overloaded)
        self._open_calls.open(identity.client, in_interaction)
        call.cleanup.callback(self._open_calls.close, identity.client)
        return AdmittedRequest(
            request=request,
            fills_context=received.fills_context and not request.sampling.HasField("max_tokens"),
            identity=identity,
            model=model,
            sampling=sampling,
            in_interaction=in_interaction,
        )

    async def encode(self, admitted: AdmittedRequest, call: Call) -> PreparedRequest:
        """The work to dispatch: the prompt is tokenized, and the call counted in its interaction.

        Raises FairleadError: TooLong, and what tokenizing it raises. What must be undone is in `call.cleanup`.
        """
        request, identity, model, sampling = admitted.request, admitted.identity, admitted.model, admitted.sampling
        to_encode = worker_pb2.EncodeRequest(
            prompt=request.prompt,
            client=identity.client,
            model=model.name,
            cache_scope=self._cache_scope(identity),
            public_system=begins_publicly(request.prompt, self._throttling.profiles.app(call.app).public_system),
        )
        encoded = await self._in_turn(to_encode, call.deadline)
        prompt_tokens = len(encoded.token_ids) // TOKEN_BYTES
        if admitted.fills_context:
            sampling = call.sampling = replace(sampling, max_tokens=max(1, capacity(model) - prompt_tokens))
        check_length(prompt_tokens, sampling.max_tokens, model)
        if request.HasField("interaction"):
            self._enter(InteractionKey(identity.client, call.app, call.interaction), request.interaction, call)
        norm = self._norm(identity, call)
        call.timings.admitted = time.time_ns()
        return PreparedRequest(
            request_id=call.request_id,
            client=identity.client,
            model=model.name,
            token_ids=encoded.token_ids,
            digests=encoded.digests,
            revision=encoded.revision,
            system_tokens=encoded.system_tokens,
            sampling=sampling,
            weight=within_limits(identity.share * norm),
            in_interaction=admitted.in_interaction,
            cache_scope=to_encode.cache_scope,
            public_tokens=encoded.public_tokens,
            deadline=call.deadline,
        )

    def _named(self, user: str, identity: CallerIdentity, credentials: Credentials) -> CallerIdentity:
        """Return whom a request is from that names a user itself; its word counts where the key may name users."""
        if not user or credentials.user or not identity.may_name_users:
            return identity
        return self.identify(replace(credentials, user=user))

    def _examine(
        self, received: CallRequest, identity: CallerIdentity, call: Call
    ) -> tuple[scheduler_pb2.ModelInfo, SamplingParams]:
        """Everything that can be judged before the throttle is asked; raises the FairleadError that refuses it.

        First what `call` is entered under, so that one that is refused is told of in its place.
        """
        request = received.message
        call.tier = identity.tier
        model = self._cluster.members.resolve(request.model)
        call.model, call.policy = model.name, model.policy
        named = app_name(request.app)
        call.app = self._app(identity, named)
        call.named_app = named if named != call.app else ""
        if request.HasField("interaction"):
            check_interaction(request.interaction)
            call.interaction = request.interaction.id
        sampling = call.sampling = check_request(received, model)
        return model, sampling

    def _app(self, identity: CallerIdentity, named: str) -> str:
        return identity.app(named, self._throttling.profiles.apps)

    async def _in_turn(self, request: worker_pb2.EncodeRequest, deadline: float | None) -> worker_pb2.EncodeResponse:
        """Tokenize. A client's long prompts go one after the other: workers need not hold all of them."""
        if request.ByteSize() <= LONG_PROMPT:
            return await self._cluster.encode(request, deadline)
        turn = self._turns.setdefault(request.client, asyncio.Lock())
        async with turn:
            return await self._cluster.encode(request, deadline)

    def _enter(self, key: InteractionKey, interaction: inference_pb2.Interaction, call: Call) -> None:
        """Count the call in its interaction."""
        call.stage, call.interaction_token = self._throttling.enter(key, interaction)
        call.entered = True
        call.cleanup.callback(self._throttling.leave, key, interaction.end)

    def _norm(self, identity: CallerIdentity, call: Call) -> float:
        """What calls of this app and stage are expected to need over the reference; the call's end teaches it."""
        if not identity.is_bound:
            return 1.0
        subject = ExpectationSubject(identity.tenant, call.app, call.stage)
        call.cleanup.callback(self._learn, subject, call)
        return self._throttling.expectations.norm(subject)

    def _learn(self, subject: ExpectationSubject, call: Call) -> None:
        if call.outcome is Outcome.COMPLETED:
            self._throttling.learn(subject, call.client, call.usage)


def begins_publicly(prompt: common_pb2.Prompt, public_system: str) -> bool:
    """Whether the chat begins with the system prompt that its app has made public, not with one of the caller's own."""
    first = next(iter(prompt.chat.messages), None)
    return bool(public_system) and first is not None and (first.role, first.content) == ("system", public_system)


def traceparent(given: str) -> str:
    """The caller's, if it gave one that stands for a span; it is kept as long as the call is remembered."""
    return given if remote(given) is not None else ""


def caller_request_id(given: str) -> str:
    """The caller's own id of the call, if it gave one that can be shown; kept beside ours, never in its place."""
    return given if len(given) <= MAX_NAME and given.isascii() and given.isprintable() else ""


def check_request(received: CallRequest, model: scheduler_pb2.ModelInfo) -> SamplingParams:
    """Everything that can be judged before the prompt is tokenized; raises InvalidRequest."""
    request = received.message
    check_prompt(request.prompt, model)
    sampling = check_sampling(request.sampling, model.vocab_size, capacity(model) if received.fills_context else None)
    # Assigned here, so that another worker that takes the request over draws the same tokens.
    return sampling if request.sampling.HasField("seed") else replace(sampling, seed=secrets.randbits(64))
