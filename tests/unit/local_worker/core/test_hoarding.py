"""Clients that reserve pages without using them: others keep the service that they have beside a normal client."""

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import NamedTuple

import pytest

from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode
from local_worker.core.request import Request
from serving.cost import MICRO
from serving.sampling_params import SamplingParams
from tests.unit.local_worker.core.test_batcher import tokens_for
from tests.unit.local_worker.engine.driving import BLOCK, make_batcher, make_request

pytestmark = pytest.mark.slow

FAIR = ("dlpm", "drr", "vtc", "vtc-predict", "wsc")
PAGES = 128
LONG = PAGES * BLOCK - 8  # output tokens of a hoarder: no other request fits beside it
QUANTUM = 16
NEIGHBOURS = {"n0": 8, "n1": 8, "n2": 8}  # client -> calls open at any time


class Size(NamedTuple):
    """A worker with `running` places, each neighbour's output tokens, the tokens of all prompts, the steps of a run."""

    pages: int
    running: int
    quantum: int
    output: int
    prompt: int = 4
    steps: int = 300


SMALL = Size(PAGES, running=32, quantum=512, output=12)
LARGE = Size(8 * PAGES, running=16, quantum=64, output=40)
CROWDED = Size(16 * PAGES, running=32, quantum=64, output=60, prompt=60, steps=800)
CROWD = {f"hoarder-{number}": 1 for number in range(20)}

Leaves = Callable[[Request, bool], bool]  # (request, whether it runs) -> whether its caller cancels it


def when_it_has_begun(request: Request, runs: bool) -> bool:
    return runs


def after_four_tokens(request: Request, runs: bool) -> bool:
    return request.output_tokens >= 4


class ClosedLoopClients:
    """Clients in closed loops: each request that leaves the worker is replaced by the client's next one."""

    def __init__(self, batcher: Batcher, hoarders: dict[str, int], leaves: Leaves, size: Size) -> None:
        self._batcher = batcher
        self._size = size
        self._hoarders = hoarders
        self._leaves = leaves
        self._arrivals = count()
        self._here: list[Request] = []
        for client, calls in (NEIGHBOURS | hoarders).items():
            for _ in range(calls):
                self._ask(client)

    def _ask(self, client: str) -> None:
        number = next(self._arrivals)
        size = self._size
        output = size.pages * BLOCK - size.prompt - 4 if client in self._hoarders else size.output
        prompt = [1000 + number, *range(1, size.prompt)]
        request = make_request(prompt, arrival=number, sampling=SamplingParams(max_tokens=output, ignore_eos=True))
        request.client = client
        self._batcher.queue.submit(request, 0.0)
        self._here.append(request)

    def run(self) -> None:
        for _ in range(self._size.steps):
            plan = self._batcher.plan(0.0)
            if plan is not None:
                self._batcher.commit(plan, tokens_for(plan))
            for request in [each for each in self._here if self._over(each)]:
                self._batcher.queue.abort(request)
                self._here.remove(request)
                self._ask(request.client)

    def _over(self, request: Request) -> bool:
        if request.output_tokens >= request.sampling.max_tokens:
            return True
        runs = request not in self._batcher.queue.waiting
        return request.client in self._hoarders and self._leaves(request, runs)


def given(
    policy: str, admission: AdmissionMode, hoarders: dict[str, int], leaves: Leaves, size: Size = SMALL
) -> tuple[int, int]:
    """What the neighbours were given, and what the hoarders were charged, in cost units."""
    batcher = make_batcher(
        pages=size.pages,
        token_budget=256,
        max_running=size.running,
        policy=policy,
        admission=admission,
        max_output_tokens=size.pages * BLOCK - 8,
        quantum_tokens=size.quantum,
    )
    ClosedLoopClients(batcher, hoarders, leaves, size).run()
    neighbours = sum(account.service for account in batcher.queue.accounts.clients if account.name in NEIGHBOURS)
    charged = sum(account.weighted for account in batcher.queue.accounts.clients if account.name in hoarders)
    return neighbours // MICRO, charged // MICRO


@cache
def given_alone(policy: str, admission: AdmissionMode) -> int:
    """What the neighbours were given without a hoarder, in cost units."""
    return given(policy, admission, {}, when_it_has_begun)[0]


@pytest.mark.parametrize("leaves", [when_it_has_begun, after_four_tokens], ids=lambda each: each.__name__)
@pytest.mark.parametrize("admission", AdmissionMode)
@pytest.mark.parametrize("policy", FAIR)
def test_a_client_that_reserves_pages_and_cancels_gets_no_more_than_its_share(
    policy: str, admission: AdmissionMode, leaves: Leaves
) -> None:
    beside, _ = given(policy, admission, {"hoarder": 8}, leaves)
    assert beside >= 0.7 * given_alone(policy, admission)


@pytest.mark.parametrize("policy", ["dlpm", "vtc"])
def test_a_client_that_waits_for_all_of_a_large_memory_does_not_empty_the_batch(policy: str) -> None:
    """P is far less than what memory holds, so that others soon are in debt while the hoarder is blocked."""
    alone, _ = given(policy, AdmissionMode.RESERVE, {}, after_four_tokens, LARGE)
    beside, _ = given(policy, AdmissionMode.RESERVE, {"hoarder": 4}, after_four_tokens, LARGE)
    assert beside >= 0.7 * alone


@pytest.mark.parametrize("policy", ["dlpm", "vtc"])
def test_a_crowd_that_waits_for_all_of_memory_does_not_empty_the_batch(policy: str) -> None:
    """Each neighbour's share is one place, so that a batch of their shares computes an eighth of what they ask for."""
    alone, _ = given(policy, AdmissionMode.RESERVE, {}, when_it_has_begun, CROWDED)
    beside, _ = given(policy, AdmissionMode.RESERVE, CROWD, when_it_has_begun, CROWDED)
    assert beside >= 0.35 * alone


@pytest.mark.parametrize("policy", FAIR)
def test_reserved_pages_are_charged_when_they_are_reserved(policy: str) -> None:
    """The client generates only a hundredth of the output that it reserves."""
    _, charged = given(policy, AdmissionMode.RESERVE, {"hoarder": 8}, after_four_tokens)
    assert charged >= 2 * LONG * 3 // 4


@pytest.mark.parametrize(("most_debt", "charged"), [(0, PAGES * BLOCK), (100, 100 + QUANTUM)])
def test_room_is_charged_as_far_as_p_and_as_a_whole_where_nobody_gives_way(most_debt: int, charged: int) -> None:
    """Half of the pages are beyond the share, and a token of output costs 2."""
    batcher = make_batcher(
        pages=PAGES,
        policy="dlpm",
        max_output_tokens=LONG,
        quantum_tokens=QUANTUM,
        most_debt_tokens=most_debt,
    )
    for number, (client, output) in enumerate((("hoarder", LONG), ("other", 1))):
        sampling = SamplingParams(max_tokens=output, ignore_eos=True)
        request = make_request([1000 + number] * 8, arrival=number, sampling=sampling)
        request.client = client
        batcher.queue.submit(request, 0.0)
    batcher.plan(0.0)
    account = next(account for account in batcher.queue.accounts.clients if account.name == "hoarder")
    assert account.weighted - account.service == charged * MICRO
