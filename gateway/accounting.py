"""What became of interactions, by app, and which tokens were computed for nothing (FairServe section 5.1).

A call outside any interaction is an interaction of one call. One that closes is judged by its newest failure that no
later call made good: *served* without one; *throttled* when a limit refused a call in its middle; *cancelled* when the
caller went away; *invalid* when a call could not be served as it was made; *broken* otherwise. What was computed for
throttled and broken ones is wasted: the user has no answer, and it is not the caller's fault.
"""

from dataclasses import dataclass, field

from fairlead.outcomes import Outcome
from gateway.call import Call
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction

LIMITS = (
    Outcome.THROTTLED_USER,
    Outcome.THROTTLED_APP,
    Outcome.REJECTED_CLIENT_LIMIT,
    Outcome.REJECTED_QUEUE_FULL,
)
CALLERS_FAULTS = (Outcome.REJECTED_INVALID, Outcome.REJECTED_TOO_LONG, Outcome.PERMISSION_DENIED)


@dataclass(slots=True)
class AppOutcomes:
    """Interactions of one app that are over, by what became of them, and tokens."""

    served: int = 0
    throttled: int = 0
    broken: int = 0
    invalid: int = 0
    cancelled: int = 0
    refused: int = 0  # calls that would have opened one, and were not let in
    tokens: int = 0  # computed, cached prompts not counted
    wasted_tokens: int = 0


@dataclass(slots=True)
class _Open:
    started: int  # when its first call came, Unix nanoseconds
    tokens: int = 0
    failure: Outcome | None = None
    failed_at: int = 0


@dataclass(slots=True)
class Accounting:
    """Told of each call once, before what it closes."""

    apps: dict[str, AppOutcomes] = field(default_factory=dict)
    _open: dict[InteractionKey, _Open] = field(default_factory=dict)

    def ended(self, call: Call) -> None:
        """A call has its outcome. What nobody known called counts for no app."""
        assert call.outcome is not None
        if not call.client:
            return
        app, tokens = self.apps.setdefault(call.app, AppOutcomes()), computed_tokens(call)
        app.tokens += tokens
        key = InteractionKey(call.client, call.app, call.interaction)
        if call.entered:
            self._open.setdefault(key, _Open(call.timings.received)).tokens += tokens
        elif key not in self._open or not call.interaction:
            if call.outcome in LIMITS:
                app.refused += 1
            else:
                _judge(app, None if call.outcome is Outcome.COMPLETED else call.outcome, tokens)
            return
        interaction = self._open[key]
        interaction.started = min(interaction.started, call.timings.received)
        if call.outcome is not Outcome.COMPLETED:
            interaction.failure, interaction.failed_at = call.outcome, call.timings.received
        elif call.timings.received > interaction.failed_at:
            interaction.failure = None

    def in_progress(self, key: InteractionKey) -> bool:
        """Whether a call of the interaction was admitted here, and it has not closed."""
        return key in self._open

    def closed(self, interaction: FinishedInteraction) -> int | None:
        """An interaction is over. Returns when its first call came here, Unix nanoseconds; None: none did."""
        known = self._open.pop(interaction.key, None)
        if known is None:
            return None
        _judge(self.apps[interaction.key.app], known.failure, known.tokens)
        return known.started


def _judge(app: AppOutcomes, failure: Outcome | None, tokens: int) -> None:
    if failure is None:
        app.served += 1
    elif failure is Outcome.CANCELLED:
        app.cancelled += 1
    elif failure in CALLERS_FAULTS:
        app.invalid += 1
    else:
        app.wasted_tokens += tokens
        if failure in LIMITS:
            app.throttled += 1
        else:
            app.broken += 1


def computed_tokens(call: Call) -> int:
    """Tokens that a worker computed for the call; without any output it is not known to have begun."""
    usage = call.usage
    return usage.prompt_tokens - usage.cached_tokens + usage.output_tokens if usage.output_tokens else 0
