"""Calibration finds the coefficients that made the timings, and predicts what was timed; what it cannot do it says."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.__main__ import main
from fairlead.errors import InvalidRequest
from fairlead.v1 import inference_pb2_grpc
from local_worker.core.batch import StepResult
from serving.sampling_params import SamplingParams
from simulation.calibration import Timing, fit
from simulation.step_time import Coefficients, MeasuredProfile, StepTime
from tests.services import Stack
from tests.unit.local_worker.engine.driving import BLOCK, make_batcher, make_request

SHORT, BUDGET, OUTPUT = 16, 128, 9  # the short prompts of all calls at a time are computed in one step
LENGTHS, BESIDE = (SHORT, 64, 256, 1024), (1, 2, 4, 8)
OF = Coefficients(step=0.01, sequence=1e-4, weights=0.0, token=1e-4, context=1e-7, pair=0.0)


def timed(of: Coefficients, prompts: Sequence[int]) -> list[Timing]:
    """Prompts that come at once to a worker with these coefficients, whose own batcher makes the steps."""
    steps = StepTime(of)
    batcher = make_batcher(pages=8192 // BLOCK, token_budget=BUDGET, max_prompt_tokens=2048)
    sampling = SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
    requests = [make_request([n] * length, arrival=n, sampling=sampling) for n, length in enumerate(prompts)]
    for request in requests:
        batcher.queue.submit(request, 0.0)
    now, tokens = 0.0, {request.id: list[float]() for request in requests}
    while (plan := batcher.plan(now)) is not None:
        slices = plan.batch.slices
        now += steps(plan.batch, [1] * len(slices))
        for request, piece in plan.parts:
            if piece.samples:
                tokens[request.id].append(now)
        batcher.commit(plan, StepResult((3,) * sum(piece.samples for piece in slices)))
    return [
        Timing(length, OUTPUT, len(prompts), first, (last - first) / (OUTPUT - 1))
        for length, (first, *_, last) in zip(prompts, tokens.values(), strict=True)
    ]


def calibrated(of: Coefficients) -> MeasuredProfile:
    timings = [timing for length in LENGTHS for timing in timed(of, [length])]
    timings += [timing for beside in BESIDE[1:] for timing in timed(of, [SHORT] * beside)]
    return fit(timings, 1000, BUDGET)


COEFFICIENTS = st.builds(
    Coefficients,
    step=st.floats(1e-3, 1e-1),
    sequence=st.floats(0, 1e-3),
    weights=st.just(0.0),
    token=st.floats(1e-6, 1e-3),
    context=st.floats(0, 1e-6),
    pair=st.just(0.0),
)


@settings(deadline=None, max_examples=20)
@given(COEFFICIENTS)
def test_the_parameters_that_made_the_timings_are_found(of: Coefficients) -> None:
    found = calibrated(of).coefficients
    for name in ("step", "sequence", "token", "context"):
        assert getattr(found, name) == pytest.approx(getattr(of, name), rel=1e-6, abs=1e-9), name


def test_measured_steps_are_predicted() -> None:
    found = calibrated(OF).coefficients
    for prompts in ([1024], [SHORT] * 4, [700, 30, 30, 300]):
        for predicted, measured in zip(timed(found, prompts), timed(OF, prompts), strict=True):
            assert predicted.first == pytest.approx(measured.first)
            assert predicted.each == pytest.approx(measured.each)


def test_attention_among_a_prompts_tokens_is_part_of_their_cost() -> None:
    """No coefficient is fitted to it: what was timed is predicted nearly."""
    of = Coefficients(step=0.01, sequence=1e-4, weights=0.0, token=1e-4, context=1e-7, pair=1e-8)
    found = calibrated(of).coefficients
    assert found.step == pytest.approx(of.step)
    for length in LENGTHS:
        [predicted], [measured] = timed(found, [length]), timed(of, [length])
        assert predicted.first == pytest.approx(measured.first, rel=0.03)


def test_the_time_beside_the_steps_is_no_step() -> None:
    late = [Timing(t.prompt_tokens, OUTPUT, 1, t.first + 0.5, t.each) for n in LENGTHS for t in timed(OF, [n])]
    beside = [timing for count in BESIDE[1:] for timing in timed(OF, [SHORT] * count)]
    assert fit(late + beside, 1000, BUDGET).coefficients.token == pytest.approx(OF.token)


@pytest.mark.parametrize("timings", [[], timed(OF, [16]), [*timed(OF, [16]), *timed(OF, [64])], timed(OF, [16] * 2)])
def test_too_few_kinds_of_calls_are_refused(timings: list[Timing]) -> None:
    with pytest.raises(InvalidRequest, match="2 prompt lengths and 2 numbers of concurrent calls"):
        fit(timings, 1000, BUDGET)


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    measured = calibrated(OF)
    measured.write(tmp_path / "profile.json")
    assert MeasuredProfile.read(tmp_path / "profile.json") == measured


@pytest.mark.parametrize(("option", "value"), [("--kv-tokens", "-1"), ("--token-budget", "0"), ("--max-tokens", "1")])
def test_a_number_that_cannot_be_is_named(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--kv-tokens", "4096", option, value]) == 1
    assert f"{option[2:].replace('-', '_')}: must be" in capsys.readouterr().err


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    yield stack
    stack.close()


@pytest.mark.e2e
def test_a_running_worker_is_timed_or_the_reason_is_one_line(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "profile.json"
    gateway = stack.gateway(throttle="none").address
    command = ["calibrate", "--gateway", gateway, "--max-tokens", "8", "--kv-tokens", "4096", "--out", str(out)]
    assert main(command) == 1
    assert capsys.readouterr().err == "fairlead: no model is served: check that a worker runs\n"
    with grpc.insecure_channel(gateway) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        stack.worker("a", max_prompt_tokens=32)
        stack.await_workers(stub)
        assert main(command) == 1
        problem = "fairlead: calibration needs 2 prompt lengths, but prompt: at most 32 prompt tokens, got 64 (request "
        assert capsys.readouterr().err.startswith(problem)
        stack.workers.pop("a").kill()
        stack.await_workers(stub)
        stack.worker("b", max_prompt_tokens=100, engine="fake:0.004")
        stack.await_workers(stub)
        assert main(command) == 0
    assert "48 calls timed" in capsys.readouterr().out  # two lengths, and 2, 4 and 8 short calls, three times
    assert MeasuredProfile.read(out).kv_tokens == 4096
