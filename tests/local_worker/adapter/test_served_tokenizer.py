"""Tokenizers that cannot be read: from an engine, or where the option says."""

import io
import zipfile
from pathlib import Path

import pytest

from local_worker.adapter import served_tokenizer
from local_worker.adapter.engine_api import EngineAway
from local_worker.adapter.served_tokenizer import load_tokenizer, unpack_tokenizer
from serving.config import ConfigError


def archive(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            written.writestr(name, content)
    return data.getvalue()


def test_what_an_engine_sends_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineAway, match="cannot be unpacked"):
        unpack_tokenizer(b"no archive")
    with pytest.raises(ConfigError, match="tokenizer: "):
        unpack_tokenizer(archive(readme=b"no tokenizer"))
    monkeypatch.setattr(served_tokenizer, "MOST_BYTES", 99)
    with pytest.raises(EngineAway, match="more than 99 bytes"):
        unpack_tokenizer(archive(tokenizer=b" " * 100))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"tokenizer: {tmp_path}"):
        load_tokenizer(str(tmp_path))
