"""docs/glossary.md lists every public class of the product, and no two classes share a name."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("class_index", ROOT / "docs" / "class_index.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_is_current(generator: ModuleType) -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    assert page == generator.rewritten(page, ROOT)


def test_a_class_stands_with_its_module_and_first_sentence(generator: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "gateway" / "core").mkdir(parents=True)
    (tmp_path / "gateway" / "core" / "call.py").write_text('class Call:\n    """One call | its state. More."""\n')
    assert "| Call | `core/call.py` | One call \\| its state |" in generator.index(tmp_path).splitlines()


def test_two_classes_of_one_name_are_refused(generator: ModuleType, tmp_path: Path) -> None:
    for package in ("gateway", "simulation"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "call.py").write_text('class Call:\n    """A call."""\n')
    with pytest.raises(ValueError, match=r"Call.*gateway/call.*simulation/call"):
        generator.index(tmp_path)


def test_a_page_without_a_place_is_refused(generator: ModuleType) -> None:
    with pytest.raises(ValueError, match="0 places"):
        generator.rewritten("no place\n", ROOT)
