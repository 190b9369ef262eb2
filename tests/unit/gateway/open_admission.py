"""Admission without keys and without limits, for tests of what follows it."""

from gateway.admission import Admission
from gateway.core.client_limits import CallAdmission, HeldBytesLimiter, OpenCallLimiter
from gateway.interactions import CallInteractions
from gateway.tenants import CACHE_SCOPES, Tenants
from gateway.upstream.cluster import LONG_PROMPT, Cluster
from gateway.usage import UsageLedger
from serving.cost import WeightedTokens
from tests.unit.gateway.scripted_worker import SECRET
from throttler.core.budget_accounts import BudgetAccounts
from throttler.core.budgets import Budgets
from throttler.core.decider import Decider
from throttler.core.expectations import Expectations
from throttler.core.interactions import Interactions
from throttler.core.profiles import Profiles
from throttler.core.throttles import Unlimited
from throttler.store import LocalStore
from throttler.throttler import Throttler


def open_admission(cluster: Cluster) -> Admission:
    """Return an admission whose prompts the workers of `cluster` tokenize."""
    profiles = Profiles()
    decider = Decider(
        Unlimited(),
        Interactions(SECRET, profiles),
        Expectations(profiles),
        Budgets(profiles, BudgetAccounts(), WeightedTokens()),
    )
    throttler = Throttler(decider, LocalStore(), lambda _: None)
    return Admission(
        cluster=cluster,
        tenants=Tenants.load(""),
        throttler=throttler,
        profiles=profiles,
        calls=CallAdmission(decider, OpenCallLimiter(per_client=100, total=1000)),
        waiting_prompts=HeldBytesLimiter(100 * LONG_PROMPT, "prompts"),
        cache_scope=CACHE_SCOPES["user"],
        usage=UsageLedger(""),
        interactions=CallInteractions(SECRET, ""),
    )
