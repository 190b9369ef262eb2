"""Interactive calls before a batch in the background class, on real processes: what they wait, and what is computed.

    python -m lab.bench.background_stack [--batch 2000] [--rate 4]

A gateway, a scheduler and a worker with the fake engine, whose steps take 50 ms and have 16 places. Interactive calls
of one token come at random times over HTTP, first alone and then while `fairlead batch run` answers a file, which it
also does alone before. The figures are the times of interactive calls, and the output tokens of all calls per second.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

from cli.batch.http_post import HttpPost
from cli.stack import Stack
from lab.bench.machine import commit, processor
from serving.statistics import percentile

STEP_SECONDS, PLACES = 0.05, 16
OUTPUT = 8  # tokens of a call of the batch
URL = "/v1/completions"


class Batch:
    """A run of `fairlead batch run` over `lines` calls."""

    def __init__(self, url: str, lines: int, folder: Path) -> None:
        self._lines = lines
        requests = folder / "requests.jsonl"
        body = {"prompt": "a line of the batch", "max_tokens": OUTPUT, "ignore_eos": True}
        with requests.open("w") as file:
            for number in range(lines):
                call = {"custom_id": str(number), "method": "POST", "url": URL, "body": body}
                file.write(json.dumps(call) + "\n")
        self._began = time.monotonic()
        out = str(folder / "answers.jsonl")
        command = [sys.executable, "-m", "cli", "batch", "run", str(requests), "--out", out, "--url", url]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    @property
    def is_running(self) -> bool:
        """Whether some of its calls have no answer."""
        return self._process.poll() is None

    def rate(self) -> float:
        """Wait until all is answered; return the output tokens per second."""
        if self._process.wait():
            raise RuntimeError("the batch has errors")
        return self._lines * OUTPUT / (time.monotonic() - self._began)


def interactive(url: str, rate: float, goes_on: threading.Event) -> list[float]:
    """Make calls at `rate` per second until `goes_on` is cleared; return the seconds that each took."""
    http, dice, took, threads = HttpPost(url, {}), Random(1), list[float](), list[threading.Thread]()
    body = json.dumps({"prompt": "a question", "max_tokens": 1}).encode()

    def call() -> None:
        began = time.monotonic()
        if http.post(URL, body).status == 200:
            took.append(time.monotonic() - began)

    while goes_on.is_set():
        time.sleep(dice.expovariate(rate))
        threads.append(threading.Thread(target=call))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return took


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench.background_stack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=4.0)
    args = parser.parse_args()
    print(f"commit {commit()}, {processor()}")
    goes_on = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = ["--max-running", str(PLACES)]
        with Stack(
            workers=1,
            worker_args=settings,
            log_dir=folder,
            model="tiny",
            engine=f"fake:{STEP_SECONDS}",
            http_listen="127.0.0.1:0",
        ) as stack:
            (folder / "alone").mkdir()
            alone = Batch(stack.http, args.batch, folder / "alone").rate()
            goes_on.set()
            threading.Timer(args.batch * OUTPUT / alone, goes_on.clear).start()
            before = interactive(stack.http, args.rate, goes_on)
            goes_on.set()
            (folder / "both").mkdir()
            batch, rates = Batch(stack.http, args.batch, folder / "both"), list[float]()

            def watch() -> None:
                rates.append(batch.rate())
                goes_on.clear()

            threading.Thread(target=watch).start()
            after = interactive(stack.http, args.rate, goes_on)
    for what, times in (("alone", before), ("before the batch", after)):
        figures = [1000 * percentile(times, part) for part in (50, 99)]
        print(f"interactive {what}: {len(times)} calls, p50 {figures[0]:.0f} ms, p99 {figures[1]:.0f} ms")
    both = rates[0] * (1 + len(after) / (args.batch * OUTPUT))
    print(f"output tokens per second: batch alone {alone:.1f}, both {both:.1f}, {both / alone:.2f} times")


if __name__ == "__main__":
    main()
