"""What the gateway decides about a call beyond its validity: is it refused, what does it continue, what does it weigh.

Everything that app profiles configure lives here, and so does what gateways share.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from redis.asyncio import Redis

from fairlead.errors import error_for
from fairlead.v1 import common_pb2, inference_pb2
from throttler.core.expectations import Expectations, ExpectationSubject
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction, Interactions
from throttler.core.leased_quota import LeasedQuota
from throttler.core.profiles import Expectation, Profiles
from throttler.core.quota import LocalQuota
from throttler.core.registry import THROTTLES
from throttler.core.throttle import WINDOW_SECONDS, Caller, Rejected, Throttle
from throttler.redis_expectations import exchange_for_ever
from throttler.redis_store import RedisStore
from throttler.store import LocalStore, Store, decide

log = logging.getLogger(__name__)
EXPIRY_SECONDS = 5.0


class Throttling:
    """Limits, interactions and expectations of one gateway. `closed` is told of interactions that are over.

    `redis` None: there is no other gateway; else there are `gateways`, until it says how many.
    """

    def __init__(
        self,
        kind: str,
        profiles: Profiles,
        secret: str,
        redis: Redis | None,
        closed: Callable[[FinishedInteraction], None],
        gateways: int,
    ) -> None:
        self.profiles = profiles
        self.interactions = Interactions(secret, profiles)
        self.expectations = Expectations(profiles)
        self._redis = redis
        self._closed = closed
        self.store: Store = LocalStore()
        self._throttle: Throttle
        if redis is None:
            self._throttle = THROTTLES[kind](profiles, LocalQuota())
            return
        leases = LeasedQuota(WINDOW_SECONDS, gateways)
        self._throttle = THROTTLES[kind](profiles, leases)
        self.store = RedisStore(redis, leases, self._throttle.window, window_seconds=WINDOW_SECONDS)

    def configure(self, profiles: Profiles) -> None:
        """Other profiles from now on; counts, interactions and what was learned stay."""
        self.profiles = profiles
        self._throttle.configure(profiles)
        self.interactions.configure(profiles)
        self.expectations.configure(profiles)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._expire())
            tasks.create_task(self.store.run())
            if self._redis is not None and isinstance(self.store, RedisStore):
                tasks.create_task(exchange_for_ever(self._redis, self.store.name, self.expectations))

    async def close(self) -> None:
        """Let go of Redis."""
        if self._redis is not None:
            await self._redis.aclose()

    async def check(self, tenant: str, key: InteractionKey, token: bytes, overloaded: bool) -> bool:
        """Whether the call continues an interaction in progress; raises ThrottledUser or ThrottledApp.

        Waits for more of a limit only where the call would otherwise be refused.
        """
        continues = bool(key.id) and self.interactions.continues(key, token, time.time())
        decision = await decide(
            self._throttle,
            self.store,
            time.monotonic,
            caller=Caller(tenant, key.client, key.app),
            protected=continues,
            overloaded=overloaded,
        )
        if isinstance(decision, Rejected):
            raise error_for(decision.outcome, decision.message, retry_after=decision.retry_after)
        return decision.protected

    def refused(self, client: str) -> None:
        """A call was refused before `check` was asked: every arrival counts towards its user."""
        self._throttle.refused(client, time.monotonic())

    def enter(self, key: InteractionKey, interaction: inference_pb2.Interaction) -> tuple[int, bytes]:
        """Count an admitted call in its interaction; returns its stage and the token for the next call."""
        stage = self.interactions.admitted(key, interaction.token, time.time())
        return stage, self.interactions.token(key)

    def leave(self, key: InteractionKey, end: bool) -> None:
        """An entered call is over."""
        closed = self.interactions.finished(key, end=end, now=time.time())
        if closed is not None:
            self._closed(closed)

    def end(self, key: InteractionKey, token: bytes) -> None:
        """The caller's word that an interaction is over."""
        closed = self.interactions.ended(key, token, time.time())
        if closed is not None:
            self._closed(closed)

    def learn(self, subject: ExpectationSubject, client: str, usage: common_pb2.Usage) -> None:
        """A call of `client` has completed."""
        prompt = usage.prompt_tokens - usage.system_tokens
        tokens = Expectation(input=prompt, system=usage.system_tokens, output=usage.output_tokens)
        self.expectations.observed(subject, client, tokens)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            for closed in self.interactions.expired(time.time()):
                self._closed(closed)
