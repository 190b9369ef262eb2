"""The tokenizer of a served engine whose interface takes and gives tokens, made of the files that the engine has."""

import io
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from engine_adapter.engine_api import EngineAway
from engine_adapter.tokenizer import check_calls
from local_worker.prompt import Chat
from local_worker.tokenizer import EncodedChat, HuggingFaceTokenizer
from serving.config import ConfigError

MOST_BYTES = 2**28  # of a tokenizer's files, packed or unpacked; the largest ones have 2**25


class ServedTokenizer(HuggingFaceTokenizer):
    """The tokenizer of a worker of ours, but for calls that have to be promised, which an engine does not do."""

    def encode_chat(self, chat: Chat) -> EncodedChat:
        """See Tokenizer."""
        check_calls(chat)
        return super().encode_chat(chat)


def load_tokenizer(path: str) -> ServedTokenizer:
    """Read the tokenizer of a folder or hub id; raise ConfigError if it cannot be read."""
    try:
        return ServedTokenizer.load(path)
    except Exception as error:  # the library raises whatever its files lead to
        raise ConfigError(f"tokenizer: {path}: {error}") from error


def unpack_tokenizer(archive: bytes) -> ServedTokenizer:
    """Read the tokenizer from the zip archive that an engine sends; raise EngineAway if it is none.

    Raises ConfigError as load_tokenizer does.
    """
    with TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                entries = files.infolist()
                if sum(entry.file_size for entry in entries) > MOST_BYTES:
                    raise EngineAway(f"the engine's tokenizer has more than {MOST_BYTES} bytes")
                for entry in entries:
                    (Path(folder) / PurePosixPath(entry.filename).name).write_bytes(files.read(entry))
        except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError) as error:  # also what is encrypted
            raise EngineAway(f"the engine's tokenizer cannot be unpacked: {error}") from error
        return load_tokenizer(folder)
