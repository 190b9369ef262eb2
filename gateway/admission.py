"""Admission of calls: authentication, validation, throttling, tokenization and the check of the length."""

import math
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from fairlead.errors import FairleadError
from fairlead.outcomes import Outcome
from fairlead.token_ids import TOKEN_BYTES
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2, worker_pb2
from gateway.call import Call, Receive
from gateway.core.client_limits import CallAdmission, HeldBytesLimiter, counted_as
from gateway.interactions import CallInteractions
from gateway.tenants import CallerIdentity, Credentials, Tenants
from gateway.upstream.cluster import Cluster
from gateway.usage import UsageLedger, UsageSums
from gateway.validation import app_name, capacity, check_interaction, check_length, check_request, cut
from serving.cost import MICRO, within_limits
from serving.names import MAX_NAME, tenant_of
from serving.telemetry.records import CHAT, TEXT_COMPLETION
from serving.telemetry.spans import remote
from serving.wire import sampling_to_proto
from throttler.core.budget import TokenUse
from throttler.core.decider import Arrival
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.profiles import Expectation, Profiles
from throttler.core.throttle import Caller
from throttler.core.windows import LimitStatus
from throttler.core.working_sets import Context
from throttler.throttler import Throttler

CHARACTERS_PER_TOKEN = 4  # in English text
REFUSED_BYTES = 256 * 1024  # of a refused body, for each of which the call counts once more towards its user's limit


class Admission:
    """The steps between a call's arrival and its dispatch."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        tenants: Tenants,
        throttler: Throttler,
        profiles: Profiles,
        calls: CallAdmission[Call],
        waiting_prompts: HeldBytesLimiter,
        cache_scope: Callable[[CallerIdentity], str],
        interactions: CallInteractions,
        usage: UsageLedger,
    ) -> None:
        self._cluster = cluster
        self._tenants = tenants
        self._throttler = throttler
        self._profiles = profiles
        self._calls = calls
        self._waiting_prompts = waiting_prompts
        self._cache_scope = cache_scope
        self._usage = usage
        self._interactions = interactions

    def configure(self, profiles: Profiles) -> None:
        """Apply new app profiles from now on."""
        self._profiles = profiles

    def identify(self, credentials: Credentials) -> CallerIdentity:
        """Return the identity of the caller; raise Unauthenticated or PermissionDenied."""
        return self._tenants.identify(credentials)

    def identify_named(self, user: str, credentials: Credentials) -> CallerIdentity:
        """Return the identity of a caller whose message names `user`; raise as `identify`, and InvalidRequest."""
        return self._named(user, self.identify(credentials), credentials)

    def limits(self, call: Call) -> tuple[LimitStatus | None, LimitStatus | None]:
        """Return what is left of the tightest limit in calls and in tokens of a call's caller; None for no limit."""
        caller = Caller(tenant_of(call.client), call.client, call.app, call.key)
        in_tokens = self._throttler.token_status(caller) if self._throttler.budgets.are_set else None
        return self._throttler.limit_status(caller), in_tokens

    def budget_warnings(self, call: Call) -> list[str]:
        """Return the budgets of which a call's caller, or its interaction, has little left."""
        if not self._throttler.budgets.are_set:
            return []
        key = InteractionKey(call.client, call.app, call.interaction) if call.interaction else None
        return self._throttler.warnings(Caller(tenant_of(call.client), call.client, call.app, call.key), key)

    async def end_interaction(
        self, receive: Receive[inference_pb2.EndInteractionRequest], credentials: Credentials
    ) -> None:
        """End an interaction on its caller's request; raise Unauthenticated, PermissionDenied or InvalidRequest."""
        identity = self.identify(credentials)
        request = await receive()
        app = identity.app(app_name(request.app), self._profiles.apps)
        check_interaction(request.interaction)
        key = InteractionKey(identity.client, app, request.interaction.id)
        self._throttler.end_interaction(key, request.interaction.token)

    async def admit(
        self, call: Call, receive: Receive[inference_pb2.GenerateRequest], credentials: Credentials
    ) -> None:
        """Receive and admit the request of a call; raise the FairleadError that refuses it.

        The request is read and parsed only after its caller is authenticated. `call.cleanup` holds what must be undone
        at the end of the call.
        """
        identity = self._tenants.identify(credentials)
        call.client, call.key, call.traceparent = identity.client, identity.key, traceparent(credentials.traceparent)
        call.caller_request_id = caller_request_id(credentials.request_id)
        try:
            call.request = await receive()
            call.cleanup.callback(call.drop_request)
            identity = call.identity = self._named(call.user, identity, credentials)
            call.client, call.tier = identity.client, identity.tier
            call.background = identity.is_background(call.request.service_tier)
            call.counted_as = counted_as(call.client, background=call.background)
            self._examine(call)
            self._wait(call)
        except FairleadError:
            for _ in range(1 + call.body_bytes // REFUSED_BYTES):
                self._throttler.refused(identity.client)
            raise
        call.cleanup.callback(call.waiting.close)
        call.cleanup.callback(self._settle, call)
        call.permit = await self._throttler.answer(partial(self._calls.admit, call, self._arrival(call)))
        self._interactions.admitted(call, call.permit)
        if identity.users is not None:
            identity.users.enter(identity.client)
            call.cleanup.callback(identity.users.leave, identity.client)

    async def prepare(self, call: Call) -> None:
        """Tokenize the prompt of an admitted call, and make what a scheduler and a worker receive.

        Raise TooLong if it exceeds the model's limits, or another FairleadError if tokenizing fails.
        """
        request, sampling = call.request, call.sampling
        assert sampling is not None, "an admitted call has sampling parameters"
        identity, permit, model = call.identity, call.permit, call.limits
        to_encode = worker_pb2.EncodeRequest(
            prompt=request.prompt,
            client=call.counted_as,
            model=model.name,
            cache_scope=self._cache_scope(identity),
            public_system=begins_publicly(request.prompt, self._profiles.app(call.app).public_system),
        )
        encode = partial(self._cluster.encode, to_encode, call.deadline)
        encoded = await (encode() if call.encoding is None else call.encoding.get(encode))
        call.waiting.close()
        call.granted = frozenset(encoded.granted)
        if sampling.constraint is None:  # a constrained output is text from its beginning to its end
            call.output_format = encoded.output_format
        prompt_tokens = len(encoded.token_ids) // TOKEN_BYTES
        if call.fills_context:
            sampling = call.sampling = cut(sampling, max(1, capacity(model) - prompt_tokens))
        check_length(prompt_tokens, sampling.max_tokens, model)
        call.stage, call.interaction_token, call.entered = permit.stage, permit.token, bool(call.interaction)
        call.timings.admitted = call.unix_time()
        call.usage.prompt_tokens, call.usage.system_tokens = prompt_tokens, encoded.system_tokens
        weight = within_limits(identity.share * permit.norm)
        call.dispatch = scheduler_pb2.DispatchRequest(
            request_id=call.request_id,
            client=identity.client,
            model=model.name,
            digests=encoded.digests,
            revision=encoded.revision,
            prompt_tokens=prompt_tokens,
            weight=weight,
            background=call.background,
        )
        call.submit = worker_pb2.Submit(
            request_id=call.request_id,
            client=identity.client,
            model=model.name,
            token_ids=encoded.token_ids,
            system_tokens=encoded.system_tokens,
            sampling=sampling_to_proto(sampling),
            tokens_per_message=call.tokens_per_message,
            weight=weight,
            user_weight=within_limits(permit.norm),  # users of a tenant have equal shares
            interaction=call.interaction,
            in_interaction=permit.protected,
            ends_interaction=permit.arrival.last,
            background=call.background,
            cache_scope=to_encode.cache_scope,
            public_tokens=encoded.public_tokens,
            call_grammar="" if sampling.constraint else encoded.call_grammar,
        )
        call.drop_request()

    def _named(self, user: str, identity: CallerIdentity, credentials: Credentials) -> CallerIdentity:
        """Return the identity for a request whose message names `user`; it counts only if the key may name users."""
        if not user or credentials.user or not identity.may_name_users:
            return identity
        return self.identify(replace(credentials, user=user))

    def _examine(self, call: Call) -> None:
        """Make all checks that precede the throttle's decision; raise the FairleadError that refuses the call.

        The fields of `call` by which it is counted are set first, so that a refused call is counted correctly.
        """
        request = call.request
        call.operation = CHAT if request.prompt.WhichOneof("kind") == "chat" else TEXT_COMPLETION
        model = call.limits = self._cluster.members.resolve(request.model)
        call.model, call.policy = model.name, model.policy
        named = app_name(request.app)
        call.app = call.identity.app(named, self._profiles.apps)
        call.named_app = named if named != call.app else ""
        self._interactions.join(call)
        # The gateway assigns the seed, so that a second worker after a failure draws the same tokens.
        if not request.sampling.HasField("seed"):
            request.sampling.seed = secrets.randbits(64)
        call.sampling = check_request(request, model, call.fills_context)

    def _wait(self, call: Call) -> None:
        """Count the prompt among those that wait to be tokenized; raise ClientLimit."""
        client, size = call.counted_as, call.request.prompt.ByteSize()
        self._waiting_prompts.add(client, size)
        call.waiting = ExitStack()
        call.waiting.callback(self._waiting_prompts.remove, client, size)

    def _arrival(self, call: Call) -> Arrival:
        """Return what the throttler decides about."""
        identity, request = call.identity, call.request
        assert call.sampling is not None, "an examined call has sampling parameters"
        return Arrival(
            identity.caller(call.app),
            call.interaction,
            self._interactions.token(call),
            last=request.interaction.end,
            app_is_bound=identity.is_bound,
            overloaded=self._cluster.members.overloaded(call.model),
            prompt_tokens=expected_tokens(request.prompt),
            max_tokens=call.sampling.max_tokens,
            model=call.model,
            background=call.background,
            pool_tokens=self._cluster.members.kv_tokens(call.model),
            share=identity.share,
        )

    def _settle(self, call: Call) -> None:
        """Settle a call that has ended, or was refused before it was ready for a worker."""
        if not call.timings.admitted:
            self._throttler.settle_by(partial(self._calls.withdrawn, call))
            return
        usage, used = call.usage, self._used(call)
        need = left = None
        if call.outcome is Outcome.COMPLETED:
            need, left = needed(usage), Context(usage.prompt_tokens + usage.output_tokens, usage.cached_tokens)
        self._throttler.settle_by(partial(self._calls.ended, call, used, need, context=left))
        if call.timings.scheduled:
            self._note_usage(call, used)

    def _note_usage(self, call: Call, used: TokenUse) -> None:
        usage, timings = call.usage, call.timings
        sums = UsageSums(
            calls=1,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            micro_cost=round(usage.service * MICRO) if usage.service else used.cost * MICRO,
            nano_money=used.money,
            waited_us=max(0, timings.scheduled - timings.admitted) // 1000,
            weight=call.identity.share,
        )
        self._usage.add(call.client, call.app, call.model, call.unix_time() / 1e9, sums)

    def _used(self, call: Call) -> TokenUse:
        """Return what a call used of budgets: nothing if no worker began it."""
        if not call.timings.scheduled:
            return TokenUse(0, 0)
        usage = call.usage
        measured = self._throttler.budgets.measured(
            usage.prompt_tokens, usage.output_tokens, cached_tokens=usage.cached_tokens, model=call.model
        )
        # A worker charges less than the whole prompt if it had cached a part of it.
        return measured._replace(cost=math.ceil(usage.service)) if usage.service else measured


def expected_tokens(prompt: common_pb2.Prompt) -> int:
    """Return the tokens that a prompt probably has, before it is tokenized: CHARACTERS_PER_TOKEN for each, rounded up.

    Token ids are counted.
    """
    if prompt.WhichOneof("kind") == "token_ids":
        return len(prompt.token_ids.packed) // TOKEN_BYTES
    characters = len(prompt.text) + sum([len(message.content) for message in prompt.chat.messages])
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
    return given if given and remote(given) is not None else ""


def caller_request_id(given: str) -> str:
    """Return the caller's id of the call if it is printable and not too long, otherwise ""; it never replaces ours."""
    return given if len(given) <= MAX_NAME and given.isascii() and given.isprintable() else ""
