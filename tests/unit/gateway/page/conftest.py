"""Gateways with the operators' page, and one browser for all tests."""

from collections.abc import Iterator

import pytest

from lab.bench.page.browser import Browser, executable
from tests.services import Process, Stack
from tests.unit.gateway.page.viewer import Viewer


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A cluster of two workers, for tests that leave it as it was."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    for name in ("a", "b"):
        stack.worker(name, model="tiny", kv_tokens=2048, max_running=2, engine="fake:0.02")
    yield stack
    stack.close()


@pytest.fixture(scope="module")
def served(shared_stack: Stack) -> Process:
    """A gateway with a page, without keys."""
    return shared_stack.gateway(page_listen="127.0.0.1:0", throttle="oit:1000")


@pytest.fixture(scope="module")
def page(served: Process) -> str:
    """The address of the page, without a key."""
    return f"http://127.0.0.1:{served.wait_for('listening')['page_port']}"


@pytest.fixture
def viewer(page: str) -> Viewer:
    """Somebody who has not logged in."""
    return Viewer(int(page.rpartition(":")[2]))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of all tests: to start one takes longer than most of them."""
    path = executable()
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or name one by CHROMIUM")
    browser = Browser(path, tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """The browser as a desktop's, with nothing noted yet and no login."""
    chromium.open("about:blank#new")
    chromium.command("Network.clearBrowserCookies")
    chromium.resize(1280, 900)
    chromium.console.clear()
    chromium.requested.clear()
    return chromium
