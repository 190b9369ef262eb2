"""Least delay: a request goes where it adds the least delay, its own and that of others, as a fair worker serves it.

Unit of fairness: with DLPM in the workers, service per client over the pool, as for DoubleQ: two clients that are
backlogged on every worker differ by at most 2 |W| (U + Q^u) (DLPM Theorem 5.1). What the policy adds: how much of a
client's work waits at one worker while another has none of it does not depend on what others send (docs/fairness.md,
"Presence").
"""

from collections.abc import Iterator, Sequence

from global_scheduler.core.backlog_table import BacklogTable, RoutedBacklog
from global_scheduler.core.fleet import OutstandingTable, slots
from global_scheduler.core.policies.base import Candidates, RoutePolicyConfig, RouteRequest

# What computing a token anew costs, in computed tokens: it takes the worker's time, and the place of a cached token.
RECOMPUTE = 2
# A choice computes the delay at so many workers; of the others, only where the queue is shortest.
MOST_COMPARED = 16
MOST_SETS = 8
# Outputs are averaged in 1 / SCALE tokens, over about so many requests of a client, or of all clients.
SCALE = 256
OWN_MEMORY = 8
COMMON_MEMORY = 64
FIRST_OUTPUT = 64 * SCALE


class LeastDelay:
    """Least delay, with accounts per client and per tenant for all models, because a worker's models share its queue.

    Let n clients of the request's tenant have work at a worker, this one included, and m tenants, this one included.
    Before the client's next request a fair worker serves the client's own work there, b, and as much of every other
    client of the tenant, or all of the tenant's, T, if that is less; and as much as that of every other tenant, or
    all that is there, B. The request then costs e, the part of its prompt that the worker does not cache, to itself and
    to the prompts behind it that are not computed: to as many of each client as the client has itself, k + 1, at most
    all of the tenant's, K + 1, and to as many of each tenant, at most to all there, N. The least of

        min(B, m min(T, n b)) + RECOMPUTE e (1 + min(N, m min(K + 1, n (k + 1))))

    is chosen; among equals the least work, then the shortest queue, then the lowest slot. Work is what prompts cost
    that no cache holds, until they are computed, and what the client's outputs cost on average. Requests that generate
    are not delayed: their tokens are in the steps that compute the prompt. With weights, n and m are sums of weights
    over that of the request. There is no quantum and no threshold.
    """

    def __init__(self, config: RoutePolicyConfig) -> None:
        self._cost = config.cost
        self._backlogs = BacklogTable()
        self._output = FIRST_OUTPUT  # the average over all clients

    def select(self, request: RouteRequest, choice: Candidates) -> int:
        """Return the slot with the least delay; see the class."""
        client, tenant = self._backlogs.client(request.client), self._backlogs.tenant(request.client)
        queues = choice.queues
        room, least, lightest, chosen = MOST_COMPARED, None, 0, 0
        for workers, blocks in _apart(choice.matches):
            recompute = RECOMPUTE * self._prompt_cost(request, blocks * choice.block_tokens)
            if least is not None and recompute > least:
                break  # so is every delay there, and in the sets that follow, whose matches are shorter
            count = workers.bit_count()
            if count <= room:
                compared = slots(workers)
                room -= count
            else:
                compared = _shortest(workers, client.workers, queues)
            for slot in compared:
                own = client.backlogs.get(slot)
                of_tenant = tenant.get(slot) if own is None else own.above
                of_all = self._backlogs.worker(slot) if of_tenant is None else of_tenant.above
                delay, work = recompute, 0
                if of_all is not None:
                    work = of_all.work
                    delay = _delay(own, of_tenant, of_all, recompute, request.weight)
                if least is None or delay < least or (delay == least and work < lightest):
                    least, lightest, chosen = delay, work, 1 << slot
                elif delay == least and work == lightest:
                    chosen |= 1 << slot
        return queues.least(chosen)

    def placed(self, request: RouteRequest, slot: int, candidates: int, matched_tokens: int) -> int:
        """Book the work of the request: the prompt that is not cached, and the expected output."""
        output = self._backlogs.client(request.client).output
        tokens = (self._output if output is None else output) // SCALE
        work = self._prompt_cost(request, matched_tokens) + self._cost.decode(tokens, request.prompt_tokens, 0)
        self._backlogs.book(request.client, slot, work, request.weight)
        return work

    def _prompt_cost(self, request: RouteRequest, cached_tokens: int) -> int:
        return self._cost.extend(max(0, request.prompt_tokens - cached_tokens), 0)

    def computed(self, request: RouteRequest, slot: int, booked: int, matched_tokens: int) -> int:
        """Release the work of the prompt."""
        prompt = self._prompt_cost(request, matched_tokens)
        self._backlogs.computed(request.client, slot, prompt)
        return booked - prompt

    def ended(self, request: RouteRequest, slot: int, booked: int, output_tokens: int) -> None:
        """Release the work, and learn the length of the output."""
        client = self._backlogs.release(request.client, slot, booked)
        output = output_tokens * SCALE
        self._output += (output - self._output) // COMMON_MEMORY
        client.output = output if client.output is None else client.output + (output - client.output) // OWN_MEMORY

    def refunded(self, request: RouteRequest, slot: int, booked: int) -> None:
        """Release the work."""
        self._backlogs.release(request.client, slot, booked)

    def forget(self, slot: int) -> None:
        """Drop the backlogs at `slot` before its reuse. O(clients); workers leave rarely."""
        self._backlogs.forget(slot)

    def outstanding(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return requests and work, in micro-units, by client and slot."""
        return {(name, slot): (each.requests, each.work) for name, slot, each in self._backlogs.outstanding()}

    def check_invariants(self) -> None:
        self._backlogs.check_invariants()
        assert self._output >= 0, f"an average output of {self._output}"


def _delay(
    client: RoutedBacklog | None,
    tenant: RoutedBacklog | None,
    worker: RoutedBacklog,
    recompute: int,
    weight: int,
) -> int:
    """Return the delay at a worker; see LeastDelay."""
    ahead, delayed, members = 0, 1, weight + worker.members
    if tenant is not None:
        members -= tenant.weight
        below = weight + tenant.members
        if client is not None:
            below -= client.weight
            ahead, delayed = client.work, 1 + client.prompts
        if below > weight:  # other clients of the tenant have work there, too
            ahead = min(tenant.work, ahead * below // weight)
            delayed = min(tenant.prompts + 1, delayed * below // weight)
    ahead, delayed = ahead * members // weight, delayed * members // weight
    # Conditions, because a call of min takes longer than all else in a line.
    if delayed > worker.prompts:
        delayed = worker.prompts
    return (ahead if ahead < worker.work else worker.work) + recompute * (1 + delayed)


def _apart(matches: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield disjoint sets of workers with their match in blocks, the longest first: at most MOST_SETS, then the rest.

    The rest counts with the shortest match of all.
    """
    seen = 0
    for workers, blocks in reversed(matches[-MOST_SETS:]):
        yield workers ^ seen, blocks  # the sets lie within each other
        seen = workers
    if len(matches) > MOST_SETS:
        workers, blocks = matches[0]
        yield workers ^ seen, blocks


def _shortest(workers: int, own: int, queues: OutstandingTable) -> list[int]:
    """Return the worker with the shortest queue of those where the client has work, and of those where it has none."""
    return [queues.least(each) for each in (workers & ~own, workers & own) if each]
