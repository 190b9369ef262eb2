"""What operators bring to `fairlead simulate`: it is simulated whole, and what cannot be read is one line."""

import csv
import gzip
from pathlib import Path

import pytest

from cli.__main__ import main

HEADER = "arrival_s,interaction,input_tokens,output_tokens,blocks"


def simulate(trace: Path, out: Path, *options: str) -> int:
    return main(["simulate", "--trace", str(trace), "--out", str(out), "--processes", "1", *options])


def summary(out: Path) -> dict[str, str]:
    with (out / "summary.csv").open() as file:
        [row] = csv.DictReader(file)
    return row


def test_blocks_of_a_told_size_are_found_in_the_cache_and_long_outputs_are_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "mine.csv"
    trace.write_text("\n".join([HEADER, *(f"{n * 100},,640,{5000 * (n == 1) + 1},1+10" for n in range(4))]))
    assert simulate(trace, tmp_path / "none") == 1
    assert "mine.csv, line 2: blocks: the block size of this trace is unknown" in capsys.readouterr().err
    assert simulate(trace, tmp_path / "told", "--trace-block-tokens", "64") == 0
    told = summary(tmp_path / "told")
    assert float(told["hit rate"]) == pytest.approx(0.75, abs=0.02), "the first of four computes them"
    assert float(told["tokens/s"]) * float(told["end s"]) == pytest.approx(4 * 640 + 5004, rel=0.05)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("latin.csv", f"{HEADER}\n0,Jürgen,9,1,\n".encode("latin-1")),
        ("latin.jsonl", '{"timestamp": 1, "user": "Jürgen"}\n'.encode("latin-1")),
        ("cut.csv.gz", gzip.compress(f"{HEADER}\n0,i,9,1,\n".encode(), mtime=0)[:-9]),
        ("long.csv", f"{HEADER}\n0,{'i' * 140_000},9,1,\n".encode()),
        ("deep.jsonl", b"[" * 100_000),
    ],
)
def test_an_unreadable_file_is_named_in_one_line(
    tmp_path: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert simulate(tmp_path / name, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert said.startswith("fairlead: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
