"""A worker that cannot serve its model ends with one line that names the fault and the reason, not with a traceback."""

import json
import logging
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from local_worker.config import WorkerConfig
from local_worker.engine.vllm.environment import read_arguments
from local_worker.model import FAKE_KV_TOKENS, ServedModel, load_model
from serving.config import ConfigError

SIZES: dict[str, Any] = {
    "vocab_size": 16,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that loads."""
    words = WordLevel({f"w{number}": number for number in range(SIZES["vocab_size"])}, unk_token="w0")
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words)).save_pretrained(tmp_path)
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    return tmp_path


def load(folder: Path) -> ServedModel:
    return load_model(WorkerConfig(secret="s" * 16, model=str(folder), device="cpu", kv_tokens="64"))


def test_a_folder_is_served(folder: Path) -> None:
    model = load(folder)
    assert (model.vocab_size, model.max_model_tokens, model.kv_tokens) == (16, 64, 64)


@pytest.mark.parametrize("block_tokens", [16, 24])
def test_a_cpu_caches_what_it_can_compute_not_what_its_memory_holds(folder: Path, block_tokens: int) -> None:
    model = load_model(WorkerConfig(secret="s" * 16, model=str(folder), device="cpu", block_tokens=block_tokens))
    assert model.kv_tokens == 4096 // block_tokens * block_tokens


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "unheard-of"}, "unheard-of"),
        ({"model_type": "t5"}, "T5Config"),
        ({"num_hidden_layers": 2}, "lack 9 weights, for example model.layers.1."),
        ({"hidden_size": "eight"}, "hidden_size"),
        ({"hidden_size": 6}, "ignore_mismatched_sizes"),
        ({"num_attention_heads": 0}, "ZeroDivisionError"),
    ],
    ids=["unknown", "no decoder", "missing weights", "not a number", "other weights", "nonsense"],
)
def test_a_kind_of_model_that_is_not_served_is_named_in_one_line(
    folder: Path, changes: dict[str, object], reason: str
) -> None:
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    refused(folder, reason)


def test_weights_cut_off_are_named_in_one_line(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    refused(folder, "SafetensorError")


def test_a_folder_without_a_model_is_named_in_one_line(tmp_path: Path) -> None:
    refused(tmp_path, "no config.json in")


def refused(folder: Path, reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(folder)
    message = str(refusal.value)
    assert message.startswith(f"model: {folder}: ")
    assert reason in message
    assert "\n" not in message
    assert len(message) < 600


def test_a_cache_without_room_for_one_block_is_refused() -> None:
    def config(block_tokens: int) -> WorkerConfig:
        return WorkerConfig(secret="s" * 16, engine="fake", block_tokens=block_tokens)

    assert load_model(config(FAKE_KV_TOKENS)).kv_tokens == FAKE_KV_TOKENS
    with pytest.raises(ConfigError, match=r"kv_tokens: must be at least one block \(block_tokens, 10000\), got 8192"):
        load_model(config(10_000))


def test_the_fake_engine_serves_several_models_by_name() -> None:
    def config(model: str) -> WorkerConfig:
        return WorkerConfig(secret="s" * 16, engine="fake", model=model)

    assert list(load_model(config("base, adapters/one/")).revisions) == ["base", "one"]
    assert list(load_model(config("served=base, two=a/b")).revisions) == ["served", "two"]
    with pytest.raises(ConfigError, match="model: each must have a name of its own, got a,b,a"):
        config("a,b,x/a")
    with pytest.raises(ConfigError, match="model: each model must have a name, got 'a,,b'"):
        config("a,,b")


def test_arguments_of_vllm_are_a_mapping(tmp_path: Path) -> None:
    file = tmp_path / "vllm.yaml"
    file.write_text("tensor_parallel_size: 2\nquantization: fp8\n")
    assert read_arguments("") == {}
    assert read_arguments(str(file)) == {"tensor_parallel_size": 2, "quantization": "fp8"}
    assert read_arguments("{tensor_parallel_size: 4}") == {"tensor_parallel_size": 4}
    for wrong, reason in (("nosuch.yaml", "No such file"), ("{a: ", "flow"), ("{1: 2}", "got {1: 2}")):
        with pytest.raises(ConfigError, match=f"vllm_args: .*{reason}"):
            read_arguments(wrong)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_vllm_is_named_where_it_is_missing(folder: Path) -> None:
    with pytest.raises(ConfigError, match="engine: vllm is not installed"):
        load_model(WorkerConfig(secret="s" * 16, model=str(folder), engine="vllm"))


def test_options_of_another_engine_are_refused() -> None:
    with pytest.raises(ConfigError, match="vllm_args: must not be given with the engine fake"):
        WorkerConfig(secret="s" * 16, engine="fake", vllm_args="{enforce_eager: true}")
    for engine, complaint in (
        ("vllm:v3", "vllm: must be followed by one of v1, v2, got 'v3'"),
        ("vllm:batch-invariant", "vllm: must be followed by one of v1, v2, got 'batch-invariant'"),
        ("transformers:v2", "transformers: must be followed by one of batch-invariant, got 'v2'"),
        ("fake:-1", "fake: seconds of a step must be 0 or more, got -1"),
        ("fake:0.1,0", "fake: bytes of a token must be above 0, got '0'"),
        ("torch", "must be one of transformers, vllm, fake, got 'torch'"),
    ):
        with pytest.raises(ConfigError, match=f"engine: {complaint}"):
            WorkerConfig(secret="s" * 16, engine=engine)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", (4096, 0.3)), ("90%", (None, 0.9)), ("4096, 90%", (4096, 0.9))],
)
def test_a_cache_has_tokens_a_part_of_the_memory_or_both(text: str, size: tuple[int | None, float]) -> None:
    assert WorkerConfig(secret="s" * 16, kv_tokens=text).cache == size


@pytest.mark.parametrize("text", ["100%", "0%", "x%", "-1", "many", ""])
def test_a_cache_size_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="kv_tokens: "):
        WorkerConfig(secret="s" * 16, kv_tokens=text)


def test_a_place_with_an_equals_sign_is_no_name() -> None:
    assert WorkerConfig(secret="s" * 16, model="/models/a=b").model_names == ["a=b"]
    named = WorkerConfig(secret="s" * 16, model="mine=organisation/model")
    assert (named.model_names, named.model_place) == (["mine"], "organisation/model")


def test_a_folder_is_one_model_whatever_its_name(folder: Path) -> None:
    renamed = folder.rename(folder.with_name("a,b"))
    assert list(load(renamed).revisions) == ["a,b"]


def test_each_step_of_loading_is_logged_before_it_begins(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "serving.process"):
        load(folder)
    steps = ["importing the engine", "reading the tokenizer", "loading weights", "checking the model"]
    assert [record.step for record in caplog.records if record.message == "starting"] == steps  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", ["nosuch", "./nosuch", "/nosuch/model"])
def test_a_name_that_can_be_no_model_is_refused_before_anything_is_imported(
    model: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "serving.process"):
        refused(Path(model), "no folder, no hub id (organisation/name), and not the built-in model")
    assert caplog.records == []


def test_a_folder_without_weights_is_named_in_one_line(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "no weights (*.safetensors or *.bin) in")


def test_log_records_of_libraries_are_not_printed_twice(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(folder)
    for name in ("huggingface_hub", "transformers"):
        assert logging.getLogger(name).handlers == []
        logging.getLogger(f"{name}.anything").warning("from %s", name)
        assert caplog.messages.count(f"from {name}") == 1


ASK_THE_HUB = """
import sys
from local_worker.engine.model_files import resolve
try:
    print(resolve("organisation/tiny"))
except FileNotFoundError as error:
    print(error)
print("torch" in sys.modules)
"""


def ask_an_unreachable_hub(cache: Path) -> list[str]:
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", ASK_THE_HUB], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_hub_that_cannot_be_reached_is_asked_once_and_before_the_heavy_imports(tmp_path: Path) -> None:
    reason, imported = ask_an_unreachable_hub(tmp_path)
    assert reason.startswith("no such folder, and no such model on the hub or in its cache (ConnectError: ")
    assert imported == "False"


def test_a_model_in_the_hubs_cache_is_loaded_from_there(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.mktemp("cache")
    model = cache / "hub" / "models--organisation--tiny"
    snapshot = model / "snapshots" / ("0" * 40)
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, snapshot)
    assert ask_an_unreachable_hub(cache)[0] == str(snapshot)
    index = snapshot / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "model-00002-of-00002.safetensors"}}))
    assert ask_an_unreachable_hub(cache)[0] == "organisation/tiny", "a part of the weights is missing: the hub has it"
