"""LoRA adapters are found, or refused with the option's and the adapter's name, before the model is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_worker.config import WorkerConfig
from local_worker.engine.lora_adapter import CONFIG, find_adapter
from serving.config import ConfigError


def adapter(folder: Path, config: Any, weights: bytes = b"weights") -> Path:
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


def test_the_largest_rank_of_its_layers_counts(tmp_path: Path) -> None:
    plain = find_adapter("sql", str(adapter(tmp_path / "a", {"r": 8})))
    assert (plain.name, plain.folder, plain.rank) == ("sql", tmp_path / "a", 8)
    assert find_adapter("sql", str(adapter(tmp_path / "b", {"r": 8, "rank_pattern": {"q_proj": 24}}))).rank == 24
    assert find_adapter("sql", str(adapter(tmp_path / "c", {"r": 8, "rank_pattern": None}))).rank == 8


def test_other_files_are_another_revision(tmp_path: Path) -> None:
    one, same, trained, changed = (
        find_adapter("sql", str(adapter(tmp_path / str(number), {"r": rank}, weights))).revision
        for number, (rank, weights) in enumerate(((8, b"1"), (8, b"1"), (8, b"2"), (4, b"1")))
    )
    assert one == same
    assert len({one, trained, changed}) == 3


@pytest.mark.parametrize(
    "config",
    [
        *({}, []),
        *({"r": rank} for rank in ("8", 0, -8, 8.5, True, None)),
        *({"r": 8, "rank_pattern": pattern} for pattern in ([4], {"q_proj": 0})),
    ],
)
def test_a_configuration_without_a_rank_is_refused(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ConfigError, match=rf"lora: sql: {CONFIG} tells no rank"):
        find_adapter("sql", str(adapter(tmp_path / "a", config)))


def test_a_folder_that_is_no_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lora: sql: '/no/such' is no folder and no hub id"):
        find_adapter("sql", "/no/such")
    with pytest.raises(ConfigError, match=rf"lora: sql: no {CONFIG} and no weights .* in {tmp_path}"):
        find_adapter("sql", str(tmp_path))
    (adapter(tmp_path / "a", {"r": 8}) / "adapter_model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"lora: sql: no weights \(\*\.safetensors or \*\.bin\) in"):
        find_adapter("sql", str(tmp_path / "a"))


def config_of(lora: str, engine: str = "vllm") -> WorkerConfig:
    return WorkerConfig(secret="s" * 16, engine=engine, model="org/base", lora=lora)


def test_adapters_have_names_of_their_own() -> None:
    assert config_of("").lora_adapters == {}
    assert config_of("sql=/a/b, chat = org/chat").lora_adapters == {"sql": "/a/b", "chat": "org/chat"}
    for wrong in ("sql", "=/a", "sql=", "sql=/a,"):
        with pytest.raises(ConfigError, match=f"lora: expected NAME=FOLDER or NAME=HUB_ID, .* got '{wrong}'"):
            config_of(wrong)
    for twice in ("sql=/a,sql=/b", "base=/a"):
        with pytest.raises(ConfigError, match="each must have a name of its own, got base,"):
            config_of(twice)
    with pytest.raises(ConfigError, match="lora: must not be given with the engine transformers, got 'sql=/a'"):
        config_of("sql=/a", engine="transformers")
