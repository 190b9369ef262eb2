"""Calibration finds the coefficients that made the timings; a profile survives the way through its file."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.__main__ import main
from cli.stack import Stack
from simulation.calibration import Timing, fit
from simulation.step_time import Coefficients, Measured

SHORT = 16
OF = Coefficients(step=0.01, sequence=1e-4, weights=0.0, token=1e-4, context=1e-7, pair=0.0)


def timing(of: Coefficients, length: int, beside: int) -> Timing:
    """What a worker with these coefficients takes; `each` with the prompt as the context."""
    first = of.step + of.sequence + (of.token + of.context) * length
    return Timing(length, beside, first, of.step + beside * (of.sequence + of.token + of.context * length))


@settings(deadline=None)
@given(
    st.builds(
        Coefficients,
        step=st.floats(1e-3, 1e-1),
        sequence=st.floats(0, 1e-3),
        weights=st.just(0.0),
        token=st.floats(1e-6, 1e-3),
        context=st.floats(0, 1e-6),
        pair=st.just(0.0),
    )
)
def test_what_made_the_timings_is_found(of: Coefficients) -> None:
    timings = [timing(of, length, 1) for length in (SHORT, 64, 256)]
    timings += [timing(of, SHORT, beside) for beside in (2, 4, 8)]
    found = fit(timings, 1000).coefficients
    assert found.token == pytest.approx(of.token + of.context)  # a prompt's tokens read each other
    assert found.context == pytest.approx(of.context, abs=1e-12)
    assert found.step == pytest.approx(of.step)
    assert found.sequence == pytest.approx(max(of.sequence - of.context, 0.0), abs=1e-9)


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    measured = fit([timing(OF, n, b) for n in (16, 64) for b in (1, 2)], 512)
    measured.write(tmp_path / "profile.json")
    assert Measured.read(tmp_path / "profile.json") == measured


@pytest.mark.e2e
def test_a_running_worker_is_timed(tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    with Stack(workers=1, log_dir=tmp_path, model="tiny", engine="fake") as stack:
        options = ["--gateway", stack.gateway, "--max-tokens", "8", "--kv-tokens", "4096", "--out", str(out)]
        assert main(["calibrate", *options]) == 0
    assert Measured.read(out).kv_tokens == 4096
