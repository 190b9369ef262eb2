"""docs/options.md is what the services' configuration classes say, and says enough of every option."""

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


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
    fields = [
        (service, field) for service, config in generator.SERVICES.values() for field in dataclasses.fields(config)
    ]
    for service, field in fields:
        about, where = field.metadata, f"{field.name} of the {service.value.lower()}"
        for text in (about["help"], about["change_when"]):
            assert len(text.split()) > 2, f"{where}: {text!r} is too short for a sentence"
            assert text.endswith("."), f"{where}: {text!r} does not end like a sentence"
        assert about["unit"] or about["choices"] or isinstance(field.default, bool), f"{where}: no unit"


def test_a_row_has_flag_variable_default_and_unit(generator: ModuleType) -> None:
    page = generator.reference()
    for row in (
        "| `--secret` | `FAIRLEAD_SECRET` | - | text |",
        "| `--max-running` | `FAIRLEAD_WORKER_MAX_RUNNING` | - | requests |",
        "| `--step-timeout` | `FAIRLEAD_SCHEDULER_STEP_TIMEOUT` | `30.0` | seconds |",
        "| `--insecure` | `FAIRLEAD_GATEWAY_INSECURE` | off | on or off |",
        "| `--throttle` | `FAIRLEAD_GATEWAY_THROTTLE` | `oit` | `oit`, `rpm`, `none` |",
    ):
        assert row in page
