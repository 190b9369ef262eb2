"""Hypothesis draws from a seed that every run prints, so that a run can be repeated, also one in several processes."""

import secrets

import pytest

OPTION = "hypothesis_seed"


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads the option
def pytest_configure(config: pytest.Config) -> None:
    """Choose a seed, unless one is given."""
    if config.getoption(OPTION) is None:
        setattr(config.option, OPTION, str(secrets.randbelow(10**9)))


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Print the seed below the header, which quiet runs do not have."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"hypothesis seed: {session.config.getoption(OPTION)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """After failures, print how to draw the same examples again."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(
            f"To draw the same examples again: pytest --hypothesis-seed={config.getoption(OPTION)}"
        )
