"""Rates and lengths of clients become requests."""

import re
from pathlib import Path

import pytest

from fairlead.errors import InvalidRequest
from simulation.traces import read

RATES = "client,window_start_s,rate_rps,cv,dist,shape,scale"
LENGTHS = "client,window_start_s,field,mean,p0,p1,p5,p10,p25,p50,p75,p90,p95,p99,p100"
INPUTS, OUTPUTS = ",".join(str(100 + n) for n in range(11)), ",".join(["5000"] * 11)


def lengths(folder: Path, *lines: str, header: str = LENGTHS) -> None:
    (folder / "servegen_small_lengths.csv").write_text("\n".join([header, *lines]))


def test_servegens_parameters_become_requests_at_their_rates_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "servegen_small_rates.csv"
    lines = ("7,600,2.0,1,Gamma,1.0,0", "7,0,1.0,1,Weibull,1.0,0", "8,0,5.0,1,Gamma,1.0,0", "9,0,5.0,1,Gamma,1.0,0")
    path.write_text("\n".join([RATES, *lines]))
    with pytest.raises(InvalidRequest, match="servegen_small_lengths"):
        read(path)
    lengths(
        tmp_path,
        f"7,0,input_tokens,105,{INPUTS}",
        f"7,0,output_tokens,30,{OUTPUTS}",
        f"9,0,input_tokens,105,{INPUTS}",
        "7,0,reason_ratio,0.5,,,,,,,,,,,",
    )
    rows, left_out = read(path)
    assert {row.client for row in rows} == {"client-7"}, "not all is known of 8's and 9's lengths"
    assert left_out == (f"{path}: 2 of 3 clients are left out: they have no lengths",)
    assert sum(row.arrival < 600 for row in rows) == pytest.approx(600, rel=0.2)
    assert sum(row.arrival >= 600 for row in rows) == pytest.approx(1200, rel=0.2)
    assert {row.output_tokens for row in rows} == {5000}
    assert sorted(row.input_tokens for row in rows)[len(rows) // 2] == 105
    assert read(path, 50).rows == rows[:50]


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ("client,window_start_s,rate_rps\n7,0,1.0", "rates.csv has no column dist, shape"),
        (f"{RATES}\n7,0,0,1,Gamma,1.0,0", "rates.csv, line 2: rate_rps: 0 is below 1e-09"),
        (f"{RATES}\n7,0,fast,1,Gamma,1.0,0", "rates.csv, line 2: rate_rps: 'fast' is not a number"),
        (f"{RATES}\n7,0,1,1,Weibull,0.001,0", "rates.csv, line 2: shape: 0.001 is below 0.006"),
        (f"{RATES}\n7,0,1,1,Pareto,1,0", "rates.csv, line 2: dist: 'Pareto' is neither Gamma nor Weibull"),
    ],
)
def test_rates_that_cannot_be_read_are_named(tmp_path: Path, rates: str, said: str) -> None:
    path = tmp_path / "servegen_small_rates.csv"
    path.write_text(rates)
    lengths(tmp_path, f"7,0,input_tokens,105,{INPUTS}", f"7,0,output_tokens,30,{OUTPUTS}")
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        read(path)


@pytest.mark.parametrize(
    ("header", "line", "said"),
    [
        ("client,window_start_s,field,mean", "7,0,input_tokens,105", "lengths.csv has no column p0, p1"),
        (LENGTHS, "7,0,input_tokens,105,many", "lengths.csv, line 2: p0: 'many' is not a number"),
        (LENGTHS, "7,0,input_tokens,105,1,2", "lengths.csv, line 2: p5: None is not a number"),
    ],
)
def test_lengths_that_cannot_be_read_are_named(tmp_path: Path, header: str, line: str, said: str) -> None:
    path = tmp_path / "servegen_small_rates.csv"
    path.write_text(RATES)
    lengths(tmp_path, line, header=header)
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        read(path)
