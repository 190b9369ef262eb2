"""Tests with a real vLLM: `make test-vllm` installs it in an environment of its own; elsewhere they are skipped."""

import importlib
import warnings

import pytest

from tests.engines import HAS_VLLM, VLLM_MARKS

if HAS_VLLM:
    with warnings.catch_warnings(action="ignore"):  # of vLLM's own code; imported before `--parallel` forks
        importlib.import_module("tests.system.vllm.imported")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs vLLM where there is none; vLLM warns of its own code."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            for mark in (*VLLM_MARKS, pytest.mark.filterwarnings("ignore")):
                item.add_marker(mark)
