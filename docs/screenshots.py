"""`python docs/screenshots.py [--model NAME]` draws the pictures of the page in docs/img.

They show `fairlead demo --watch` in Chromium, with the fake engine unless a model is given. Numbers differ from run to
run.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.bench.page.browser import Browser, executable

FOLDER = Path(__file__).parent / "img"
SECONDS = 60.0  # of contention before a picture
WIDTH, HEIGHT = 1280, 1060
NARROW = 390


def main() -> None:
    """Start the demo and a browser, and write every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="")
    args = parser.parse_args()
    path = executable()
    if path is None:
        raise SystemExit("needs Chromium: apt-get install chromium, or name one by CHROMIUM")
    engine = ["--model", args.model] if args.model else ["--engine", "fake"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cli", "demo", "--watch", "--page-listen", "127.0.0.1:0", "--out", folder]
        demo = subprocess.Popen([*command, *engine], stdout=subprocess.PIPE, text=True)
        assert demo.stdout is not None
        try:
            address = next(line.removeprefix("watch: ") for line in demo.stdout if line.startswith("watch: ")).strip()
            browser = Browser(path, Path(folder) / "profile")
            try:
                draw(browser, address)
            finally:
                browser.close()
        finally:
            demo.terminate()
            demo.wait()


def draw(browser: Browser, address: str) -> None:
    """Write the pictures of a flood under DLPM, of the same under FCFS, and of a narrow and dark page."""
    FOLDER.mkdir(exist_ok=True)
    browser.resize(WIDTH, HEIGHT)
    browser.open(address)
    time.sleep(SECONDS)
    browser.picture(FOLDER / "page.webp")
    browser.click("#clients tbody tr button")
    browser.until("document.querySelectorAll('#calls .track').length > 0")
    browser.picture(FOLDER / "page-calls.webp")
    browser.run("scrollTo(0, 0)")
    browser.resize(NARROW, 844, is_dark=True)
    time.sleep(2)
    browser.picture(FOLDER / "page-narrow.webp")
    browser.resize(WIDTH, HEIGHT)
    browser.run("scrollTo(0, 0)")
    browser.click("#buttons [data-name=fcfs]")
    browser.until("document.querySelector('#bound-text').textContent", lambda text: "has no bound" in text)
    time.sleep(SECONDS)
    browser.picture(FOLDER / "page-fcfs.webp")


if __name__ == "__main__":
    main()
