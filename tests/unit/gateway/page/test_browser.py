"""The page in a real browser, beside real services."""

import json
from pathlib import Path

import pytest

from gateway.page.access import page_key
from lab.bench.page.browser import Browser
from tests.ports import own_address
from tests.services import SECRET, Process, Stack
from tests.unit.gateway.page.axe import violations
from tests.unit.gateway.page.users import asking

UPDATES = "Number(document.documentElement.dataset.updates ?? 0)"
WIDTH = "document.documentElement.scrollWidth"
MARKUP = "<img src=x onerror=alert(1)>"


def cell(client: str, column: int) -> str:
    """An expression for the text of a client's cell in the table of clients."""
    return (
        "[...document.querySelectorAll('#clients tbody tr')]"
        f".find(row => row.cells[0].textContent === {json.dumps(client)})?.cells[{column}].textContent ?? ''"
    )


def enter(browser: Browser, page: str) -> None:
    """Open the page with its key, and wait until it draws."""
    browser.open(f"{page}/#key={page_key(SECRET)}")
    browser.until(f"{UPDATES} > 1")


def test_it_draws_and_updates_and_loads_nothing_from_elsewhere(browser: Browser, page: str, served: Process) -> None:
    with asking(served.address, {"flood": 24, "ann": 4, MARKUP: 2, "__proto__": 1}):
        enter(browser, page)
        assert browser.run("location.href") == f"{page}/", "the key is not in the address any more"
        browser.until("document.querySelectorAll('canvas').length === 2")
        for name in ("flood", "ann", MARKUP, "__proto__"):
            browser.until(cell(f"default/{name}", 0))
        before = browser.until(cell("default/flood", 4))
        browser.until(cell("default/flood", 4), lambda text: text != before)
        browser.until("document.querySelectorAll('#queue .cells').length > 0")
        browser.until(cell("default/flood", 1), lambda text: text == "waits")
        assert "cost units" in browser.text("#bound-text")
        browser.click("#chart-details summary")
        browser.until("document.querySelectorAll('#chart-table tbody tr').length > 2")
        shown = "[...document.querySelectorAll('#chart-table tbody tr')].map(row => row.cells[1].textContent)"
        shares = "[...document.querySelectorAll('#clients tbody tr')].map(row => row.cells[2].lastChild.textContent)"
        both = browser.run(f"[{shown}, {shares}]")
        assert len(both[0]) > 2
        assert set(both[0]) <= set(both[1]), "the charts and the table have the same numbers"
        served_by = "[...document.querySelectorAll('#workers td.served')].map(cell => cell.textContent).join()"
        browser.until(served_by, lambda text: "default/flood" in text)
        assert browser.run("document.querySelectorAll('td img, th img').length") == 0, "markup in names stays text"
        assert violations(browser) == []
    assert browser.console == []
    assert {address.partition(page)[0] for address in browser.requested if address != "about:blank"} == {""}


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(browser: Browser, page: str, served: Process, is_dark: bool) -> None:
    browser.resize(390, 844, is_dark=is_dark)
    with asking(served.address, {"flood": 16, "ann": 4}):
        enter(browser, page)
        browser.until(cell("default/flood", 4))
        browser.until(WIDTH, lambda width: width <= 390)
        heads = "[...document.querySelectorAll('#clients thead th')].filter(head => head.offsetWidth)"
        assert browser.run(f"{heads}.map(head => head.textContent)") == ["Client", "Share now", "Waiting", "Running"]
        assert browser.run("document.querySelector('#clients').scrollWidth") <= 390
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 200) == is_dark
        assert violations(browser) == []
    assert browser.console == []


def test_it_says_so_when_there_is_enough_for_everybody(browser: Browser, page: str, served: Process) -> None:
    digest = "0123456789abcdef" * 4
    with asking(served.address, {digest: 1}):
        enter(browser, page)
        browser.until(cell("default/01234567…", 0))
        text = "document.querySelector('#bound-text').textContent"
        browser.until(text, lambda text: text.startswith("Enough for everybody: no client waits."))
        assert browser.run("document.querySelector('#ahead-figure').hidden")
        assert browser.run("document.querySelector('#clients button.link[title$=\"cdef\"]') !== null")
    assert browser.console == []


def test_a_prompt_is_tried_and_its_time_is_shown(browser: Browser, page: str) -> None:
    enter(browser, page)
    browser.run("document.querySelector('#prompt-user').focus()")
    browser.type("carol")
    browser.click("#prompt-form button[type=submit]")
    browser.until("document.querySelector('#answer').textContent.length", lambda length: length >= 1)
    browser.until("document.querySelectorAll('#answer-waterfall .track i').length === 5")
    assert browser.text("#answer-facts").startswith("Answered in ")
    browser.until(cell("default/carol", 0))
    browser.run("document.querySelector('#prompt-text').value = 'x'.repeat(9000)")
    browser.click("#prompt-form button[type=submit]")
    browser.until("document.querySelector('#answer-facts').textContent", lambda text: "maximum context" in text)
    browser.console.clear()  # the browser notes the status of the refusal


def test_all_of_it_works_by_keyboard(browser: Browser, page: str, served: Process) -> None:
    with asking(served.address, {"ann": 1}):
        browser.open(f"{page}/")
        browser.until("document.activeElement.id === 'key'")
        browser.type("wrong")
        browser.press("Enter")
        browser.until("document.querySelector('#login-error').textContent.startsWith('Not opened')")
        browser.run("document.querySelector('#key').value = ''")
        browser.run("document.querySelector('#key').focus()")
        browser.type(SECRET)
        browser.press("Enter")
        browser.until(cell("default/ann", 0))
        browser.until(f"{UPDATES} > 2")
        for _ in range(30):
            browser.press("Tab")
            if browser.run("document.activeElement.textContent") == "default/ann":
                break
        outline = browser.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", "where the focus is can be seen"
        browser.press("Enter")
        browser.until("document.querySelectorAll('#calls .track i').length >= 5")
        assert browser.run("document.querySelector('#calls tbody tr').children[1].children[0].className") == "track"
        assert browser.run("document.activeElement.id") == "calls-title"
        assert browser.text("#calls-title") == "Calls of default/ann"


@pytest.mark.e2e
def test_it_survives_a_restart_of_gateway_and_scheduler(browser: Browser, tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    try:
        stack.worker("a", model="tiny", engine="fake:0.02")
        listen = own_address()
        gateway = stack.gateway(page_listen=listen)
        enter(browser, f"http://{listen}")
        status = "document.querySelector('#connection').textContent"
        scheduler = stack.scheduler.address
        stack.scheduler.kill()
        browser.until(status, lambda text: text.startswith("No news"))
        stack.scheduler = stack.start("global_scheduler", listen=scheduler)
        stack.schedulers = [stack.scheduler]
        browser.until(status, lambda text: text == "Live")
        gateway.kill()
        browser.until(status, lambda text: text.startswith("The gateway does not answer"))
        updates = browser.run(UPDATES)
        gateway = stack.gateway(page_listen=listen)
        browser.until(f"{UPDATES} > {updates + 1}")
        browser.until(status, lambda text: text == "Live")
        with asking(gateway.address, {"ann": 1}):
            browser.until(cell("default/ann", 0))
    finally:
        stack.close()
