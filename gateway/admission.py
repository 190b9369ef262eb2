"""Admission of calls: authentication, validation, throttling, tokenization and the check of the length."""

import math
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

from fairlead.errors import FairleadError, error_for
from fairlead.outcomes import Outcome
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2, worker_pb2
from gateway.call import Call
from gateway.core.held_bytes_limiter import HeldBytesLimiter
from gateway.core.open_call_limiter import OpenCallLimiter
from gateway.core.tool_call_ids import ToolCallIds
from gateway.credentials import Credentials
from gateway.interactions import CallInteractions
from gateway.prepared_request import AdmittedRequest, PreparedRequest
from gateway.request import CallRequest
from gateway.tenants import CallerIdentity, Tenants
from gateway.tools import check_rendered
from gateway.upstream.cluster import Cluster
from gateway.validation import app_name, capacity, check_interaction, check_length, check_request, cut
from serving.cost import within_limits
from serving.names import MAX_NAME
from serving.sampling_params import SamplingParams
from serving.telemetry.records import CHAT, TEXT_COMPLETION
from serving.telemetry.spans import remote
from throttler.core.decider import Arrival, Permit
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.profiles import Expectation, Profiles
from throttler.core.throttle import Caller, LimitStatus, Rejected
from throttler.core.token_limits import TokenUse
from throttler.throttler import Throttler

Request = TypeVar("Request")
CHARACTERS_PER_TOKEN = 4  # in English text
REFUSED_BYTES = 256 * 1024  # of a refused body, for each of which the call counts once more towards its user's limit
Receive = Callable[[], Awaitable[Request]]  # reads and parses the call's request; raises InvalidRequest


class Admission:
    """The steps between a call's arrival and its dispatch."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        tenants: Tenants,
        throttler: Throttler,
        profiles: Profiles,
        open_calls: OpenCallLimiter,
        waiting_prompts: HeldBytesLimiter,
        cache_scope: Callable[[CallerIdentity], str],
        cuts_max_tokens: bool,
        tool_call_ids: ToolCallIds,
    ) -> None:
        self._cluster = cluster
        self._tenants = tenants
        self._throttler = throttler
        self._profiles = profiles
        self._open_calls = open_calls
        self._waiting_prompts = waiting_prompts
        self._cache_scope = cache_scope
        self._cuts_max_tokens = cuts_max_tokens
        self._interactions = CallInteractions(tool_call_ids)

    def configure(self, profiles: Profiles) -> None:
        """Apply new app profiles from now on."""
        self._profiles = profiles

    def identify(self, credentials: Credentials) -> CallerIdentity:
        """Return the identity of the caller; raise Unauthenticated or PermissionDenied."""
        return self._tenants.identify(credentials)

    def identify_named(self, user: str, credentials: Credentials) -> CallerIdentity:
        """Return the identity of a caller whose message names `user`; raise as `identify`, and InvalidRequest."""
        return self._named(user, self.identify(credentials), credentials)

    def limit_status(self, caller: Caller) -> LimitStatus | None:
        """Return what is left of the caller's tightest limit; None where nothing limits it."""
        return self._throttler.limit_status(caller)

    def token_status(self, caller: Caller) -> LimitStatus | None:
        """Return what is left of the caller's tightest limit in tokens; None where there is none."""
        return self._throttler.token_status(caller)

    async def end_interaction(
        self, receive: Receive[inference_pb2.EndInteractionRequest], credentials: Credentials
    ) -> None:
        """End an interaction on its caller's request; raise Unauthenticated, PermissionDenied or InvalidRequest."""
        identity = self.identify(credentials)
        request = await receive()
        app = self._app(identity, app_name(request.app))
        check_interaction(request.interaction)
        key = InteractionKey(identity.client, app, request.interaction.id)
        self._throttler.end_interaction(key, request.interaction.token)

    async def admit(self, receive: Receive[CallRequest], credentials: Credentials, call: Call) -> AdmittedRequest:
        """Admit a call and return its request; raise the FairleadError that refuses it.

        The request is read and parsed only after its caller is authenticated. `call.cleanup` holds what must be undone
        at the end of the call.
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
            waiting = self._wait(request.prompt, identity.client)
        except FairleadError:
            for _ in range(1 + call.body_bytes // REFUSED_BYTES):
                self._throttler.refused(identity.client)
            raise
        call.cleanup.callback(waiting.close)
        permit = await self._decide(request, sampling.max_tokens, identity, call)
        call.cleanup.callback(self._settle, permit, call)
        if identity.users is not None:
            identity.users.enter(identity.client)
            call.cleanup.callback(identity.users.leave, identity.client)
        self._open_calls.open(identity.client, permit.protected)
        call.cleanup.callback(self._open_calls.close, identity.client)
        return AdmittedRequest(
            request=request,
            cuts_max_tokens=self._cuts(received),
            identity=identity,
            model=model,
            sampling=sampling,
            permit=permit,
            waiting=waiting,
        )

    async def encode(self, admitted: AdmittedRequest, call: Call) -> PreparedRequest:
        """Tokenize the prompt and return the request that is ready for dispatch.

        Raise TooLong if it exceeds the model's limits, or another FairleadError if tokenizing fails.
        """
        request, identity, model, sampling = admitted.request, admitted.identity, admitted.model, admitted.sampling
        permit = admitted.permit
        to_encode = worker_pb2.EncodeRequest(
            prompt=request.prompt,
            client=identity.client,
            model=model.name,
            cache_scope=self._cache_scope(identity),
            public_system=begins_publicly(request.prompt, self._profiles.app(call.app).public_system),
        )
        encoded = await self._cluster.encode(to_encode, call.deadline)
        admitted.waiting.close()
        check_rendered(request.prompt.chat, encoded)
        call.granted = frozenset(encoded.granted)
        if sampling.constraint is None:  # a constrained output is text from its beginning to its end
            call.output_format = encoded.output_format
        prompt_tokens = len(encoded.token_ids) // TOKEN_BYTES
        if admitted.cuts_max_tokens:
            sampling = call.sampling = cut(sampling, max(1, capacity(model) - prompt_tokens))
        check_length(prompt_tokens, sampling.max_tokens, model)
        call.stage, call.interaction_token, call.entered = permit.stage, permit.token, bool(call.interaction)
        call.timings.admitted = call.unix_time()
        return PreparedRequest(
            request_id=call.request_id,
            client=identity.client,
            model=model.name,
            token_ids=encoded.token_ids,
            digests=encoded.digests,
            revision=encoded.revision,
            system_tokens=encoded.system_tokens,
            sampling=sampling,
            weight=within_limits(identity.share * permit.norm),
            user_weight=within_limits(permit.norm),
            interaction=call.interaction,
            in_interaction=permit.protected,
            cache_scope=to_encode.cache_scope,
            public_tokens=encoded.public_tokens,
            deadline=call.deadline,
            call_grammar="" if sampling.constraint else encoded.call_grammar,
        )

    def _named(self, user: str, identity: CallerIdentity, credentials: Credentials) -> CallerIdentity:
        """Return the identity for a request whose message names `user`; it counts only if the key may name users."""
        if not user or credentials.user or not identity.may_name_users:
            return identity
        return self.identify(replace(credentials, user=user))

    def _examine(
        self, received: CallRequest, identity: CallerIdentity, call: Call
    ) -> tuple[scheduler_pb2.ModelInfo, SamplingParams]:
        """Make all checks that precede the throttle's decision; raise the FairleadError that refuses the call.

        The fields of `call` by which it is counted are set first, so that a refused call is counted correctly.
        """
        request = received.message
        call.tier = identity.tier
        model = self._cluster.members.resolve(request.model)
        call.model, call.policy = model.name, model.policy
        named = app_name(request.app)
        call.app = self._app(identity, named)
        call.named_app = named if named != call.app else ""
        self._interactions.join(call, received, time.monotonic())
        # The gateway assigns the seed, so that a second worker after a failure draws the same tokens.
        if not request.sampling.HasField("seed"):
            request.sampling.seed = secrets.randbits(64)
        sampling = call.sampling = check_request(request, model, received.fills_context, self._cuts(received))
        return model, sampling

    def _cuts(self, received: CallRequest) -> bool:
        """Return whether `max_tokens` is cut to what the prompt leaves of the context."""
        return received.fills_context and (
            self._cuts_max_tokens or not received.message.sampling.HasField("max_tokens")
        )

    def _wait(self, prompt: common_pb2.Prompt, client: str) -> ExitStack:
        """Count a prompt among those that wait to be tokenized until the result is closed; raise ClientLimit."""
        size, waiting = prompt.ByteSize(), ExitStack()
        self._waiting_prompts.add(client, size)
        waiting.callback(self._waiting_prompts.remove, client, size)
        return waiting

    def _app(self, identity: CallerIdentity, named: str) -> str:
        return identity.app(named, self._profiles.apps)

    async def _decide(
        self, request: inference_pb2.GenerateRequest, max_tokens: int, identity: CallerIdentity, call: Call
    ) -> Permit:
        """Return the throttler's permit; raise the FairleadError with which it refuses the call."""
        interaction = request.interaction
        decision = await self._throttler.decide(
            Arrival(
                Caller(identity.tenant, identity.client, call.app),
                call.interaction,
                interaction.token,
                last=interaction.end,
                app_is_bound=identity.is_bound,
                overloaded=self._cluster.members.overloaded(call.model),
                prompt_tokens=expected_tokens(request.prompt),
                max_tokens=max_tokens,
            )
        )
        if isinstance(decision, Rejected):
            raise error_for(decision.outcome, decision.message, retry_after=decision.retry_after)
        return decision

    def _settle(self, permit: Permit, call: Call) -> None:
        """Settle the permit of a call that has ended, or was refused before it was ready for a worker."""
        if not call.timings.admitted:
            self._throttler.withdrawn(permit)
            return
        self._throttler.settle(permit.reservation, self._used(call))
        self._throttler.ended(permit, needed(call.usage) if call.outcome is Outcome.COMPLETED else None)

    def _used(self, call: Call) -> TokenUse:
        """Return what a call used of limits in tokens: nothing if no worker began it."""
        if not call.timings.scheduled:
            return TokenUse(0, 0)
        usage = call.usage
        measured = self._throttler.measured(usage.prompt_tokens, usage.output_tokens)
        # A worker charges less than the whole prompt if it had cached a part of it.
        return measured._replace(cost=math.ceil(usage.service)) if usage.service else measured


def expected_tokens(prompt: common_pb2.Prompt) -> int:
    """Return the tokens that a prompt probably has, before it is tokenized: CHARACTERS_PER_TOKEN for each, rounded up.

    Token ids are counted.
    """
    if prompt.WhichOneof("kind") == "token_ids":
        return len(prompt.token_ids.packed) // TOKEN_BYTES
    characters = len(prompt.text) + sum(len(message.content) for message in prompt.chat.messages)
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


def needed(usage: common_pb2.Usage) -> Expectation:
    """Return the tokens that a call needed."""
    prompt = usage.prompt_tokens - usage.system_tokens
    return Expectation(input=prompt, system=usage.system_tokens, output=usage.output_tokens)


def begins_publicly(prompt: common_pb2.Prompt, public_system: str) -> bool:
    """Return whether the chat begins with exactly the public system prompt of its app."""
    first = next(iter(prompt.chat.messages), None)
    return bool(public_system) and first is not None and (first.role, first.content) == ("system", public_system)


def traceparent(given: str) -> str:
    """Return the caller's traceparent if it is valid, otherwise "". Invalid ones are not kept in memory."""
    return given if remote(given) is not None else ""


def caller_request_id(given: str) -> str:
    """Return the caller's id of the call if it is printable and not too long, otherwise ""; it never replaces ours."""
    return given if len(given) <= MAX_NAME and given.isascii() and given.isprintable() else ""
