"""The fingerprint that tells loaded models apart."""

from pathlib import Path

import pytest

from local_worker.engine.model_files import folder_of, revision


def model(folder: Path, config: str = "{}", weights: bytes = b"1" * 100_000, name: str = "model.safetensors") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(config)
    (folder / name).write_bytes(weights)
    return folder


def test_a_copy_is_the_same_revision(tmp_path: Path) -> None:
    assert revision(model(tmp_path / "a")) == revision(model(tmp_path / "b"))
    assert folder_of(tmp_path / "a") == tmp_path / "a"


@pytest.mark.parametrize(
    "other",
    [{"config": "{ }"}, {"weights": b"1" * 99_999}, {"weights": b"1" * 99_999 + b"2"}, {"name": "other.bin"}],
    ids=["config", "size", "content", "name"],
)
def test_a_different_model_has_another_revision(tmp_path: Path, other: dict[str, object]) -> None:
    assert revision(model(tmp_path / "a")) != revision(model(tmp_path / "b", **other))  # type: ignore[arg-type]
