"""AIPerf, which measures servers, against a running cluster."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.unit.gateway.http.clients import python_with
from tests.unit.gateway.http.http_client import HttpClient

pytestmark = [
    pytest.mark.clients,
    pytest.mark.e2e,
    pytest.mark.slow,
]  # it starts many processes, each of which imports much

CLIENT = "aiperf"
REQUESTS, INPUT, OUTPUT = 6, 30, 8
OFFLINE = {"HF_ENDPOINT": "http://127.0.0.1:9"}  # nothing is fetched: a tokenizer's folder is given


def byte_tokenizer(folder: Path) -> Path:
    """The folder of a tokenizer with a token for each byte, as the workers of these tests have it."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def test_it_sees_every_token(http: HttpClient, tmp_path: Path) -> None:
    command: list[str | Path] = [
        *(
            python_with(CLIENT).parent / "aiperf",
            "profile",
            "--model",
            "tiny",
            "--url",
            f"http://127.0.0.1:{http.port}",
        ),
        *("--endpoint-type", "chat", "--streaming", "--header", "x-fairlead-streaming:each_token"),
        *("--tokenizer", byte_tokenizer(tmp_path / "tokenizer"), "--isl", str(INPUT), "--osl", str(OUTPUT)),
        *("--extra-inputs", "ignore_eos:true", "--request-count", str(REQUESTS), "--concurrency", "2"),
        *("--workers-max", "1", "--record-processors", "1", "--no-gpu-telemetry", "--no-server-metrics"),
        *("--ui", "none", "--output-artifact-dir", tmp_path / "results"),
    ]
    done = subprocess.run(command, env={**os.environ, **OFFLINE}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "results" / "profile_export.jsonl").read_text().splitlines()
    assert len(lines) == REQUESTS
    for line in lines:
        measured = {name: metric["value"] for name, metric in json.loads(line)["metrics"].items()}
        assert measured["usage_completion_tokens"] == OUTPUT
        assert len(measured["inter_chunk_latency"]) == OUTPUT - 1, "an event for each token"
