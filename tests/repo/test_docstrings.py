"""The check of docstrings, which `make lint` runs, refuses fragments and accepts sentences."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CALL = '''class Call:
    """One call, from its arrival to its end."""

    def end(self): ...

    def cancel(self):
        """Cancel the call for whoever made it."""

    def _wake(self): ...
'''


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        "It is: not there again.",
        "Of the table.",
        "Its text.",
        "In which conversations begin.",
        "`s_w`.",
        "What one worker process does at a time.",
    ],
)
def test_a_fragment_is_refused(check: ModuleType, text: str) -> None:
    assert check.is_fragment(text)


@pytest.mark.parametrize("text", ["Return the rows.", "See RoutePolicy.", "The account of one client at this worker."])
def test_a_sentence_or_a_noun_phrase_that_stands_alone_is_accepted(check: ModuleType, text: str) -> None:
    assert not check.is_fragment(text)


def test_offences_name_their_place(check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "call.py").write_text(CALL)
    (path,) = check.sources(("gateway",))
    assert list(check.fragments(path)) == [
        "gateway/call.py:4: end: has no docstring",
        "gateway/call.py:6: cancel: 'whoever' does not say which client or process acts",
    ]
