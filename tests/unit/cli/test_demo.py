"""The whole demo, on the engine that needs no model."""

import asyncio
import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.demo.systems import FCFS, stack
from cli.demo.trial import Trial, hold
from cli.stack import Stack
from tests.unit.cli.commands import DEADLINE, Command, alive

pytestmark = pytest.mark.e2e


def test_it_shows_that_dlpm_is_fair_and_keeps_the_cache(tmp_path: Path) -> None:
    out = tmp_path / "results"
    done = Command(tmp_path).run("demo", "--engine", "fake", "--out", str(out))
    assert (out / "demo.json").exists(), done.stderr
    document = json.loads((out / "demo.json").read_text())
    fcfs, vtc, dlpm = (run["evidence"] for run in document["runs"])
    assert [run["errors"] for run in document["runs"]] == [[], [], []]
    assert dlpm["gap"] <= document["bound"] < fcfs["gap"]
    assert document["bound_seconds"] == document["bound"] / dlpm["service_rate"]
    assert vtc["hit_rate"] < dlpm["hit_rate"]
    assert all(sum(u["service"] for u in run["users"]) > 2 * document["bound"] for run in (fcfs, vtc, dlpm))
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert done.returncode == 0, done.stdout
    assert "Verdict: fair, and the cache is kept." in done.stdout


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_it_says_that_vllm_is_not_installed(tmp_path: Path) -> None:
    done = Command(tmp_path).run("demo", "--engine", "vllm", "--out", str(tmp_path / "results"))
    assert done.returncode == 1
    assert done.stderr.startswith("fairlead: --engine vllm: vllm is not installed")
    assert not (tmp_path / "results").exists()


def test_it_leaves_no_process_behind_when_it_is_terminated(tmp_path: Path) -> None:
    demo = Command(tmp_path).start("demo", "--engine", "fake", "--out", str(tmp_path / "results"))
    demo.wait_for("DLPM + least delay: serving")
    children = demo.children()
    assert len(children) == 4, "scheduler, two workers, gateway"
    demo.process.send_signal(signal.SIGTERM)
    try:
        assert demo.process.wait(DEADLINE) == 130
        assert not any(map(alive, children))
    finally:
        for pid in filter(alive, children):
            os.kill(pid, signal.SIGKILL)
        demo.ended()


def test_a_time_limit_ends_what_has_not_served_enough(tmp_path: Path) -> None:
    hasty, enough = Trial(FCFS), Trial(FCFS)
    with stack(FCFS, "fake", "fake", tmp_path) as running:
        asyncio.run(_both(hasty, enough, running))
    assert (hasty.cut, enough.cut) == (True, False)
    assert enough.observation.served > 0
    assert enough.unserved == [], "no user is missing in what is compared"


async def _both(hasty: Trial, enough: Trial, running: Stack) -> None:
    await hold(hasty, running, lambda seen: False, limit_seconds=0.5)
    await hold(enough, running, lambda seen: seen.served > 0, limit_seconds=150.0)
