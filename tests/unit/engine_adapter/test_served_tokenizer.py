"""Tokenizers that cannot be read: from an engine, or where the option says."""

import io
import zipfile
from pathlib import Path

import pytest

from engine_adapter import served_tokenizer
from engine_adapter.engine_api import EngineAway
from engine_adapter.served_tokenizer import load_tokenizer, unpack_tokenizer
from serving.config import ConfigError


def archive(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            written.writestr(name, content)
    return data.getvalue()


def test_tokenizer_files_from_an_engine_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineAway, match="cannot be unpacked"):
        unpack_tokenizer(b"no archive")
    with pytest.raises(ConfigError, match="tokenizer: "):
        unpack_tokenizer(archive(readme=b"no tokenizer"))
    monkeypatch.setattr(served_tokenizer, "MOST_BYTES", 99)
    with pytest.raises(EngineAway, match="more than 99 bytes"):
        unpack_tokenizer(archive(tokenizer=b" " * 100))


def encrypted() -> bytes:
    """An archive that says of its file that it needs a password, and of a method that nobody knows."""
    data = bytearray(archive(tokenizer=b"x"))
    data[6] |= 1  # of the file's own header
    data[data.index(b"PK\x01\x02") + 8] |= 1  # of the directory's entry
    return bytes(data)


def unknown_method() -> bytes:
    data = bytearray(archive(tokenizer=b"x"))
    data[8] = data[data.index(b"PK\x01\x02") + 10] = 77
    return bytes(data)


@pytest.mark.parametrize("forged", [encrypted(), unknown_method(), archive(**{"..": b"x"})])
def test_an_archive_that_cannot_be_unpacked_is_that_of_an_engine_that_is_away(forged: bytes) -> None:
    with pytest.raises(EngineAway, match="cannot be unpacked"):
        unpack_tokenizer(forged)


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer.json": b"[]", "tokenizer_config.json": b"{}"},
        {"tokenizer.json": b"{}", "tokenizer_config.json": b'{"tokenizer_class": 5}'},
        {"tokenizer.json": b"\xff", "tokenizer_config.json": b"\xff"},
        {
            "tokenizer.json": b'{"model": {"type": "BPE"}}',
            "tokenizer_config.json": b'{"tokenizer_class": "GPT2Tokenizer"}',
        },
    ],
)
def test_files_that_are_no_tokenizer_are_a_wrong_configuration(files: dict[str, bytes]) -> None:
    with pytest.raises(ConfigError, match="tokenizer: "):
        unpack_tokenizer(archive(**files))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"tokenizer: {tmp_path}"):
        load_tokenizer(str(tmp_path))
