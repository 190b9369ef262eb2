"""Results of interactions by app, and the tokens that were computed in vain (FairServe section 5.1).

A call outside any interaction is an interaction of one call. The result of a closed interaction depends on its newest
failure that no later call made good: *served* without such a failure; *throttled* if a limit refused a call after the
first; *cancelled* if the caller cancelled or disconnected; *invalid* if a call could not be served as it was made;
*broken* otherwise. Tokens computed for throttled and broken interactions are wasted: the user has no answer, and the
caller is not at fault.
"""

from dataclasses import dataclass, field

from fairlead.outcomes import Outcome
from gateway.call import Call
from gateway.core.start_predictor import is_close
from throttler.core.interaction_tokens import InteractionKey
from throttler.core.interactions import FinishedInteraction

LIMITS = (
    Outcome.THROTTLED_USER,
    Outcome.THROTTLED_APP,
    Outcome.THROTTLED_TENANT,
    Outcome.THROTTLED_MEMORY,
    Outcome.REJECTED_CLIENT_LIMIT,
    Outcome.REJECTED_QUEUE_FULL,
)
CALLERS_FAULTS = (Outcome.REJECTED_INVALID, Outcome.REJECTED_TOO_LONG, Outcome.PERMISSION_DENIED)


@dataclass(slots=True)
class AppOutcomes:
    """Numbers of closed interactions of one app by result, and numbers of tokens."""

    served: int = 0
    throttled: int = 0
    broken: int = 0
    invalid: int = 0
    cancelled: int = 0
    refused: int = 0  # calls that would have opened an interaction but were refused
    tokens: int = 0  # computed tokens; cached prompt tokens do not count
    wasted_tokens: int = 0


@dataclass(slots=True)
class _Open:
    started: int  # arrival of its first call, Unix nanoseconds
    tokens: int = 0
    failure: Outcome | None = None
    failed_at: int = 0


@dataclass(slots=True)
class Accounting:
    """The results of interactions at this gateway, by app.

    Each call is recorded once, before the closure of its interaction.
    """

    apps: dict[str, AppOutcomes] = field(default_factory=dict)
    predictions: int = 0  # calls that started, and had waited as long as was predicted, more or less
    close_predictions: int = 0
    _open: dict[InteractionKey, _Open] = field(default_factory=dict)

    def ended(self, call: Call) -> bool:
        """Record a call that has its outcome; return whether its interaction is in progress at this gateway.

        Unauthenticated calls do not count for any app.
        """
        assert call.outcome is not None
        if not call.client:
            return False
        if call.predicted_wait is not None and call.waited is not None:
            self.predictions += 1
            self.close_predictions += is_close(call.predicted_wait, call.waited)
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
            return False
        interaction = self._open[key]
        interaction.started = min(interaction.started, call.timings.received)
        if call.outcome is not Outcome.COMPLETED:
            interaction.failure, interaction.failed_at = call.outcome, call.timings.received
        elif call.timings.received > interaction.failed_at:
            interaction.failure = None
        return True

    def closed(self, interaction: FinishedInteraction) -> int | None:
        """Record a closed interaction; return the arrival of its first call here, in Unix nanoseconds.

        Return None if no call of it was admitted here.
        """
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
    """Return the tokens that a worker computed for the call; 0 without output, as the worker may not have started."""
    usage = call.usage
    return usage.prompt_tokens - usage.cached_tokens + usage.output_tokens if usage.output_tokens else 0
