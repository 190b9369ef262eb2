"""A second caller of the throttler: a rate-limit service such as a proxy asks, which has no gateway."""

from dataclasses import dataclass, field

from throttler.core.decider import Arrival, Decider
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.oit import Oit
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.quota import LocalQuota
from throttler.core.throttle import Caller, Rejected
from throttler.store import LocalStore
from throttler.throttler import Throttler

PROFILES = Profiles(limits=RateLimits(user_per_minute=2))


@dataclass
class Answer:
    """What the proxy is told: an HTTP status, and headers for the answer to its client."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


class RateLimitService:
    """One unary question per call; that the call has ended is never heard, so that it ends with the answer."""

    def __init__(self) -> None:
        decider = Decider(Oit(PROFILES, LocalQuota()), Interactions("a secret", PROFILES), Expectations(PROFILES))
        self._throttler = Throttler(decider, LocalStore(), lambda _: None)
        self.overloaded = True

    async def should_rate_limit(self, descriptor: dict[str, str]) -> Answer:
        caller = Caller(descriptor["tenant"], f"{descriptor['tenant']}/{descriptor['user']}", descriptor["app"])
        token = bytes.fromhex(descriptor.get("token", ""))
        arrival = Arrival(caller, descriptor.get("interaction", ""), token, overloaded=self.overloaded)
        decision = await self._throttler.decide(arrival)
        if isinstance(decision, Rejected):
            return Answer(429, {"retry-after": f"{decision.retry_after:.0f}", "reason": decision.message})
        self._throttler.ended(decision)
        return Answer(200, {"token": decision.token.hex()} if decision.token else {})


async def test_calls_over_the_limit_are_told_which_and_when_to_come_back() -> None:
    service, ann = RateLimitService(), {"tenant": "acme", "user": "ann", "app": "chat"}
    answers = [await service.should_rate_limit(ann) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert "user 'acme/ann' is over user_per_minute=2" in answers[2].headers["reason"]
    assert 0 < int(answers[2].headers["retry-after"]) <= 60
    service.overloaded = False
    assert (await service.should_rate_limit(ann)).status == 200


async def test_an_interaction_that_another_replica_opened_goes_on() -> None:
    ann = {"tenant": "acme", "user": "ann", "app": "chat"}
    opened = await RateLimitService().should_rate_limit({**ann, "interaction": "journey"})
    service = RateLimitService()
    for _ in range(2):
        await service.should_rate_limit(ann)
    assert (await service.should_rate_limit({**ann, "interaction": "another"})).status == 429
    carried = {**ann, "interaction": "journey", "token": opened.headers["token"]}
    assert (await service.should_rate_limit(carried)).status == 200
