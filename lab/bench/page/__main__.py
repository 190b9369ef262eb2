"""The cost of the operators' page: CPU of gateway and scheduler per viewer, and script per update in Chromium.

    python -m lab.bench.page [--workers 64] [--clients 200] [--seconds 30] [--viewers 0,1,5]

Real scheduler and gateway; a simulated fleet reports to them, four times a second and worker, with news of 50 clients.
Every client has requests at every worker. CPU is that of the processes, whatever else the machine does. A viewer is a
stream of events that is read to its end. The last line is of a page in Chromium: script, style and layout per update.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cli.service_process import ServiceProcess
from gateway.page.access import page_key
from lab.bench.control_plane.job import cpu_seconds
from lab.bench.machine import commit, processor
from lab.bench.page.browser import Browser, executable
from lab.bench.page.fleet import SimulatedWorker
from lab.bench.page.viewers import log_in, viewers

SETTLE_SECONDS = 5.0
START_SECONDS = 60.0
UPDATES = "Number(document.documentElement.dataset.updates ?? 0)"
PARTS = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.page")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--viewers", default="0,1,5")
    args = parser.parse_args()
    print(f"{processor()}; commit {commit()}; {args.workers} workers, {args.clients} clients")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        asyncio.run(_measure(args, Path(folder)))


async def _measure(args: argparse.Namespace, folder: Path) -> None:
    secret = secrets.token_hex(16)
    with _service("global_scheduler", [], secret, folder) as scheduler:
        address = f"127.0.0.1:{_listening(scheduler)['port']}"
        fleet = [SimulatedWorker(number, args.clients) for number in range(args.workers)]
        tasks = [asyncio.create_task(worker.run(address, secret)) for worker in fleet]
        options = ["--scheduler", address, "--page-listen", "127.0.0.1:0"]
        with _service("gateway", options, secret, folder) as gateway:
            port = int(_listening(gateway)["page_port"])
            print("| viewers | gateway CPU, % of a core | scheduler CPU, % of a core | KB per update and viewer |")
            print("|---|---|---|---|")
            for number in map(int, args.viewers.split(",")):
                print(await _row(number, port, secret, gateway, scheduler, args.seconds), flush=True)
            print(await asyncio.to_thread(_in_browser, port, secret, folder, args.seconds))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _row(
    number: int, port: int, secret: str, gateway: ServiceProcess, scheduler: ServiceProcess, seconds: float
) -> str:
    async with viewers(number, port, await log_in(port, secret)) as open_pages:
        await asyncio.sleep(SETTLE_SECONDS)
        began, spent = time.monotonic(), [cpu_seconds(process.pid) for process in (gateway, scheduler)]
        counts = [(viewer.bytes, viewer.events) for viewer in open_pages]
        await asyncio.sleep(seconds)
        passed = time.monotonic() - began
        parts = [
            (cpu_seconds(process.pid) - before) / passed
            for process, before in zip((gateway, scheduler), spent, strict=True)
        ]
        sizes = [
            (viewer.bytes - size) / max(1, viewer.events - events)
            for viewer, (size, events) in zip(open_pages, counts, strict=True)
        ]
    kilobytes = f"{sum(sizes) / number / 1e3:.1f}" if number else "-"
    return f"| {number} | {parts[0]:.2%} | {parts[1]:.2%} | {kilobytes} |"


def _in_browser(port: int, secret: str, folder: Path, seconds: float) -> str:
    path = executable()
    if path is None:
        return "\nno Chromium: the page itself was not measured"
    browser = Browser(path, folder / "profile")
    try:
        browser.resize(1280, 900)
        browser.open(f"http://127.0.0.1:{port}/#key={page_key(secret)}")
        browser.until(f"{UPDATES} > 5")
        browser.run("document.querySelector('#more-clients').click()")  # all rows
        updates, before = browser.run(UPDATES), browser.metrics()
        time.sleep(seconds)
        updates, after = browser.run(UPDATES) - updates, browser.metrics()
    finally:
        browser.close()
    script, style, layout = ((after[part] - before[part]) / updates * 1e3 for part in PARTS)
    return f"\nin Chromium, per update: script {script:.1f} ms, style {style:.1f} ms, layout {layout:.1f} ms"


def _listening(process: ServiceProcess) -> dict[str, int]:
    return process.wait_for("listening", time.monotonic() + START_SECONDS)


@contextlib.contextmanager
def _service(module: str, options: list[str], secret: str, folder: Path) -> Iterator[ServiceProcess]:
    environment = {"FAIRLEAD_SECRET": secret}
    arguments = ["--listen", "127.0.0.1:0", *options]
    process = ServiceProcess(module, module, arguments, environment, folder / f"{module}.log")
    try:
        yield process
    finally:
        process.kill()


if __name__ == "__main__":
    main()
