"""How commands find the stacks of this machine, and leave those that are gone."""

import stat
from pathlib import Path

import pytest

from cli.endpoint import Endpoint, published, read

FIRST, SECOND = (Endpoint(f"{name}:7000", f"{name}:7050", "secret", f"logs of {name}") for name in ("first", "second"))


@pytest.fixture(params=["XDG_RUNTIME_DIR", "TMPDIR"])
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv(request.param, str(tmp_path))
    return tmp_path


def test_the_newest_is_found_and_then_the_one_before(folder: Path) -> None:
    assert read() is None
    with published(FIRST):
        assert read() == FIRST
        with published(SECOND):
            assert read() == SECOND
            assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        assert read() == FIRST
    assert read() is None
    assert list(folder.iterdir()) == []


def test_the_first_may_end_first(folder: Path) -> None:
    first, second = published(FIRST), published(SECOND)
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert read() == SECOND


def test_a_socket_without_a_holder_is_removed(folder: Path) -> None:
    with published(FIRST):
        [file] = folder.iterdir()
        left_over = file.with_name(file.name.replace("endpoint-", "endpoint-9"))
        left_over.write_text(file.read_text().replace("first", "dead"))
        assert read() == FIRST
        assert list(folder.iterdir()) == [file]


def test_files_that_are_no_endpoints_are_passed_over(folder: Path) -> None:
    with published(FIRST):
        [file] = folder.iterdir()
        file.with_name(file.name.replace("endpoint-", "endpoint-9")).mkdir()
        assert read() == FIRST


@pytest.mark.parametrize("place", ["absent", "file"])
def test_a_runtime_folder_that_cannot_be_used_is_passed_over(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `su` the variable names the folder of somebody else, and in a container none that is there."""
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / place))
    with published(FIRST):
        assert read() == FIRST
    assert read() is None
