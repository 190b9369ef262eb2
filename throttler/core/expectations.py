"""Tokens that apps' calls normally need, learned from completed calls (FairServe section 4.3, equation 2).

- Each tenant has its own expectations, so that no tenant's calls change the expectations of another tenant.
- The value of (tenant, app, stage) is the median of the clients' medians: a client that calls more often does not
  change it more.
- The expectation of an app with light calls falls to what they need, whatever its profile says, but not below half of
  the deployment's smallest prior. This is the smallest weight for which fairness bounds must hold.
- The expectation of an app with heavy calls rises to what they need, but to at most twice its prior: a larger weight is
  at the expense of other apps, so the operator's prior limits it.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from throttler.core.profiles import Expectation, Profiles

SAMPLES = 15  # newest calls per client
CLIENTS = 256  # most recent clients per app and stage
LEAST = 0.5  # times the smallest prior of all apps and stages
MOST = 2.0  # times the subject's own prior


class ExpectationSubject(NamedTuple):
    """The key of an expectation: a tenant, an app and a stage."""

    tenant: str
    app: str
    stage: int


class LearnedMedian(NamedTuple):
    """One gateway's median of a subject, in weighted tokens, and the number of clients behind it."""

    weight: float
    clients: int


@dataclass(slots=True, eq=False)
class _Seen:
    samples: dict[str, deque[float]] = field(default_factory=dict)  # by client; the least recent client comes first
    medians: list[float] = field(default_factory=list)  # of the clients, sorted

    def add(self, client: str, weight: float) -> None:
        samples = self.samples.pop(client, None)
        if samples is None:
            samples = deque(maxlen=SAMPLES)
        else:
            self._remove(samples)
        if len(self.samples) == CLIENTS:
            self._remove(self.samples.pop(next(iter(self.samples))))
        samples.append(weight)
        self.samples[client] = samples
        insort(self.medians, median(samples))

    def _remove(self, samples: deque[float]) -> None:
        del self.medians[bisect_left(self.medians, median(samples))]


class Expectations:
    """Norms of calls: tokens that their app and stage normally need, divided by `reference_tokens`.

    The norm is 1 if there is no prior.
    """

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._least = _least(profiles)
        self._seen: dict[ExpectationSubject, _Seen] = {}
        self._elsewhere: dict[ExpectationSubject, list[LearnedMedian]] = {}

    def configure(self, profiles: Profiles) -> None:
        """Apply new priors; learned medians stay for apps and stages that still have a prior."""
        self._profiles = profiles
        self._least = _least(profiles)
        self._seen = {subject: seen for subject, seen in self._seen.items() if self._prior(subject) is not None}

    def norm(self, subject: ExpectationSubject) -> float:
        """Return the dimensionless norm `w_{a,j} / w_ref` of `subject`."""
        prior = self._prior(subject)
        if prior is None:
            return 1.0
        learned = self._combined(subject)
        weight = prior if learned is None else min(max(learned, self._least), MOST * prior)
        return weight / self._profiles.reference_tokens

    def observed(self, subject: ExpectationSubject, client: str, tokens: Expectation) -> None:
        """Record that a call of `client` completed and needed `tokens`."""
        if self._prior(subject) is not None:
            self._seen.setdefault(subject, _Seen()).add(client, self._profiles.weights.weigh(tokens))

    def learned(self) -> dict[ExpectationSubject, LearnedMedian]:
        """Return the medians of this gateway, for the other gateways."""
        return {subject: LearnedMedian(median(seen.medians), len(seen.medians)) for subject, seen in self._seen.items()}

    def replace_remote(self, views: Iterable[Mapping[ExpectationSubject, LearnedMedian]]) -> None:
        self._elsewhere = {}
        for view in views:
            for subject, learned in view.items():
                self._elsewhere.setdefault(subject, []).append(learned)

    def check_invariants(self) -> None:
        """Raise AssertionError if medians do not match the samples, or there are too many clients."""
        for subject, seen in self._seen.items():
            assert 0 < len(seen.samples) <= CLIENTS, f"{subject}: {len(seen.samples)} clients"
            assert seen.medians == sorted(map(median, seen.samples.values())), f"{subject}: {seen.medians}"

    def _prior(self, subject: ExpectationSubject) -> float | None:
        tokens = self._profiles.app(subject.app).prior(subject.stage)
        return None if tokens is None else self._profiles.weights.weigh(tokens)

    def _combined(self, subject: ExpectationSubject) -> float | None:
        seen, elsewhere = self._seen.get(subject), self._elsewhere.get(subject, [])
        if not elsewhere:
            return None if seen is None else median(seen.medians)
        views = [*elsewhere, LearnedMedian(median(seen.medians), len(seen.medians))] if seen is not None else elsewhere
        return _weighted_median(views)


def _least(profiles: Profiles) -> float:
    """Return the smallest weight that a learned expectation may have."""
    priors = [prior for app in profiles.apps.values() for prior in (app.expected, *app.stages.values()) if prior]
    return LEAST * min(map(profiles.weights.weigh, priors), default=0.0)


def _weighted_median(views: list[LearnedMedian]) -> float:
    """Return the median over all clients, each counted with the median of its gateway."""
    half, below = sum(view.clients for view in views) / 2, 0
    for view in sorted(views):
        below += view.clients
        if below >= half:
            return view.weight
    raise AssertionError("a view without clients")
