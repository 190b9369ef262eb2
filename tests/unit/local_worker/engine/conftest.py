"""The option of the tests of constrained outputs."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("engine").addoption("--schemas", type=int, default=40, help="how many random ones are obeyed")
