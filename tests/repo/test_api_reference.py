"""docs/api.md is what protos/ say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "docs" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current(generator: ModuleType) -> None:
    assert (ROOT / "docs" / "api.md").read_text() == generator.reference(generator.parse(ROOT / "protos"))


def test_it_shows_kinds_labels_and_comments(generator: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "fairlead").mkdir()
    (tmp_path / "fairlead" / "a.proto").write_text(
        """syntax = "proto3";
        // Greets.
        service Greeter { rpc Greet(stream Name) returns (Name); // by name
        }
        message Name { repeated string given = 1; optional uint32 age = 2; oneof kind { Mood mood = 3; } }
        enum Mood { GOOD = 0; // the usual
        }"""
    )
    text = generator.reference(generator.parse(tmp_path))
    for line in (
        "Greets.",
        "| `Greet` | stream Name | Name | by name |",
        "| 1 | `given` | repeated string |  |",
        "| 2 | `age` | optional uint32 |  |",
        "| 3 | `mood` | Mood, one of kind |  |",
        "| 0 | `GOOD` | the usual |",
    ):
        assert line in text
