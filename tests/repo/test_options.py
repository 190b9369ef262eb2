"""docs/options.md is what the services' configuration classes say, and says enough of every option."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from serving.config import options

ROOT = Path(__file__).parents[2]
MOST_OPTIONS = 50  # names, over all services


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("options_reference", ROOT / "docs" / "options.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(generator: ModuleType) -> None:
    assert (ROOT / "docs" / "options.md").read_text() == generator.reference(), "run `python docs/options.py`"


def test_every_option_has_a_sentence_a_unit_and_a_situation_in_which_to_change_it(generator: ModuleType) -> None:
    fields = [(service, field) for service, config in generator.SERVICES.values() for field in options(config)]
    for service, field in fields:
        about, where = field.metadata, f"{field.name} of the {service.value.lower()}"
        for text in (about["help"], about["change_when"]):
            assert len(text.split()) > 2, f"{where}: {text!r} is too short for a sentence"
            assert text.endswith("."), f"{where}: {text!r} does not end like a sentence"
        assert about["unit"] or about["choices"] or isinstance(field.default, bool), f"{where}: no unit"


def test_services_have_at_most_fifty_options(generator: ModuleType) -> None:
    assert 40 <= len(generator.names()) <= MOST_OPTIONS


def test_the_page_lists_every_option_once_and_the_six_that_matter_first(generator: ModuleType) -> None:
    groups = {title: names.split() for title, names in generator.ORDER.items()}
    listed = [name for names in groups.values() for name in names]
    assert sorted(listed) == sorted(generator.names())
    assert len(next(iter(groups.values()))) == 6


def test_a_row_has_flag_services_default_and_unit(generator: ModuleType) -> None:
    page = generator.reference()
    for row in (
        "| **`--secret`** | gateway, scheduler, worker, adapter, throttler | - | text |",
        "| `--max-running` | worker | - | requests |",
        "| `--insecure` | gateway | off | on or off |",
        "| `--dtype` | worker | `auto` | `auto`, `float32`, `bfloat16`, `float16` |",
    ):
        assert row in page
