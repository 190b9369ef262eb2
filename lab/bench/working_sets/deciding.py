"""The processor time of a decision about a call, with claims on memory over that without, at many interactions.

    python -m lab.bench.working_sets.deciding [--interactions 10000] [--calls 1000] [--rounds 48]

Each interaction has been opened; then calls continue them at random, and every twentieth opens another one, under
overload. A decision is `Decider.decide` and `Decider.ended`. Both are measured in turns, with the garbage collector of
a service, and the median of the rounds counts.
"""

import argparse
import gc
import random
import time
from statistics import median

from lab.bench.machine import commit, processor
from serving.cost import WeightedTokens
from serving.process import YOUNG_OBJECTS
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.oit import Oit
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import Caller
from throttler.core.windows import LocalQuota
from throttler.core.working_sets import Context

USERS = 100
TOKENS = 2000
CALLS = 20  # of an interaction: those of the recorded agents have 9 to 29 on average


class Gateway:
    """Decides about calls of many interactions, on a pool whose workers have `pool_tokens` together (0: not known)."""

    def __init__(self, interactions: int, pool_tokens: int) -> None:
        profiles = Profiles(limits=RateLimits(user_per_minute=10**9, app_per_minute=10**9, max_calls=10**6))
        budgets = Budgets(profiles, BudgetAccounts(), WeightedTokens())
        throttle = Oit(profiles, LocalQuota())
        self._decider = Decider(throttle, Interactions("bench", profiles), Expectations(profiles), budgets)
        self._interactions, self._pool_tokens = interactions, pool_tokens
        self._tokens: dict[int, bytes] = {}
        self._random, self._now, self._calls = random.Random(1), 0.0, 0
        for number in range(interactions):
            self._call(number, overloaded=False)

    def run(self, calls: int) -> float:
        """Decide about `calls` more; return the processor time of each in seconds."""
        began = time.process_time()
        for _ in range(calls):
            self._now += 0.001
            self._calls += 1
            is_new = self._calls % CALLS == 0
            number = self._interactions + self._calls if is_new else self._random.randrange(self._interactions)
            self._call(number, overloaded=True)
        return (time.process_time() - began) / calls

    def _call(self, number: int, overloaded: bool) -> None:
        tenant = f"tenant-{number % USERS}"
        caller = Caller(tenant, f"{tenant}/user", "agent")
        arrival = Arrival(
            caller,
            str(number),
            self._tokens.get(number, b""),
            overloaded=overloaded,
            prompt_tokens=TOKENS,
            pool_tokens=self._pool_tokens,
        )
        permit = self._decider.decide(arrival, self._now)
        if isinstance(permit, Permit):
            self._tokens[number] = permit.token
            self._decider.ended(permit, None, self._now, Context(TOKENS, 0))


def main() -> None:
    """Print the times and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.working_sets.deciding", description=__doc__)
    parser.add_argument("--interactions", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=1000, help="of a round")
    parser.add_argument("--rounds", type=int, default=48)
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}")
    every = args.interactions + args.calls * args.rounds
    without, claims = (Gateway(args.interactions, pool_tokens) for pool_tokens in (0, every * TOKENS * 2))
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    rounds = [(without.run(args.calls), claims.run(args.calls)) for _ in range(args.rounds)]
    before, after = (median(each) * 1e6 for each in zip(*rounds, strict=True))
    ratio = median(after / before for before, after in rounds)
    print(f"without {before:.1f} µs, with claims {after:.1f} µs, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
