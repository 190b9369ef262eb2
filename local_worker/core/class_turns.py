"""The turns of two classes of requests in one batch: interactive ones first, then the background class.

Background requests take the tokens, places and pages that interactive ones leave. An interactive request that finds no
room takes that of background requests, as much as it needs: they lose nothing, and wait in their old places. With an
engine that runs ahead they pause for the step before, so that an interactive request waits for one step more. No
background request enters while an interactive one is blocked. The floor is the exception, see Floor.

A step lasts as long as its tokens take, and whoever arrives waits for its end. Therefore background requests compute
prompts of at most MOST_PROMPT of a step's tokens, unless no interactive request was here for QUIET_STEPS steps. In a
step with the prompt of an interactive request, which waits for this step, all tokens of background requests count, and
those of this prompt. Shorter steps compute less per second, which costs the less, the more is computed in steps that
long interactive prompts fill: with the share of these the part falls towards LEAST_PROMPT.
"""

from collections.abc import Collection

from local_worker.core.plan import InFlight, StepPace
from local_worker.core.policies.sliced_dlpm import SlicedDlpm
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from local_worker.core.turns import Step, Turns

PART = 32
PATIENCE = 128  # steps
MOST_PAGES = 4  # a request has at most one MOST_PAGES-th of memory by the floor
WHOLE = PART * 1_000_000  # all places, or all of memory


class Floor:
    """What the background class gets however much interactive requests want, so that it never starves.

    A class that was given no token for PATIENCE steps gets a place of the batch, the pages of a request that needs at
    most a quarter of memory, and a PART-th of each step's tokens, until its request has ended. It has a PART-th of the
    places and of memory on average: after a request that held more it is denied the floor for as much longer. Credit is
    in parts of WHOLE, times steps.
    """

    def __init__(self) -> None:
        self._is_due = False
        self._credit = self._least = -PATIENCE * (WHOLE // PART)

    def is_due(self, *, is_running: bool) -> bool:
        """Return whether the class has the floor in the next step, before which a request of it runs or none does."""
        self._is_due = self._is_due and (is_running or self._credit == 0)
        return self._is_due

    def starved(self) -> None:
        """Record a step without the floor in which the class wanted tokens and got none."""
        self._credit = min(0, self._credit + WHOLE // PART)
        self._is_due = self._credit == 0

    def served(self) -> None:
        """Record a step without the floor in which the class got tokens, or wanted none."""
        if self._credit > self._least:
            self._credit = max(self._least, self._credit - WHOLE // PART)

    def used(self, held: int, *, is_pressed: bool) -> None:
        """Record a step with the floor: which part of WHOLE the class holds, and whether interactive requests left
        nothing to others."""
        self._credit = min(0, self._credit + WHOLE // PART - held)
        self._is_due = is_pressed

    def check_invariants(self) -> None:
        """Raise AssertionError if the class may take more than it was denied."""
        assert self._credit <= 0, f"credit {self._credit}"


MOST_PROMPT, LEAST_PROMPT = 1 / 6, 1 / 15  # parts of a step's tokens
QUIET_STEPS = 128
SHARE_STEPS = 32  # number of full steps over which the share of steps with long interactive prompts is averaged


class ClassTurns:
    """The turns of both classes, between which `divide` divides one step after the other; see Turns."""

    def __init__(
        self,
        queue: RequestQueue[PrefixCache],
        interactive: SlicedDlpm,
        background: SlicedDlpm,
        in_flight: InFlight,
        pace: StepPace,
    ) -> None:
        self._queue = queue
        self._pace = pace
        self._waiting = background
        self._interactive = Turns(queue, interactive, in_flight, pace)
        self._background = Turns(queue, background, in_flight, pace)
        self._floor = Floor()
        self._share = 0.0  # of steps with long interactive prompts in the tokens of the last steps
        self._quiet = QUIET_STEPS  # number of steps since the last one with an interactive request, as far as it counts

    def divide(
        self, now: float, running: Collection[Request], can_enter: bool
    ) -> tuple[list[Request], dict[Request, int]]:
        lower = {request: None for request in self._queue.running if request.background}
        if not lower and not self._waiting.waiting:
            self._floor.served()
            return self._interactive.divide(now, running, can_enter)
        upper = {request: None for request in self._queue.running if not request.background}
        step = Step(self._pace.budget)
        admitted: list[Request] = []
        has_floor = self._floor.is_due(is_running=bool(lower))
        if has_floor:
            admitted += self._give_floor(step, now, running, lower, upper, can_enter)
        kept = next(iter([*lower, *admitted] if has_floor else ()), None)
        giving = [request for request in lower if request is not kept]
        yielding = self._background.preemption.yielding if has_floor else ()
        self._interactive.preemption.begin(now, upper, giving, self._queue.cache.pages)
        here = [request for request in running if request in upper and request not in yielding]
        admitted += self._interactive.take_turns(step, here, can_enter)
        is_quiet = not (upper or self._interactive.prompt_tokens or self._interactive.blocked)
        self._quiet = min(QUIET_STEPS, self._quiet + 1) if is_quiet else 0
        if has_floor:
            self._floor.used(self._held(kept), is_pressed=self._interactive.blocked > 0 or step.left < 1)
        else:
            admitted += self._give_rest(step, now, running, lower, can_enter)
        return admitted, step.parts

    @property
    def blocked(self) -> int:
        """The number of interactive requests with credit for which the last step had no room."""
        return self._interactive.blocked

    def _give_floor(
        self,
        step: Step,
        now: float,
        running: Collection[Request],
        lower: dict[Request, None],
        upper: dict[Request, None],
        can_enter: bool,
    ) -> list[Request]:
        """Give the background class its floor; interactive requests give way to its first one, if none runs."""
        cache = self._queue.cache
        part = Step(max(1.0, step.left / PART), step.unscored, step.parts)
        self._background.preemption.begin(now, lower, () if lower else upper, cache.pages // MOST_PAGES)
        given = part.left
        admitted = self._background.share_out(part, [each for each in running if each in lower], can_enter)
        self._background.resume()
        step.left -= given - part.left
        step.unscored = part.unscored
        return admitted

    def _held(self, kept: Request | None) -> int:
        """Return the part of WHOLE that `kept`, which has the floor, holds: of the places or, if more, of memory.

        If it gave way to another request of its class in this step, the class still has its place.
        """
        if kept is None:
            return 0
        return (
            WHOLE
            * max(self._queue.cache.pages, len(kept.pages) * self._queue.limits.max_running)
            // (self._queue.cache.pages * self._queue.limits.max_running)
        )

    def _give_rest(
        self, step: Step, now: float, running: Collection[Request], lower: dict[Request, None], can_enter: bool
    ) -> list[Request]:
        """Give the background class what interactive requests have left of the step."""
        yielding, before = self._interactive.preemption.yielding, len(step.parts)
        staying = {request: None for request in lower if request not in yielding}
        self._background.preemption.begin(now, staying)
        self._background.preemption.yielding |= yielding
        here = [request for request in running if request in staying]
        part = Step(step.left, step.unscored, step.parts)
        if self._quiet < QUIET_STEPS:
            awaited = self._interactive.prompt_tokens
            most = self._most_prompt - awaited if awaited else self._most_prompt + len(here)
            part.left = min(step.left, max(0, most))
        if self._interactive.blocked:  # nobody takes the room for which it waits
            admitted = self._background.share_out(part, here, can_enter=False)
            self._background.resume()
        else:
            admitted = self._background.take_turns(part, here, can_enter)
        self._average(step)
        if len(step.parts) > before:
            self._floor.served()
        else:
            self._floor.starved()
        return admitted

    @property
    def _most_prompt(self) -> int:
        """The number of tokens of prompts that background requests may compute in a step without other prompts."""
        part = MOST_PROMPT - (MOST_PROMPT - LEAST_PROMPT) * self._share
        return max(self._queue.cache.block_tokens, int(self._queue.limits.token_budget * part))

    def _average(self, step: Step) -> None:
        """Record whether the interactive prompts of `step` leave the background class nothing, whatever its part."""
        budget = self._queue.limits.token_budget
        is_long = self._interactive.prompt_tokens >= MOST_PROMPT * budget
        self._share += (is_long - self._share) * sum(step.parts.values()) / (SHARE_STEPS * budget)

    def check_invariants(self) -> None:
        """Raise AssertionError if the floor is wider than it may be."""
        self._floor.check_invariants()
