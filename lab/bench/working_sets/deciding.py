"""The processor time of a decision about a call, with claims on memory over that without, at many interactions.

    python -m lab.bench.working_sets.deciding [--interactions 10000] [--calls 40000] [--rounds 5]

Each interaction has been opened; then calls continue them at random, and every twentieth opens another one, under
overload. A decision is `Decider.decide` and `Decider.ended`. Rounds with and without claims alternate.
"""

import argparse
import random
import time

from lab.bench.machine import commit, processor
from serving.cost import WeightedTokens
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Arrival, Decider, Permit
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.oit import Oit
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.quota import LocalQuota
from throttler.core.throttle import Caller
from throttler.core.working_sets import Context

USERS = 100
TOKENS = 2000
CALLS = 20  # of an interaction: those of the recorded agents have 9 to 29 on average


def measure(interactions: int, calls: int, pool_tokens: int) -> float:
    """Return the microseconds of processor time per call."""
    profiles = Profiles(limits=RateLimits(user_per_minute=10**9, app_per_minute=10**9, max_calls=10**6))
    budgets = Budgets(profiles, BudgetAccounts(), WeightedTokens())
    decider = Decider(Oit(profiles, LocalQuota()), Interactions("bench", profiles), Expectations(profiles), budgets)
    tokens = dict[int, bytes]()
    now, rng = 0.0, random.Random(1)

    def call(number: int, overloaded: bool) -> None:
        user = f"tenant-{number % USERS}/user"
        caller = Caller(f"tenant-{number % USERS}", user, "agent")
        given = tokens.get(number, b"")
        arrival = Arrival(caller, str(number), given, overloaded=overloaded, prompt_tokens=TOKENS)
        permit = decider.decide(arrival._replace(pool_tokens=pool_tokens), now)
        if isinstance(permit, Permit):
            tokens[number] = permit.token
            decider.ended(permit, None, now, Context(TOKENS, 0))

    for number in range(interactions):
        call(number, overloaded=False)
    began = time.process_time()
    for each in range(calls):
        now += 0.001
        is_new = each % CALLS == 0
        call(interactions + each if is_new else rng.randrange(interactions), overloaded=True)
    return (time.process_time() - began) * 1e6 / calls


def main() -> None:
    """Print the times and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.working_sets.deciding", description=__doc__)
    parser.add_argument("--interactions", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}")
    without, claims = list[float](), list[float]()
    for _ in range(args.rounds):
        without.append(measure(args.interactions, args.calls, 0))
        claims.append(measure(args.interactions, args.calls, (args.interactions + args.calls) * TOKENS))
    print(f"without {min(without):.1f} µs, with claims {min(claims):.1f} µs, ratio {min(claims) / min(without):.2f}")


if __name__ == "__main__":
    main()
