"""What apps' calls normally need, learned from what they needed (FairServe section 4.3, equation 2).

- Learned for each tenant by itself, so that no tenant's calls change what another's are expected to need.
- Per (tenant, app, stage) the median of per-client medians: a client moves it no further by calling more often.
- An app whose calls are light comes down to what they need, whatever its profile says: to half of the deployment's
  smallest prior at least, the smallest weight that fairness bounds have to be stated for.
- An app whose calls are heavy rises to what they need, but to no more than twice its prior: others pay for weight, so
  the operator's word bounds it.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from throttler.core.profiles import Expectation, Profiles

SAMPLES = 15  # newest calls of a client
CLIENTS = 256  # of an app and stage, those seen last
LEAST = 0.5  # times the smallest prior of all apps and stages
MOST = 2.0  # times the subject's own prior


class ExpectationSubject(NamedTuple):
    """What is expected something of."""

    tenant: str
    app: str
    stage: int


class LearnedMedian(NamedTuple):
    """One gateway's view of a subject: the median, in weighted tokens, over so many clients."""

    weight: float
    clients: int


@dataclass(slots=True, eq=False)
class _Seen:
    samples: dict[str, deque[float]] = field(default_factory=dict)  # by client, the one seen longest ago first
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
    """Norms of calls: what their app and stage normally needs over `reference_tokens`; 1 where there is no prior."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._least = _least(profiles)
        self._seen: dict[ExpectationSubject, _Seen] = {}
        self._elsewhere: dict[ExpectationSubject, list[LearnedMedian]] = {}

    def configure(self, profiles: Profiles) -> None:
        """Other priors from now on; what was learned of apps and stages that still have one stays."""
        self._profiles = profiles
        self._least = _least(profiles)
        self._seen = {subject: seen for subject, seen in self._seen.items() if self._prior(subject) is not None}

    def norm(self, subject: ExpectationSubject) -> float:
        """`w_{a,j} / w_ref`, dimensionless."""
        prior = self._prior(subject)
        if prior is None:
            return 1.0
        learned = self._combined(subject)
        weight = prior if learned is None else min(max(learned, self._least), MOST * prior)
        return weight / self._profiles.reference_tokens

    def observed(self, subject: ExpectationSubject, client: str, tokens: Expectation) -> None:
        """A call of `client` completed that needed `tokens`."""
        if self._prior(subject) is not None:
            self._seen.setdefault(subject, _Seen()).add(client, self._profiles.weights.weigh(tokens))

    def learned(self) -> dict[ExpectationSubject, LearnedMedian]:
        """What this gateway has seen, for the others."""
        return {subject: LearnedMedian(median(seen.medians), len(seen.medians)) for subject, seen in self._seen.items()}

    def heard(self, views: Iterable[Mapping[ExpectationSubject, LearnedMedian]]) -> None:
        """What the other gateways have seen; replaces what was heard before."""
        self._elsewhere = {}
        for view in views:
            for subject, learned in view.items():
                self._elsewhere.setdefault(subject, []).append(learned)

    def check_invariants(self) -> None:
        """Raise AssertionError when medians are out of step with the samples, or too many."""
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
    """The smallest weight that anything learned may have."""
    priors = [prior for app in profiles.apps.values() for prior in (app.expected, *app.stages.values()) if prior]
    return LEAST * min(map(profiles.weights.weigh, priors), default=0.0)


def _weighted_median(views: list[LearnedMedian]) -> float:
    """The median of as many values as there are clients, each that of its gateway."""
    half, below = sum(view.clients for view in views) / 2, 0
    for view in sorted(views):
        below += view.clients
        if below >= half:
            return view.weight
    raise AssertionError("a view without clients")
