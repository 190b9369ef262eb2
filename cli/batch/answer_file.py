"""The answers of a batch, one on each line, in OpenAI's batch format: the record of what is done."""

import fcntl
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any, Self

from cli.batch.request_file import key
from fairlead.errors import InvalidRequest

CHUNK = 1 << 16  # bytes that are read at a time to find the end of the last whole line
BEGINNING = b'{"id"'  # of an answer


class AnswerFile:
    """A file to which one run at a time appends, a line in one write. A torn last line is removed when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._done: set[bytes] = set()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise InvalidRequest(f"{path}: must be a regular file, which keeps the answers")
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the process ends, however it does
            self._read()
            self._remove_torn_line()
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise InvalidRequest(f"{path}: another run writes to it") from error
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def has(self, custom_id: str) -> bool:
        """Return whether the request with this id is answered."""
        return key(custom_id) in self._done

    def append(self, answer: dict[str, Any]) -> None:
        """Add an answer; from then on it is done. Raises OSError if the line cannot be written."""
        line = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace") + b"\n"
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError as error:
                reason = f"{error.strerror}; when that is mended, the same command goes on"
                raise OSError(error.errno, reason, str(self._path)) from error
            self._done.add(key(answer["custom_id"]))

    def _remove_torn_line(self) -> None:
        end = os.fstat(self._descriptor).st_size
        while end:
            start = max(0, end - CHUNK)
            found = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        os.ftruncate(self._descriptor, end)

    def _read(self) -> None:
        """Read which requests are answered. Raise InvalidRequest for a file of anything else, which stays as it is."""
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n") and BEGINNING.startswith(line[: len(BEGINNING)]):
                    break  # torn
                try:
                    answer = json.loads(line)
                    self._done.add(key(str(answer["custom_id"])))
                    is_answer = "response" in answer
                except (ValueError, KeyError, TypeError, RecursionError):
                    is_answer = False
                if not is_answer:
                    raise InvalidRequest(f"{self._path}, line {number}: not an answer of a batch")
