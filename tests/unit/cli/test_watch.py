"""`fairlead demo --watch` in a real browser: what its buttons do is seen on the page."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.bench.page.browser import Browser, executable
from tests.unit.cli.commands import Command, Running

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CELLS = "[...document.querySelectorAll('#queue .cells')].filter(run => run.title.startsWith('default/flood')).length"
STATES = "[...document.querySelectorAll('#workers tbody tr')].map(row => row.cells[0].textContent).join()"


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Running]:
    """The demo with the fake engine, on a free port."""
    if executable() is None:
        pytest.skip("needs Chromium: apt-get install chromium, or name one by CHROMIUM")
    command = Command(tmp_path)
    running = command.start(
        "demo", "--watch", "--engine", "fake", "--page-listen", "127.0.0.1:0", "--out", str(tmp_path / "out")
    )
    yield running
    running.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    path = executable()
    assert path is not None
    browser = Browser(path, tmp_path / "profile")
    yield browser
    browser.close()


def button(name: str) -> str:
    return f"#buttons button[data-name={name}]"


def is_pressed(name: str) -> str:
    return f"document.querySelector({json.dumps(button(name))})?.getAttribute('aria-pressed')"


def test_the_buttons_of_the_demo_do_what_they_say(demo: Running, browser: Browser) -> None:
    browser.resize(1280, 900)
    browser.open(demo.wait_for("watch: ").removeprefix("watch: ").strip())
    browser.until(is_pressed("flood"), lambda pressed: pressed == "true")
    browser.until(CELLS)
    browser.click(button("flood"))
    browser.until(is_pressed("flood"), lambda pressed: pressed == "false")
    browser.until(CELLS, lambda cells: cells == 0)
    browser.click(button("flood"))
    browser.until(CELLS)

    browser.until(STATES, lambda names: names == "worker-0,worker-1")
    browser.click(button("kill"))
    browser.until(STATES, lambda names: names == "worker-0")
    browser.click(button("kill"))
    browser.until(STATES, lambda names: names == "worker-0,worker-1")
    browser.until(f"document.querySelector({json.dumps(button('fcfs'))}).disabled", lambda disabled: not disabled)

    browser.until("document.querySelector('#bound-text').textContent", lambda text: "never apart by more than" in text)
    browser.click(button("fcfs"))
    browser.until("document.querySelector('#bound-text').textContent", lambda text: "has no bound" in text)
    browser.until("document.querySelector('#headline').textContent", lambda text: "round-robin" in text)
    browser.until(CELLS)
    assert browser.console == []
    assert demo.end(signal.SIGTERM) == 0
    assert demo.rest().endswith("stopped\n")
