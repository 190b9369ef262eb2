"""A recorded history says what happened: every service and gap can be computed from it again."""

import json
import random
from itertools import combinations
from pathlib import Path

import pytest

from local_worker.config import WorkerConfig
from local_worker.core.batcher import Batcher
from local_worker.core.history import History
from local_worker.core.limits import AdmissionMode
from local_worker.core.policies import QueuePolicyConfig
from local_worker.core.policies.dlpm import Dlpm
from local_worker.engine.fake import FakeEngine
from local_worker.gap_alarm import GapAlarm
from local_worker.replay import main, replay
from serving.cost import COSTS, WeightedTokens
from serving.sampling_params import SamplingParams
from tests.local_worker.engine.driving import BLOCK, Driver, make_batcher, make_request

CLIENTS = ("c0", "c1", "c2")


class Exact:
    """Every pair's gap, looked at after every event that the ledger told."""

    def __init__(self, batcher: Batcher) -> None:
        self.worst = dict.fromkeys(combinations(CLIENTS, 2), 0)
        self._batcher = batcher
        self._leads: dict[tuple[str, str], tuple[int, int]] = {}

    def look(self) -> None:
        ledger = self._batcher.ledger
        for pair in self.worst:
            if any(not ledger.waiting(client) for client in pair):
                self._leads.pop(pair, None)
                continue
            lead = ledger._accounts[pair[0]].weighted - ledger._accounts[pair[1]].weighted
            least, greatest = self._leads.get(pair, (lead, lead))
            self._leads[pair] = least, greatest = min(least, lead), max(greatest, lead)
            self.worst[pair] = max(self.worst[pair], greatest - least)


def busy(admission: AdmissionMode, cost: str, segment: int, ahead: int = 0) -> tuple[Batcher, Exact]:
    """A batcher after many random requests."""
    rng = random.Random(5)
    batcher = make_batcher(pages=48, max_running=6, policy="dlpm", admission=admission, cost=COSTS[cost]())
    batcher.ledger.history = History(segment)
    exact, driver = Exact(batcher), Driver(batcher, FakeEngine(100, 0.0, BLOCK, ahead))
    for arrival in range(150):
        sampling = SamplingParams(max_tokens=rng.randrange(1, 20), ignore_eos=True)
        request = make_request([rng.randrange(9)] * rng.randrange(1, 40), arrival=arrival, sampling=sampling)
        request.weight = rng.choice((500, 1000, 2000))
        batcher.submit(request, 0.0)
        exact.look()
        if rng.random() < 0.1:
            batcher.abort(request)
            exact.look()
        if batcher.running and rng.random() < 0.1:
            batcher.abort(next(iter(batcher._running)))
            exact.look()
        if rng.random() < 0.5:
            driver.turn()
            exact.look()
    while driver.turn():
        exact.look()
    return batcher, exact


class Boastful(Dlpm):
    """Promises what nobody can keep."""

    @property
    def bound_micro(self) -> int:
        return 1


def record(batcher: Batcher, cost: str) -> dict[str, object]:
    written: dict[str, object] = json.loads(json.dumps({"cost": cost, "segments": batcher.ledger.history.segments()}))
    return written


@pytest.mark.parametrize("admission", list(AdmissionMode))
@pytest.mark.parametrize("cost", sorted(COSTS))
@pytest.mark.parametrize("ahead", [0, 1])
def test_a_replay_finds_every_service_and_no_smaller_gap(admission: AdmissionMode, cost: str, ahead: int) -> None:
    batcher, exact = busy(admission, cost, 1_000_000, ahead)
    (replayed,) = replay(record(batcher, cost))
    accounts = batcher.ledger._accounts
    assert replayed.weighted == {client: accounts[client].weighted for client in CLIENTS}
    for pair, gap in exact.worst.items():
        # The replay looks between the admissions of one step too, where the other has not looked.
        assert replayed.gaps[pair].worst >= gap > 0


def test_a_long_history_is_bounded_and_its_last_part_can_be_read() -> None:
    batcher, _ = busy(AdmissionMode.OPTIMISTIC, "weighted-tokens", segment=300)
    segments = list(batcher.ledger.history.segments())
    assert len(segments) == 2
    assert len(segments[0]["events"]) < 900
    last = replay(record(batcher, "weighted-tokens"))[-1]
    accounts = batcher.ledger._accounts
    assert last.weighted
    assert last.weighted == {client: accounts[client].weighted for client in last.weighted}
    assert not last.requests, "all have left"


def test_a_broken_bound_is_said_once_and_can_be_replayed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batcher, _ = busy(AdmissionMode.RESERVE, "weighted-tokens", segment=1_000_000)
    alarm = GapAlarm(WorkerConfig(secret="a secret for tests", history_folder=str(tmp_path)))
    alarm.check(batcher)
    assert not caplog.records, "within the bound"
    batcher.policy = Boastful(
        QueuePolicyConfig(
            quantum_tokens=1,
            cost=WeightedTokens(),
            max_input_tokens=1,
            max_output_tokens=1,
            most_output_tokens=1,
            block_tokens=BLOCK,
        )
    )
    for _ in range(2):
        alarm.check(batcher)
    (said,) = caplog.records
    monkeypatch.setattr("sys.argv", ["replay", said.__dict__["history"]])
    main()
    assert "ABOVE THE BOUND" in capsys.readouterr().out
